# SPDX-License-Identifier: MIT
"""Standard output and error of a command.

A write of these that fails raises `OutputLost`, so it is not taken for another OSError
of the command, which keeps its own message or traceback. What is printed after that
goes nowhere. Characters that the encoding lacks are printed as escapes.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class OutputLost(Exception):
    """Nobody reads the stream any more (`unread`), or it cannot be written. `fd`: 1
    or 2."""

    def __init__(self, error: OSError, fd: int) -> None:
        super().__init__(error.strerror or str(error))
        self.unread = isinstance(error, BrokenPipeError)
        self.fd = fd


class _Stream(io.TextIOWrapper):
    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise self._lost(error) from None

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise self._lost(error) from None

    def _lost(self, error: OSError) -> OutputLost:
        # Its buffer still has text, which the interpreter writes when it exits.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)
        return OutputLost(error, self.fileno())


@contextmanager
def guarded() -> Iterator[None]:
    """Have both streams be like this."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = ours = _guard(sys.stdout), _guard(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for own, theirs in zip(ours, before, strict=True):
            if own is not theirs:
                with suppress(OutputLost):  # there is another error to tell of
                    own.flush()
                own.detach()


def flush() -> None:
    """Write what standard output still has to write."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _guard(stream: Any) -> Any:
    if not isinstance(stream, io.TextIOWrapper):  # closed, or somebody's own
        return stream
    stream.flush()
    return _Stream(
        stream.buffer,
        stream.encoding,
        "backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
