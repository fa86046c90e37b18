# SPDX-License-Identifier: MIT
"""Messages about errors that nobody waits for, on stderr in all circumstances.

Python runs a signal handler between any two instructions of the main thread. An
exception of the handler is for the program, not for the code that happened to run: it
must neither be taken for an error of ours nor for the result of a call.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from types import CodeType, TracebackType
from typing import Any

from mooactor.errors import pass_ctrl_c, text_of


def complain(what: str, error: BaseException) -> None:
    """Print `what` and the error with its traceback. Never fails, also where the
    program has closed or deleted ``sys.stderr``."""
    say(f"{what}\n{_described(error)}")


def say(text: str) -> None:
    """Print a line, as `complain` does."""
    text += "\n"
    try:
        print(text, end="", file=sys.stderr, flush=True)
    except BaseException as problem:
        pass_ctrl_c(problem)
        _write(text)


def _described(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error)).rstrip()
    except BaseException as problem:
        pass_ctrl_c(problem)
        return f"{type(error).__name__}: {text_of(error)}"


def _write(text: str) -> None:
    try:
        os.write(2, text.encode(errors="replace"))
    except OSError:
        pass  # there is no stderr


def was_interrupted(error: BaseException) -> bool:
    """Whether a signal handler of this process raised `error`."""
    if isinstance(error, KeyboardInterrupt) and not hasattr(error, "__notes__"):
        return True  # the usual handler is no Python function, and leaves no frame
    codes = set(map(_code_of, map(signal.getsignal, signal.valid_signals())))
    codes.discard(None)
    return bool(codes) and _passes(error.__traceback__, codes)


def pass_interruption(error: BaseException) -> None:
    """Raise again what a signal handler raised, or may have; see `pass_ctrl_c`."""
    if was_interrupted(error):
        raise error
    pass_ctrl_c(error)


def _passes(trace: TracebackType | None, codes: set[CodeType | None]) -> bool:
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: Any) -> CodeType | None:
    """The code of a handler that is a function, a method or a callable object."""
    handler = getattr(handler, "func", handler)  # of functools.partial
    if not hasattr(handler, "__code__") and not hasattr(handler, "__func__"):
        handler = vars(type(handler)).get("__call__")  # of a callable object
    code = getattr(getattr(handler, "__func__", handler), "__code__", None)
    return code if isinstance(code, CodeType) else None
