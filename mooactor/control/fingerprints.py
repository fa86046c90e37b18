# SPDX-License-Identifier: MIT
"""Fingerprints of keys, and the question for another side's.

CURVE tells neither side which key the other one holds, only that the handshake failed.
So a side that has failed asks by UDP, at the same address and port, and names its own
fingerprint::

    question  b"moo-key?"  nonce: 8 bytes  fingerprint: 4 bytes
    answer    b"moo-key!"  the same nonce  fingerprint: 4 bytes

Nobody proves anything here: an answer decides on what an error says, and on how soon it
is raised. The answer is as long as the question, so a node sends nobody more than what
was sent in their name.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import socket
import struct
from collections.abc import Callable

from mooactor.control import addresses
from mooactor.control.clock import Clock
from mooactor.control.readiness import Readiness

#: In the reason why a channel has ended: no attempt with this side's key will do.
OTHER_KEY = "it holds another key"
_QUESTION, _ANSWER = b"moo-key?", b"moo-key!"
_FORM = struct.Struct("!8s8s4s")
_BATCH = 64  # questions that are answered in one turn
_MOST_HEARD = 100  # that are told of
_FORGET_S = 3600.0  # then they are told of again


def of(secret: bytes) -> str:
    """Eight hex digits to compare keys by. They do not help to find the key."""
    return hashlib.blake2b(secret, digest_size=4, person=b"moo-fingerprint").hexdigest()


def difference(own: str, theirs: str | None) -> str:
    """The reason why a channel has ended; `theirs`: None if it has not answered."""
    if theirs is not None:
        return f"{OTHER_KEY}, {theirs}, and this side {own}"
    return (
        f"{OTHER_KEY} than this side, which has {own}; `mooactor keygen --show` there "
        "says which"
    )


def pack(kind: bytes, nonce: bytes, fingerprint: str) -> bytes:
    return _FORM.pack(kind, nonce, bytes.fromhex(fingerprint))


def read(kind: bytes, data: bytes) -> tuple[bytes, str] | None:
    """The nonce and the fingerprint of a datagram; None if it is no such one."""
    if len(data) != _FORM.size:
        return None
    found, nonce, fingerprint = _FORM.unpack(data)
    return (nonce, fingerprint.hex()) if found == kind else None


class Question:
    """Asked once. `answered` is called with the fingerprint, from the loop, at most
    once; never if the question or the answer is lost."""

    def __init__(
        self,
        ready: Readiness,
        own: str,
        target: tuple[str, int],
        answered: Callable[[str], None],
    ) -> None:
        """Raises OSError: there is no way there, or no descriptor left."""
        self._ready, self._answered = ready, answered
        self._nonce = secrets.token_bytes(8)
        self._socket = _datagrams(target[0])
        try:
            # Not connected: a node on all addresses may answer from another one.
            self._socket.sendto(pack(_QUESTION, self._nonce, own), _numeric(*target))
        except BaseException:
            self._socket.close()
            raise
        ready.watch(self._socket.fileno(), self._read)

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            found = read(_ANSWER, self._socket.recv(2 * _FORM.size))
            if found is not None and found[0] == self._nonce:
                self.close()
                self._answered(found[1])

    def close(self) -> None:
        """No answer is wanted any more."""
        if self._socket.fileno() >= 0:
            self._ready.unwatch(self._socket.fileno())
            self._socket.close()


class Answers:
    """Answers questions at the port of a node. `heard` gets the host and the
    fingerprint of each that has another key, at most `_MOST_HEARD` in an hour."""

    def __init__(
        self,
        ready: Readiness,
        clock: Clock,
        own: str,
        where: tuple[str, int],
        heard: Callable[[str, str], None],
    ) -> None:
        """Raises OSError: another program has that port of UDP."""
        self._ready, self._now, self._own, self._heard = ready, clock.now, own, heard
        self._told: set[tuple[str, str]] = set()
        self._forget_at = self._now() + _FORGET_S
        host, port = where
        if host == addresses.EVERY:
            host = "::" if addresses.has_ipv6() else "0.0.0.0"
        self._socket = _datagrams(host)
        try:
            if host == "::":
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            self._socket.bind(_numeric(host, port))
        except BaseException:
            self._socket.close()
            raise
        ready.watch(self._socket.fileno(), self._read)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # no more, or the answer has no way
            for _ in range(_BATCH):
                data, source = self._socket.recvfrom(2 * _FORM.size)
                if (found := read(_QUESTION, data)) is not None:
                    nonce, theirs = found
                    if theirs != self._own:
                        self._tell(source[0].removeprefix("::ffff:"), theirs)
                    self._socket.sendto(pack(_ANSWER, nonce, self._own), source)

    def _tell(self, host: str, theirs: str) -> None:
        if self._now() >= self._forget_at:
            self._told.clear()
            self._forget_at = self._now() + _FORGET_S
        if (host, theirs) not in self._told and len(self._told) < _MOST_HEARD:
            self._told.add((host, theirs))
            self._heard(host, theirs)

    def close(self) -> None:
        self._ready.unwatch(self._socket.fileno())
        self._socket.close()


def _datagrams(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)


def _numeric(host: str, port: int) -> tuple[object, ...]:
    """As the kernel takes it; an address of IPv6 may have a zone."""
    flags = socket.AI_NUMERICHOST
    return socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=flags)[0][4]
