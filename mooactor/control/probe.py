# SPDX-License-Identifier: MIT
"""Whether anything listens at an address: libzmq does not say why it cannot connect.

A kernel that refuses a connection (RFC 9293, 3.10.7.1) says that the process which
listened there is gone. Every other answer, and none, says nothing.
"""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Callable

from mooactor.control.readiness import Readiness

REFUSED = errno.ECONNREFUSED


class Probe:
    """One TCP connection, closed as soon as it stands."""

    def __init__(
        self, ready: Readiness, host: str, port: int, answered: Callable[[int], None]
    ) -> None:
        """`answered` is called from the loop, at most once, with an errno: `REFUSED`, 0
        if something listens there, or another.

        Raises:
          OSError: this process can have no more sockets, or `host` is no address here,
            such as one of an interface that only others have.
        """
        self._ready = ready
        self._answered = answered
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._code = self._socket.connect_ex((host, port))
        except BaseException:
            self._socket.close()
            raise
        if self._code == errno.EINPROGRESS:
            ready.watch(self._socket.fileno(), self._finish, select.EPOLLOUT)
        else:
            ready.soon(self._answer)

    def _finish(self) -> None:
        self._code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not self._code and _is_itself(self._socket):
            self._code = REFUSED
        self._answer()

    def _answer(self) -> None:
        if self._socket.fileno() >= 0:
            self.close()
            self._answered(self._code)

    def close(self) -> None:
        """No answer is wanted any more."""
        if self._socket.fileno() >= 0:
            self._ready.unwatch(self._socket.fileno())
            self._socket.close()


def _is_itself(sock: socket.socket) -> bool:
    """Linux can connect a socket to itself where nobody listens on a local port."""
    try:
        return bool(sock.getsockname() == sock.getpeername())
    except OSError:
        return False
