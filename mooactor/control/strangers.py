# SPDX-License-Identifier: MIT
"""Connections that have not proved anything yet: no more of them than this process can
afford.

libzmq gives up a handshake that takes too long, but accepts any number of connections
meanwhile, until the process has no descriptor left for anything else. Its monitor tells
their descriptors, and a connection that is shut down is one that libzmq closes itself.
"""

from __future__ import annotations

import resource
import socket

MOST = 1 << 14  # each takes some 4 KB of memory


class Strangers:
    """The oldest go when there are too many: `MOST`, or half of the descriptors that
    this process may have."""

    def __init__(self) -> None:
        self.port = 0  # the one that they have connected to
        self.turned_away = 0
        self._fds: dict[int, None] = {}  # oldest first

    def add(self, fd: int) -> None:
        self._fds[fd] = None
        while len(self._fds) > _bound():
            oldest = next(iter(self._fds))
            del self._fds[oldest]
            self._shut(oldest)

    def discard(self, fd: int) -> None:
        """It has shown who it is, or has ended."""
        self._fds.pop(fd, None)

    def _shut(self, fd: int) -> None:
        try:
            connection = socket.socket(fileno=fd)
        except OSError:
            return  # libzmq has closed it a moment ago
        try:
            # The number may belong to something else by now. Another connection here
            # comes back; nothing else of this process must be touched.
            if connection.getsockname()[1] == self.port:
                connection.shutdown(socket.SHUT_RDWR)
                self.turned_away += 1
        except (OSError, IndexError):
            pass
        finally:
            connection.detach()


def _bound() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, soft // 2)
