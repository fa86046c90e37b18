# SPDX-License-Identifier: MIT
"""The side of a channel that opened it: it connects, and connects again.

A connection begins with the WELCOME, which tells where to go on. Nothing but a HELLO is
sent before.

Each `Attempt` to connect has a DEALER of its own, with a monitor, so no frame of one
connection can be sent over the next. libzmq does not say why it cannot connect; a
`Probe` does. A kernel that refuses a connection (RFC 9293, 3.10.7.1) says that the
process which listened there is gone. A greeting of ZMTP (RFC 37) says that one with
CURVE is there. Every other answer, and none, says nothing.
"""

from __future__ import annotations

import contextlib
import errno
import math
import select
import socket
from collections.abc import Callable
from functools import partial

import zmq

from mooactor.control import addresses, fingerprints, frames
from mooactor.control.channel import Channel, Keeper, Listener, Terms
from mooactor.control.clock import Clock
from mooactor.control.readiness import TURN_S, Readiness
from mooactor.control.reliable import WINDOW
from mooactor.control.secret import TURNED_DOWN
from mooactor.control.sockets import Sockets, events_of, has_news, unmonitor
from mooactor.times import (
    ATTEMPT_S,
    CHANNEL_SILENCE_S,
    CONNECT_MS,
    HANDSHAKE_MS,
    SHORTEST_CONNECT_MS,
)

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


_FRAMES_AT_A_TIME = 4 * WINDOW  # more than are under way
_HANDSHAKE_FAILURES = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_EVENTS = zmq.EVENT_CLOSED | zmq.EVENT_DISCONNECTED | _HANDSHAKE_FAILURES


