# SPDX-License-Identifier: MIT
"""A signal at each point at which Python looks for signals. Its handler raises, or does
something else.

Python looks for them where a function begins, after each call of a C function, and at
the end of each turn of a loop; in other places a handler cannot raise. A trace function
in C, which runs no line of Python's, makes the signal pending before the call of which
the point is the end. So the exception comes from where it would come from in earnest.

    Point(number).interrupt(run)  # runs it up to there
"""

from __future__ import annotations

import ctypes
import dis
import random
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import mooactor

_PACKAGE = str(Path(mooactor.__file__).parent)
_TESTS = str(Path(__file__).parent)

SIGNALS = 40  # of each run
_MANY = 1 << 30

_press: Any = ctypes.pythonapi["PyErr_SetInterrupt"]
_press.argtypes = [ctypes.py_object] * 3  # as a trace function; it takes none
_press.restype = None


class Interruption(Exception):
    """The handler's exception, if it does nothing else."""


class Point:
    """`where` it is, once it was reached; empty if the run came to its end."""

    def __init__(self, number: int) -> None:
        self.is_missing = False  # the run had fewer
        self.where = ""
        self._left = number
        self._answers: list[str] = []
        self._before: dict[CodeType, set[int]] = {}

    def interrupt(
        self, run: Callable[[], object], act: Callable[[], object] | None = None
    ) -> str:
        """Run it up to there, and raise or do `act`. Returns `where`."""

        def handle(number: int, frame: FrameType | None) -> None:
            self._note(frame)
            if self._answers[-1]:
                (act or _raise)()

        before = signal.signal(signal.SIGINT, handle)
        sys.settrace(self._trace)
        raised = False
        try:
            run()
        except Interruption:
            raised = True
        finally:
            sys.settrace(None)
            signal.signal(signal.SIGINT, before)
        self.where = "".join(self._answers)
        self.is_missing = not self._answers
        assert raised or act or not self.where, f"it was lost:\n{self.where}"
        return self.where

    def _note(self, frame: FrameType | None) -> None:
        sys.settrace(None)
        stack = traceback.format_stack(frame, 3) if _is_within(frame) else []
        self._answers.append("".join(stack))

    def _trace(self, frame: FrameType, event: str, about: Any) -> Any:
        if not _file(frame).startswith(_PACKAGE):
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
                if following.opname in _LOOKS and not _leaves(one.opname)
            }
        return self._before[code]


def at_some_points(run: Callable[[Point], None]) -> None:
    """Call `run`, which interrupts something, with some of the points that this has."""
    run(last := Point(_MANY))
    count = _MANY - last._left
    assert count > 5
    for number in sorted(random.Random(1).sample(range(count), min(SIGNALS, count))):
        run(Point(number + 1))


def _raise() -> None:
    raise Interruption


#: The instructions that look for signals, themselves or in what they call.
_LOOKS = ("CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD")


def _leaves(name: str) -> bool:
    """Whether another instruction may come after it than the one below."""
    return "JUMP" in name or name.startswith(("RETURN", "RAISE", "RERAISE"))


def _is_within(frame: FrameType | None) -> bool:
    """Whether the package, and what it calls, was interrupted, and not in a finalizer,
    where Python loses what a handler raises."""
    frames = list(_stack(frame))
    ours = [_file(one) for one in frames if _file(one).startswith((_PACKAGE, _TESTS))]
    is_lost = any(one.f_code.co_name == "__del__" for one in frames)
    return ours[0].startswith(_PACKAGE) and not is_lost


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename
