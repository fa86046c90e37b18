# SPDX-License-Identifier: MIT
"""What the launched programs print, with the host in front, on the launcher's stderr.

Nothing here blocks: a reader that stopped holds up neither the launch nor its end.
"""

from __future__ import annotations

import time

from mooactor.host.eventloop import EventLoop
from mooactor.host.terminal import Terminal

_PATIENCE_S = 0.3


class Output:
    """The launcher's stdout or stderr, by whole lines."""

    def __init__(self, loop: EventLoop, fd: int) -> None:
        self._loop, self._terminal = loop, Terminal(fd)
        self._watched = False

    def line(self, host: str, text: bytes) -> None:
        """Print a line of `host`; an empty name leaves it as it is."""
        label = f"[{host}] ".encode() if host else b""
        self._terminal.add(label + text + b"\n")
        if self._terminal.waiting and not self._watched:
            self._loop.watch_room(self._terminal.fd, self._flush)
            self._watched = True

    def say(self, text: str) -> None:
        """Print a line of the launcher's own."""
        self.line("", f"mooactor run: {text}".encode())

    def _flush(self) -> None:
        self._terminal.flush()
        if not self._terminal.waiting:
            self._loop.unwatch(self._terminal.fd)
            self._watched = False

    def close(self) -> None:
        """Give the reader a moment for the last lines."""
        self._terminal.drain(_PATIENCE_S, time.monotonic() + _PATIENCE_S)
        if self._watched:
            self._loop.unwatch(self._terminal.fd)
