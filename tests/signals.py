# SPDX-License-Identifier: MIT
"""A signal at each point of something at which Python looks for signals.

These are the ends of calls and of the turns of loops. A trace function in C, which runs
no line of Python's, makes the signal pending before the call of which the point is the
end; so its handler runs where it would run in earnest.
"""

from __future__ import annotations

import ctypes
import dis
import signal
import sys
import traceback
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import mooactor

_PACKAGE = str(Path(mooactor.__file__).parent)
_LOOKS = ("CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD")

_press: Any = ctypes.pythonapi["PyErr_SetInterrupt"]
_press.argtypes = [ctypes.py_object] * 3  # as a trace function; it takes none
_press.restype = None


class Interruption(Exception):
    """What a handler raises, if it does nothing else."""


def interrupted(
    run: Callable[[], object], number: int, act: Callable[[], object] | None = None
) -> str:
    """Run it, and raise at the point of that number, or do `act` there. Returns where
    that is; empty if there is no such point."""
    came: list[str] = []

    def handler(_: int, frame: FrameType | None) -> None:
        sys.settrace(None)
        came.append("".join(traceback.format_stack(frame, 3)))
        if act is None:
            raise Interruption
        act()

    before = signal.signal(signal.SIGINT, handler)
    sys.settrace(_Presses(number).trace)
    raised = False
    try:
        run()
    except Interruption:
        raised = True
    finally:
        sys.settrace(None)
        signal.signal(signal.SIGINT, before)
    assert raised or not came or act is not None, f"it was lost:\n{came[0]}"
    return "".join(came)


class _Presses:
    """Counts the points within the package, and presses Ctrl-C before one of them."""

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
        if event != "opcode" or frame.f_lasti not in self._before_points(frame.f_code):
            return self._step
        self._left -= 1
        return self._step if self._left else _press  # which traces the call itself

    def _before_points(self, code: CodeType) -> set[int]:
        if code not in self._before:
            self._before[code] = {
                one.offset
                for one, following in pairwise(dis.get_instructions(code))
                if following.opname in _LOOKS and "JUMP" not in one.opname
            }
        return self._before[code]
