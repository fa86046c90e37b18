# SPDX-License-Identifier: MIT
"""What a program behind ssh prints, written to the launcher's own stdout."""

from __future__ import annotations

import os
from collections.abc import Callable

from mooactor.host.eventloop import EventLoop
from mooactor.host.terminal import writer

_PIECE = 1 << 16  # bytes that are read at once, and that a pipe holds


class Relay:
    """It writes the bytes of a pipe to a descriptor as they come, and never blocks.

    Invariant: nothing is read until all that was read before is written. So a reader
    that is slow holds up the program, as one of this machine is held up, and a reader
    that has gone is known to the program: the pipe is closed, and its next write fails.

    Args:
      source: the end of the pipe that is read, non-blocking. The relay closes it.
      fd: where to.
      on_failure: is told once why `fd` takes nothing more, as a file on a full disk
        does. A reader that has gone is no failure.
    """

    def __init__(
        self,
        loop: EventLoop,
        source: int,
        fd: int,
        on_failure: Callable[[str], None],
    ) -> None:
        self._loop, self._source, self._on_failure = loop, source, on_failure
        self._fd, self._write = writer(fd)
        self._unwritten = b""
        self._waits_for_room = False
        self._open = True
        self._at_end: Callable[[], None] | None = None
        loop.watch(source, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._source, _PIECE)
        except BlockingIOError:
            if self._at_end is not None:
                self._close()
            return
        if data:
            self._unwritten = data
            self._flush()
        else:
            self._close()

    def _flush(self) -> None:
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[self._write(self._unwritten) :]
        except BlockingIOError:
            self._wait_for_room()
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                self._on_failure(error.strerror or str(error))
            self._close()

    def _wait_for_room(self) -> None:
        if not self._waits_for_room:
            self._waits_for_room = True
            self._loop.unwatch(self._source)
            self._loop.watch_room(self._fd, self._go_on)

    def _go_on(self) -> None:
        self._flush()
        if self._open and not self._unwritten:
            self._waits_for_room = False
            self._loop.unwatch(self._fd)
            self._loop.watch(self._source, self._read)
            self._drain()

    def finish(self, at_end: Callable[[], None]) -> None:
        """The program has ended: write what it left in the pipe, as fast as that is
        read, and call `at_end`. Others may have the pipe open still."""
        self._at_end = at_end
        if self._open:
            self._drain()
        else:
            at_end()

    def _drain(self) -> None:
        while self._at_end is not None and self._open and not self._waits_for_room:
            self._read()

    def give_up(self) -> None:
        """Drop what its reader does not take, if there is such."""
        if self._waits_for_room:
            self._close()

    def _close(self) -> None:
        if self._waits_for_room:
            self._waits_for_room = False
            self._loop.unwatch(self._fd)
        if self._open:
            self._open = False
            self._loop.unwatch(self._source)
            os.close(self._source)
            if self._at_end is not None:
                self._at_end()
