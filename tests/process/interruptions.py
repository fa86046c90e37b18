# SPDX-License-Identifier: MIT
"""Ctrl-C at each point at which Python looks for signals.

Python looks for them where a function begins, after each call of a C function, and at
the end of each turn of a loop; in other places a handler cannot raise. `interrupted`
runs something up to one of these points: a trace function in C, which runs no line of
Python's, makes the signal pending before the call of which the point is the end.
"""

from __future__ import annotations

import ctypes
import dis
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

import mooactor

#: Instructions that look for signals.
_LOOKS = ("CALL", "JUMP_BACKWARD")
_PACKAGE = str(Path(mooactor.__file__).parent)

_press: Any = ctypes.pythonapi["PyErr_SetInterrupt"]
_press.argtypes = [ctypes.py_object] * 3  # as a trace function; it takes none
_press.restype = None


class Interruption(Exception):
    """What the handler raises."""


def _interrupt(*_: object) -> None:
    sys.settrace(None)
    raise Interruption


@contextmanager
def handled() -> Iterator[None]:
    """Within it, the handler is in place."""
    before = signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Presses:
    """Counts the calls within the package, and presses Ctrl-C before one of them."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._before: dict[CodeType, set[int]] = {}

    def trace(self, frame: FrameType, event: str, about: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._step

    def _step(self, frame: FrameType, event: str, about: Any) -> Any:
        if event != "opcode" or frame.f_lasti not in self._before_calls(frame.f_code):
            return self._step
        self._left -= 1
        return self._step if self._left else _press  # which traces the call itself

    def _before_calls(self, code: CodeType) -> set[int]:
        if code not in self._before:
            self._before[code] = {
                one.offset
                for one, following in pairwise(dis.get_instructions(code))
                if following.opname.startswith(_LOOKS)
            }
        return self._before[code]


def interrupted(run: Callable[[], object], number: int) -> str:
    """Run it up to the point of that number: the file and line there. Empty if it ended
    before."""
    sys.settrace(_Presses(number).trace)
    try:
        run()
    except Interruption as error:
        return _place(error.__traceback__)
    finally:
        sys.settrace(None)
    return ""


def _place(trace: TracebackType | None) -> str:
    places = []
    while trace is not None:
        places.append(
            f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        )
        trace = trace.tb_next
    return " ".join(places[-3:-1])  # the last is the handler's
