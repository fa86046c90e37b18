# SPDX-License-Identifier: MIT
"""The output of actors, line by line, with the actor's name in front."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

TAIL_LINES = 20
_MOST_OF_A_TAIL = 1 << 11  # bytes of each of them: its end
_PIECE = 1 << 14  # bytes that are read at once
_MOST_OPEN = 1 << 16  # bytes of a line that is not complete
MOST_OF_A_LINE = 1 << 17  # bytes
MOST_LINES = 256  # that are handed on at once
MOST_OF_LINES = MOST_OF_A_LINE  # bytes of these

Emit: TypeAlias = "Callable[[list[bytes]], None]"


class LineReader:
    """One output pipe of one actor. Whole lines go to `emit` as soon as they arrive, at
    most `MOST_LINES` and `MOST_OF_LINES` bytes at once."""

    def __init__(self, fd: int, emit: Emit) -> None:
        self.fd = fd
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._emit = emit
        self._partial = b""

    def read(self) -> bool:
        """Read some of the bytes that are there; False at the end of the pipe."""
        try:
            data = os.read(self.fd, _PIECE)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        for lines in self._lines(data):
            self._emit(lines)
        return bool(data)

    def finish(self) -> None:
        """Hand on the rest, without waiting, and close."""
        for lines in self.rest():
            self._emit(lines)

    def rest(self) -> list[list[bytes]]:
        """Read what is in the pipe, without waiting, and close. Its lines, as they
        would go to `emit`."""
        found: list[list[bytes]] = []
        data = _whole(self.fd)
        os.close(self.fd)
        for at in range(0, len(data), _PIECE):
            found += self._lines(data[at : at + _PIECE])
        return [*found, *self._lines(b"")]

    def _lines(self, data: bytes) -> Iterator[list[bytes]]:
        """The lines that are complete with `data`, or without any more."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        if self._partial and (not data or len(self._partial) > _MOST_OPEN):
            lines.append(self._partial)
            self._partial = b""
        self._keep(lines[-TAIL_LINES:])
        for at in range(0, len(lines), MOST_LINES):
            yield lines[at : at + MOST_LINES]

    def _keep(self, lines: Sequence[bytes]) -> None:
        """The last lines go to all who watch the actor, and stay with its record."""
        for line in lines:
            cut = "…" if len(line) > _MOST_OF_A_TAIL else ""
            self.tail.append(cut + line[-_MOST_OF_A_TAIL:].decode(errors="replace"))


def one_by_one(emit: Callable[[bytes], None]) -> Emit:
    """Hands each line to `emit`."""

    def hand_on(lines: list[bytes]) -> None:
        for line in lines:
            emit(line)

    return hand_on


def _whole(pipe: int) -> bytes:
    """All that is in it now. Those who can still write may go on and on."""
    try:
        (size,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
        return os.read(pipe, size) if size else b""
    except OSError:
        return b""
