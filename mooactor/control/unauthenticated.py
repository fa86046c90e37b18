# SPDX-License-Identifier: MIT
"""Connections that have not proved anything yet: no more of them than this process can
afford.

libzmq gives up a handshake that takes too long, but accepts any number of connections
meanwhile, until the process has no descriptor left for anything else. Its monitor tells
their descriptors, and a connection that is shut down is one that libzmq closes itself.

`Arrivals` does so at the inbox of a process. The cost is an event of the inbox's
monitor for each connection that comes or goes, in the housekeeper's thread; a message
costs nothing. While another thread holds the GIL nobody is turned away, and libzmq
itself stops accepting when there are no descriptors left.
"""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Callable

import zmq

from mooactor.control.sockets import events_of, monitored, unmonitor
from mooactor.control.ways import Keeper

MOST = 1 << 14  # each takes some 4 KB of memory
#: A listener sends less to one who does not pass the handshake of CURVE (RFC 26):
#: a greeting of 64 bytes, a WELCOME of 170 and an error of 12. One who does gets
#: a READY, and the kernel counts 301 with it.
_ANSWERED_BYTES = 272
_ACKED = struct.Struct("=120xQ")  # tcpi_bytes_acked of struct tcp_info, Linux 4.1


class Unauthenticated:
    """The oldest go when there are too many: `MOST`, or half of the descriptors that
    this process may have. One goes for each that comes, when three quarters of these
    are in use, for whatever."""

    def __init__(self, is_known: Callable[[socket.socket], bool] | None = None) -> None:
        """`is_known`: whether a connection has proved enough after all. By default
        `discard` says so of each."""
        self.port = 0  # the one that they have connected to
        self.turned_away = 0
        self._is_known = is_known
        self._fds: dict[int, None] = {}  # oldest first

    def add(self, fd: int) -> None:
        self._fds[fd] = None
        limit = _descriptors()
        while len(self._fds) > min(MOST, limit // 2):
            self._shut_oldest()
        # Numbers are given lowest first: a high one says how many are in use.
        if fd >= limit - limit // 4:
            while len(self._fds) > 1 and not self._shut_oldest():
                pass

    def discard(self, fd: int) -> None:
        """It has shown who it is, or has ended."""
        self._fds.pop(fd, None)

    def _shut_oldest(self) -> bool:
        """Whether it was a stranger's; others are let alone from here on."""
        fd = next(iter(self._fds))
        del self._fds[fd]
        try:
            connection = socket.socket(fileno=fd)
        except OSError:
            return False  # libzmq has closed it a moment ago
        try:
            return self._shut(connection)
        finally:
            connection.detach()

    def _shut(self, connection: socket.socket) -> bool:
        try:
            # The number may belong to something else by now. Another connection here
            # comes back; nothing else of this process must be touched.
            if connection.getsockname()[1] != self.port:
                return False
            if self._is_known is not None and self._is_known(connection):
                return False
            connection.shutdown(socket.SHUT_RDWR)
        except (OSError, IndexError):
            return False
        self.turned_away += 1
        return True


def has_passed(connection: socket.socket) -> bool:
    """Whether the other side has passed the handshake of CURVE, of a connection over
    which this one sends nothing else. libzmq tells that some connection has, and not
    which one; the kernel tells how much of what was sent has arrived. Where it does not
    tell, everybody has."""
    options = socket.IPPROTO_TCP, socket.TCP_INFO, _ACKED.size
    info = connection.getsockopt(*options)
    if len(info) < _ACKED.size:
        return True
    (acknowledged,) = _ACKED.unpack(info)
    return bool(acknowledged > _ANSWERED_BYTES)


def _descriptors() -> int:
    """How many this process may have; without a limit, as good as any number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 4 * MOST if soft == resource.RLIM_INFINITY else soft


class Arrivals:
    """Those at one ROUTER, which does not listen yet."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], inbox: zmq.Socket[bytes]
    ) -> None:
        self.unauthenticated = Unauthenticated(has_passed)
        self._inbox = inbox
        events = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
        self._monitor = monitored(context, inbox, events)

    def watch(self, keeper: Keeper) -> None:
        """From here on the housekeeper looks after them."""
        keeper.watch(int(self._monitor.getsockopt(zmq.FD)), self._read)
        self._read()  # a monitor tells of its first news to a reader only

    def _read(self) -> None:
        for event, fd in events_of(self._monitor):
            if event == zmq.EVENT_ACCEPTED:
                self.unauthenticated.add(fd)
            else:
                self.unauthenticated.discard(fd)

    def close(self) -> None:
        """Before the inbox is closed, and when no other thread uses it."""
        unmonitor(self._inbox, self._monitor)
