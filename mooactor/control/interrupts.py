# SPDX-License-Identifier: MIT
"""Exceptions of signal handlers, which come from outside the code that they leave.

Python runs a signal handler between any two instructions of the main thread. An
exception of the handler is for the program, not for the code that happened to run: it
must neither be taken for an error of ours nor for the result of a call.
"""

from __future__ import annotations

import signal
from types import CodeType, TracebackType
from typing import Any

from mooactor.errors import pass_ctrl_c


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