class Attempt:
    """A connection, or the attempt at one."""

    def __init__(
        self,
        sockets: Sockets,
        ready: Readiness,
        clock: Clock,
        target: tuple[str, int],
        beat_s: float,
        connect_ms: int,
        arrived: Callable[[bytes], None],
        failed: Callable[[bool], None],
    ) -> None:
        """`connect_ms`: until the kernels are connected. `arrived` gets each frame.
        `failed` is called when the connection ends or does not come about: whether it
        was refused after the other side had answered.

        Raises:
          ZMQError: this process can have no more sockets.
        """
        self._ready = ready
        self._now = clock.now
        self._arrived = arrived
        self._failed = failed
        self._turned_down = False
        # An answer that comes no more is no refusal.
        self._turns_late = self._now() + HANDSHAKE_MS / 1000 / 2
        self._dealer = sockets.dealer(beat_s, connect_ms)
        try:
            self._monitor = sockets.monitor(self._dealer, _EVENTS)
        except BaseException:
            self._dealer.close(linger=0)
            raise
        host, _ = target
        self._dealer.setsockopt(zmq.IPV6, ":" in host)
        self._dealer.connect(addresses.form(*target))
        self._fds = [int(s.getsockopt(zmq.FD)) for s in (self._dealer, self._monitor)]
        for fd, action in zip(self._fds, (self._read, self._read_events)):
            ready.watch(fd, action)
            ready.soon(action)  # a socket tells of its first news to a reader only

    def send(self, frame: bytes) -> bool:
        try:
            self._dealer.send(frame, zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True

    def sent(self) -> None:
        # Sending may have swallowed the sign that something has come.
        if has_news(self._dealer):
            self._ready.soon(self._read)

    def _read(self) -> None:
        if self._read_until(self._now() + TURN_S):
            self._ready.soon(self._read)

    def _read_until(self, end: float) -> bool:
        """Hand on frames; whether there may be more."""
        for _ in range(_FRAMES_AT_A_TIME):
            if self._dealer.closed:
                return False
            try:
                frame = self._dealer.recv(zmq.NOBLOCK)
            except zmq.ZMQError:
                return False
            self._arrived(frame)
            if self._now() >= end:
                break
        return True

    def _read_events(self) -> None:
        if self._dealer.closed:
            return
        for event, _ in events_of(self._monitor):
            if event & _HANDSHAKE_FAILURES:
                self._turned_down = self._now() < self._turns_late
            else:
                self._ready.soon(self._finish)
                return

    def _finish(self) -> None:
        # libzmq tells of the end just before it hands on the last frames.
        self._read_until(math.inf)
        if not self._dealer.closed:
            self._failed(self._turned_down)

    def close(self, linger_ms: int = 0) -> None:
        if not self._dealer.closed:
            for fd in self._fds:
                self._ready.unwatch(fd)
            unmonitor(self._dealer, self._monitor)
            self._dealer.close(linger=linger_ms)


FIRST_DELAY_S = 0.01
LONGEST_DELAY_S = 0.1
_PARTING_MS = 200  # for a last frame
# Where handshakes fail for so long, and nobody says which key is there.
_UNANSWERED_S = 1.0


class OutgoingChannel(Channel):
    """``refused``: the last that is known of the address is that nothing listens there.
    The process is gone, or a firewall says so."""

    refused = False

    def __init__(
        self,
        keeper: Keeper,
        sockets: Sockets,
        ready: Readiness,
        key: bytes,
        address: str,
        listener: Listener,
        introduce: Callable[[str], tuple[bytes, str]],
        terms: Terms,
    ) -> None:
        """`introduce`: the id and the address of this node, towards a host.

        Raises:
          ValueError: `address` is none.
        """
        super().__init__(keeper, key, address, terms)
        self._sockets = sockets
        self._ready = ready
        self._listener = listener
        self._introduce = introduce
        self._host, self._port = addresses.parse(address)
        self._hosts = [self._host] if addresses.is_numeric(self._host) else []
        self._tries = 0
        self._attempt: Attempt | None = None
        self._attempt_ends = 0.0
        self._connect_ms = CONNECT_MS
        self._probe: Probe | None = None
        self._question: fingerprints.Question | None = None
        self._asked = ""  # the host that they ask
        self._theirs: str | None = None  # the fingerprint of the other side's key
        self._turned_down_at: float | None = None  # first, of those in a row
        self._delay_s = FIRST_DELAY_S
        self._dial_at: float | None = None
        self._obstacle = "it does not answer"
        if self._hosts:
            self._dial()
        else:
            self._look_up()

    def _look_up(self) -> None:
        self._obstacle = f"no address was found for the name {self._host}"

        def hand_over(found: list[str]) -> None:  # in another thread
            self._ready.soon(partial(self._found, found))

        addresses.look_up(self._host, self._port, hand_over)

    def _found(self, hosts: list[str]) -> None:
        if self.why is None and hosts:
            self._hosts = hosts
            self._obstacle = "it does not answer"
            self._dial()
            self._keeper.watch(self)

    def due(self) -> float | None:
        times = (super().due(), self._dial_due())
        return min((when for when in times if when is not None), default=None)

    def _dial_due(self) -> float | None:
        if self._attempt is None or self._carrier is not None:
            return self._dial_at
        return self._attempt_ends

    def tick(self, now: float) -> None:
        super().tick(now)
        if self.why is not None:
            return
        due = self._dial_due()
        if due is not None and now >= due:
            self._dial()

    def _target(self) -> tuple[str, int]:
        return self._hosts[self._tries % len(self._hosts)], self._port

    def _dial(self) -> None:
        self._drop_attempt()
        self._dial_at = None
        self._tries += 1
        self._attempt_ends = self._now() + ATTEMPT_S
        try:
            self._attempt = Attempt(
                self._sockets,
                self._ready,
                self._keeper.clock,
                self._target(),
                self._beat_s,
                self._connect_ms,
                self._arrived,
                self._failed,
            )
        except zmq.ZMQError as error:
            self._obstacle = f"this process can open no connection: {error.strerror}"
            self._dial_at = self._now() + LONGEST_DELAY_S
        else:
            self._attempt.send(self._hello())

    def _hello(self) -> bytes:
        node_id, address = self._introduce(self._target()[0])
        body = frames.Hello(frames.WIRE, node_id, address, self.peer or None)
        return frames.pack_struct(
            frames.HELLO, self.key, body, self._tries, self._in.taken
        )

    def _arrived(self, data: bytes) -> None:
        try:
            frame = frames.unpack(data)
            if frame.channel != self.key:
                return
            if frame.kind == frames.WELCOME:
                self._welcome(frame)
            elif self._carrier is None and frame.kind != frames.CLOSED:
                raise frames.Malformed(f"a frame of kind {frame.kind} as its first")
            else:
                self.receive(frame)
        except frames.Malformed as error:
            self.fail(f"{self.address} broke the protocol: {error}")

    def _welcome(self, frame: frames.Frame) -> None:
        peer = frames.read_welcome(frame)
        if self._carrier is not None or self._attempt is None:
            raise frames.Malformed("a second welcome")
        if self.peer not in (b"", peer):
            self.end(self._gone())
            return
        self.peer, self.refused = peer, False
        self._hosts = [self._target()[0]]  # the name may stand for other hosts, too
        self._delay_s = FIRST_DELAY_S
        took_s = self._now() - (self._attempt_ends - ATTEMPT_S)
        wanted_ms = max(SHORTEST_CONNECT_MS, round(took_s * 1000))
        self._connect_ms = min(wanted_ms, CONNECT_MS)
        self._stop_asking()  # a lost question would keep its socket
        self.attach(self._attempt, frame.taken)

    def _gone(self) -> str:
        return f"the process that listened at {self.address} has ended"

    def _failed(self, turned_down: bool) -> None:
        stood = self._carrier is not None
        self._drop_attempt()
        if stood:
            self.lost()
            return
        if not turned_down:
            self._turned_down_at = None
        elif self._turned_down_at is None:
            self._obstacle, self._turned_down_at = TURNED_DOWN, self._now()
        self._dial_at = self._now() + self._delay_s
        self._delay_s = min(2 * self._delay_s, LONGEST_DELAY_S)
        self._ask_why()
        self._keeper.watch(self)

    def _recover(self, now: float) -> None:
        self._drop_attempt()
        self._dial_at = now

    def _ask_why(self) -> None:
        self._stop_asking()
        target, suspected = self._target(), self._turned_down_at is not None
        self._asked = target[0]
        with contextlib.suppress(OSError):  # out of descriptors: nothing is known
            self._probe = Probe(self._ready, *target, self._probed, greets=suspected)
            if not self.peer:
                own = self._sockets.fingerprint
                question = fingerprints.Question(
                    self._ready, own, target, self._answered
                )
                self._question = question

    def _stop_asking(self) -> None:
        for asking in (self._probe, self._question):
            if asking is not None:
                asking.close()
        self._probe = self._question = None

    def _answered(self, theirs: str) -> None:
        self._question, self._theirs = None, theirs
        if theirs != self._sockets.fingerprint:
            self._other_key()

    def _other_key(self) -> None:
        if self.peer or self.why is not None:
            return
        if len(self._hosts) > 1:  # of a name: another one may have this side's key
            self._hosts = [host for host in self._hosts if host != self._asked]
            self._theirs = self._turned_down_at = None
            return
        self.end(fingerprints.difference(self._sockets.fingerprint, self._theirs))

    def _probed(self, code: int) -> None:
        self._probe = None
        since = self._turned_down_at
        if code == CURVE and self._theirs is None and since is not None:
            if self._now() - since >= _UNANSWERED_S:
                self._other_key()
            return
        self.refused = code == REFUSED
        if code != REFUSED or self._carrier is not None or self.why is not None:
            return
        if self.peer:
            self.end(self._gone())
        else:
            self._obstacle = "nothing listens there"

    def _silence(self) -> str:
        if self.peer:
            return super()._silence()
        return f"no answer from {self.address} within {CHANNEL_SILENCE_S:g} s: " + (
            self._obstacle
        )

    def _leave(self, why: str) -> None:
        if self._attempt is not None:  # its HELLO may be on the way
            self._attempt.send(frames.pack_why(frames.CLOSE, self.key, why))
        super()._leave(why)

    def _drop_attempt(self, linger_ms: int = 0) -> None:
        if self._attempt is not None:
            self._attempt.close(linger_ms)
            self._attempt = None

    def _release(self) -> None:
        self._drop_attempt(_PARTING_MS)
        self._dial_at = None
        self._stop_asking()
