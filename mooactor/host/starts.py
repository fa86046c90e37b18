# SPDX-License-Identifier: MIT
"""The starts of actors, as the zygote sees them: which are under way, and what they
write to.

A process that becomes an actor has the end of a pipe, into which it writes its pid. It
closes it when nothing is left of its start but the user's code, which may take any time
and may do anything to descriptors; so does its death.
"""

from __future__ import annotations

import os
import select
import struct
import time

from mooactor.host import pages

_LONGEST_S = 0.1
_PID = struct.Struct("=i")


def note_pid(writer: int) -> None:
    """Of a new process: say who it is. It has the other end, too, as a fork of the
    zygote: the death of that does not make this fail."""
    os.write(writer, _PID.pack(os.getpid()))


class Starts:
    """``pages``: those that a start writes to, once that is known."""

    def __init__(self, poller: select.poll) -> None:
        """`poller` is told of the pipes; hand what it finds to `look`."""
        self._poller = poller
        self._given_up: dict[int, float] = {}  # by pipe: when it is waited for no more
        self._learns = True
        self.pages: list[pages.Run] = []

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._given_up)

    def add(self, reader: int) -> None:
        """The processes at the other end of this pipe have begun to start."""
        os.set_blocking(reader, False)
        self._poller.register(reader, 0)  # no event but its end
        self._given_up[reader] = time.monotonic() + _LONGEST_S

    def left_ms(self) -> float | None:
        """When to `look` at the latest; None: whenever."""
        if not self._given_up:
            return None
        return max(0.0, min(self._given_up.values()) - time.monotonic()) * 1000

    def look(self, ended: set[int]) -> None:
        """See which are over: of these pipes the end has come, or they take long, as
        when their process was stopped."""
        now = time.monotonic()
        for reader, until in list(self._given_up.items()):
            if reader in ended or now >= until:
                self._over(reader)

    def learn_again(self) -> None:
        """More is imported, so starts may write to more."""
        self._learns = True

    def _over(self, reader: int) -> None:
        del self._given_up[reader]
        self._poller.unregister(reader)
        try:
            written = os.read(reader, _PID.size)
        except BlockingIOError:
            written = b""
        finally:
            os.close(reader)
        if self._learns and len(written) == _PID.size:
            found = pages.written_by(*_PID.unpack(written))
            self._learns = not found
            self.pages = found or self.pages
