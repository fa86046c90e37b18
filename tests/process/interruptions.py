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
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import mooactor

_PACKAGE = str(Path(mooactor.__file__).parent)

_press: Any = ctypes.pythonapi["PyErr_SetInterrupt"]
_press.argtypes = [ctypes.py_object] * 3  # as a trace function; it takes none
_press.restype = None


class Interruption(Exception):
    """What the handler raises."""


_answers: list[str] = []
_LOST = "in a finalizer, where Python loses what is raised"


def _interrupt(number: int, frame: FrameType | None) -> None:
    sys.settrace(None)
    if any(one.f_code.co_name == "__del__" for one in _stack(frame)):
        _answers.append(_LOST)
        return
    _answers.append("".join(traceback.format_stack(frame, 3)))
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
                if _looks(following.opname) and not _leaves(one.opname)
            }
        return self._before[code]


def _looks(name: str) -> bool:
    """Whether that instruction looks for signals, itself or what it calls."""
    return name in ("CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD")


def _leaves(name: str) -> bool:
    """Whether another instruction may come after it than the one below."""
    return "JUMP" in name or name.startswith(("RETURN", "RAISE", "RERAISE"))


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


class Run(NamedTuple):
    """`where` it was interrupted; empty if it came to its end. Whether that was because
    there is no such point."""

    where: str
    was_whole: bool


def interrupted(run: Callable[[], object], number: int) -> Run:
    """Run it up to the point of that number."""
    _answers.clear()
    sys.settrace(_Presses(number).trace)
    try:
        run()
    except Interruption:
        return Run(_answers[0], False)
    finally:
        sys.settrace(None)
    assert _answers in ([], [_LOST]), f"it did not reach the program:\n{_answers[0]}"
    return Run("", not _answers)
