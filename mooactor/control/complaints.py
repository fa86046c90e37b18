# SPDX-License-Identifier: MIT
"""Messages about errors that nobody waits for, on stderr in all circumstances."""

from __future__ import annotations

import os
import sys
import traceback

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
