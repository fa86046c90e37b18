# SPDX-License-Identifier: MIT
"""Whether anything listens at an address: libzmq does not say why it cannot connect.

A kernel that refuses a connection (RFC 9293, 3.10.7.1) says that the process which
listened there is gone. A greeting of ZMTP (RFC 37) says that one with CURVE is there.
Every other answer, and none, says nothing.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
from collections.abc import Callable

from mooactor.control.readiness import Readiness

REFUSED = errno.ECONNREFUSED
CURVE = -1  # no errno
# Signature, version 3.1, mechanism, whether it is the server, filler.
_GREETING = b"\xff%b\x7f\3\1%b\0%b" % (bytes(8), b"CURVE".ljust(20, b"\0"), bytes(31))
_MECHANISM = slice(12, 32)


class Probe:
    """One TCP connection, closed as soon as it stands, or after a greeting."""

    def __init__(
        self,
        ready: Readiness,
        host: str,
        port: int,
        answered: Callable[[int], None],
        *,
        greets: bool = False,
    ) -> None:
        """`answered` is called from the loop, at most once, with an errno: `REFUSED`, 0
        if something listens there, or another; with `CURVE` if it `greets`, and so does
        a server of CURVE.

        Raises:
          OSError: this process can have no more sockets, or `host` is no address here,
            such as one of an interface that only others have.
        """
        self._ready = ready
        self._answered = answered
        self._greets = greets
        self._heard = b""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._code = self._socket.connect_ex((host, port))
        except BaseException:
            self._socket.close()
            raise
        if self._code in (0, errno.EINPROGRESS):
            ready.watch(self._socket.fileno(), self._finish, select.EPOLLOUT)
        else:
            ready.soon(self._answer)

    def _finish(self) -> None:
        self._code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not self._code and _is_itself(self._socket):
            self._code = REFUSED
        if self._code or not self._greets:
            self._answer()
            return
        self._ready.unwatch(self._socket.fileno())
        self._ready.watch(self._socket.fileno(), self._read)
        with contextlib.suppress(OSError):  # it has hung up, and `_read` finds that
            self._socket.send(_GREETING)  # there is room in a new connection

    def _read(self) -> None:
        try:
            data = self._socket.recv(len(_GREETING) - len(self._heard))
        except OSError:
            data = b""
        self._heard += data
        if len(self._heard) == len(_GREETING):
            if self._heard[_MECHANISM] == _GREETING[_MECHANISM]:
                self._code = CURVE
        elif data:
            return
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
