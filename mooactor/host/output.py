# SPDX-License-Identifier: MIT
"""The output of actors, line by line, with the actor's name in front."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TypeAlias

from mooactor.host.eventloop import EventLoop

TAIL_LINES = 20
_MOST_OF_A_TAIL = 1 << 11  # bytes of each of them: its end
_SHOWN_S = 1.0  # between two looks at a line that is not complete
_PIECE = 1 << 14  # bytes that are read at once
_MOST_OPEN = 1 << 16  # bytes of a line that is not complete
MOST_OF_A_LINE = 1 << 17  # bytes
MOST_LINES = 256  # that are handed on at once
MOST_OF_LINES = MOST_OF_A_LINE  # bytes of these

Emit: TypeAlias = "Callable[[list[bytes]], None]"


class LineReader:
    """One output pipe of one actor. Whole lines go to `emit` as soon as they arrive, at
    most `MOST_LINES` and `MOST_OF_LINES` bytes at once.

    A line that is not complete, such as a progress bar, is shown as it is about once a
    second while it changes. One that was drawn again and again, with carriage returns,
    is what it was in the end.
    """

    def __init__(
        self,
        fd: int,
        emit: Emit,
        later: Callable[[float, Callable[[], None]], None] | None = None,
    ) -> None:
        """`later`: calls an action after some seconds; None: whole lines only, as they
        are."""
        self.fd = fd
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._emit = emit
        self._partial = b""
        self._later = later
        self._shown = b""  # of the line that is not complete
        self._due = self._over = False

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
        self._over = True
        data = _whole(self.fd)
        os.close(self.fd)
        for at in range(0, len(data), _PIECE):
            found += self._lines(data[at : at + _PIECE])
        return [*found, *self._lines(b"")]

    def _lines(self, data: bytes) -> Iterator[list[bytes]]:
        """The lines that are complete with `data`, or without any more."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        if self._later is not None:
            lines = [_latest(line) for line in lines]
            drawn = b"\r" if self._partial.endswith(b"\r") else b""
            self._partial = _latest(self._partial) + drawn
            self._show_later()
        if self._partial and (not data or len(self._partial) > _MOST_OPEN):
            lines.append(
                self._partial if self._later is None else _latest(self._partial)
            )
            self._partial = b""
        self._keep(lines[-TAIL_LINES:])
        if lines:
            if self._shown and lines[0] == self._shown:
                del lines[0]  # it is there already
            self._shown = b""
        for at in range(0, len(lines), MOST_LINES):
            yield lines[at : at + MOST_LINES]

    def _show_later(self) -> None:
        if self._partial and not self._due and self._later is not None:
            self._due = True
            self._later(_SHOWN_S, self._show)

    def _show(self) -> None:
        """Show the line that is not complete, if it has changed."""
        self._due = False
        now = _latest(self._partial)
        if now and now != self._shown and not self._over and not _unread(self.fd):
            self._shown = now
            self._emit([now])

    def _keep(self, lines: Sequence[bytes]) -> None:
        """The last lines go to all who watch the actor, and stay with its record."""
        for line in lines:
            cut = "…" if len(line) > _MOST_OF_A_TAIL else ""
            self.tail.append(cut + line[-_MOST_OF_A_TAIL:].decode(errors="replace"))


_AT_ONCE = 32  # pipes that are looked at again, in turn
_RETRY_S = 0.01


class Pipes:
    """Those whose lines go to one place. While there is no room, one that has something
    is left unread, so its writer is slowed down. While nobody makes room, such as the
    reader of a terminal that is stopped, they are read a little all the same."""

    def __init__(
        self,
        loop: EventLoop,
        has_room: Callable[[], bool],
        is_stalled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._loop = loop
        self._has_room = has_room
        self._is_stalled = is_stalled
        self._held_up: dict[LineReader, None] = {}  # in that order
        self._due = False  # `look` is

    def watch(self, reader: LineReader) -> None:
        """Read it from here on."""
        self._loop.watch(reader.fd, partial(self._read, reader))

    def unwatch(self, reader: LineReader) -> None:
        """Not any more; nothing happens if it is none of these."""
        self._held_up.pop(reader, None)
        self._loop.unwatch(reader.fd)

    def _read(self, reader: LineReader) -> None:
        if not self._has_room():
            self._loop.unwatch(reader.fd)
            self._held_up[reader] = None
            self._look_again()
        elif not reader.read():
            self._loop.unwatch(reader.fd)

    def _look_again(self) -> None:
        if self._held_up and not self._due:
            self._due = True
            self._loop.later(_RETRY_S, self._look)

    def _look(self) -> None:
        self._due = False
        for reader in list(islice(self._held_up, _AT_ONCE)):
            if self._has_room():
                del self._held_up[reader]
                self.watch(reader)
            elif self._is_stalled():
                del self._held_up[reader]
                if reader.read():
                    self._held_up[reader] = None  # the last one now
        self._look_again()


def _unread(pipe: int) -> int:
    """The bytes in it. While there are some, a line that is not complete is only one
    that is not read yet."""
    found: int = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]
    return found


def _latest(line: bytes) -> bytes:
    """The visible part of a line after its carriage returns."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def one_by_one(emit: Callable[[bytes], None]) -> Emit:
    """Hands each line to `emit`."""

    def hand_on(lines: list[bytes]) -> None:
        for line in lines:
            emit(line)

    return hand_on


def _whole(pipe: int) -> bytes:
    """All that is in it now. Those who can still write may go on and on."""
    try:
        size = _unread(pipe)
        return os.read(pipe, size) if size else b""
    except OSError:
        return b""
