# SPDX-License-Identifier: MIT
"""A node: one process's part in the network between hosts.

Agents, brokers and commands are nodes. Each listens at an address of its own, and opens
channels to others (`control.channel` states what these promise). All TCP connections
are encrypted and authenticated with keys derived from one secret (`control.curve`).

A node belongs to one thread and to its event loop: watch `fileno`, and call `serve`
when it is readable, and at the time of `due` at the latest. ::

    node = Node(secret, bind="10.0.0.5")
    node.accept = lambda channel: listener
    channel = node.connect("tcp://10.0.0.7:4431", listener)
    channel.post(Watch())

It costs twelve descriptors, one more for each channel that it has accepted and four for
each that it has opened.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence

from mooactor.control import addresses, frames
from mooactor.control.acceptor import Acceptor
from mooactor.control.channel import Accept, Channel, Listener, Terms
from mooactor.control.clock import REAL, Clock
from mooactor.control.fingerprints import Answers
from mooactor.control.outgoing import OutgoingChannel
from mooactor.control.readiness import TURN_S, Readiness
from mooactor.control.reliable import MAX_MESSAGE
from mooactor.control.sockets import Sockets
from mooactor.times import CHANNEL_BEAT_S


class Node:
    """``id`` is this node's incarnation: 8 random bytes. ``address`` is where others
    reach it, ``accept`` decides on channels that they open: it returns the listener of
    a channel, or None to refuse it. While it is None all are refused."""

    def __init__(
        self,
        secret: bytes,
        *,
        bind: str = "127.0.0.1",
        port: int | None = None,
        ports: Sequence[int] | None = None,
        advertise: str | None = None,
        beat_s: float = CHANNEL_BEAT_S,
        late_acks: bool = False,
        most_bytes: int = MAX_MESSAGE,
        clock: Clock = REAL,
    ) -> None:
        """Listen.

        Args:
          secret: what all nodes of the cluster hold; 16 bytes or more.
          bind: a numeric address of this host, or ``*`` for all of them.
          port: the one to listen on; else the first free one of `ports`; else any.
          advertise: the host that others are told; by default `bind`, or if that is
            ``*`` that of the interface towards the first other host connected to.
          beat_s: seconds between heartbeats on each connection. 0: this side sends
            none, and the kernel finds out about a vanished host some seconds later.
            That is for a node with thousands of channels: 500 channels with heartbeats
            take 4 % of a core.
          late_acks: on the channels that it accepts; see `control.channel`.
          most_bytes: of a message over these.
          clock: for all that is about time, but for heartbeats, which are libzmq's.

        Raises:
          MooError: no port is free, the host has no such address, libzmq has no CURVE,
            or this process has too few descriptors left.
        """
        self.clock = clock
        self.accept: Accept | None = None
        self.id = secrets.token_bytes(frames.ID_BYTES)
        self._beat_s = beat_s
        terms = Terms(beat_s, late_acks, most_bytes)
        self._bind = bind
        self._advertised = advertise or (None if bind == addresses.EVERY else bind)
        self._seen: str | None = None  # the interface towards the first other host
        self._dirty: set[Channel] = set()
        self._with_news: OrderedDict[Channel, None] = OrderedDict()
        self._restless: set[Channel] = set()  # those with something due
        self._outgoing: set[OutgoingChannel] = set()
        self._closed = False
        with contextlib.ExitStack() as made:
            self._sockets = Sockets(secret)
            made.callback(self._sockets.close)
            self._ready = Readiness()
            made.callback(self._ready.close)
            gate = self._sockets.gate
            self._ready.watch(gate.fileno(), gate.serve)
            self._ready.soon(gate.serve)
            self._acceptor = Acceptor(self.id, self, self._sockets, self._ready, terms)
            made.callback(self._acceptor.close)
            self.port = self._acceptor.bind(bind, port, ports)
            self._made = made.pop_all()

    def __repr__(self) -> str:
        return f"<Node {self.id.hex()[:8]} at {self.address}>"

    # -- for its user ------------------------------------------------------

    @property
    def address(self) -> str:
        host = self._advertised or self._seen or addresses.own()
        return addresses.form(host, self.port)

    def connect(
        self,
        address: str,
        listener: Listener,
        *,
        beat_s: float | None = None,
        late_acks: bool = False,
    ) -> OutgoingChannel:
        """Open a channel; returns at once. If nobody answers within the patience, the
        listener hears that it is closed, and why.

        Args:
          address: ``tcp://HOST:PORT``; HOST may be a name.
          beat_s: seconds between heartbeats, if not as the node has it.
          late_acks: see `control.channel`.

        Raises:
          ValueError: `address` is none.
        """
        channel = OutgoingChannel(
            self,
            self._sockets,
            self._ready,
            secrets.token_bytes(frames.KEY_BYTES),
            address,
            listener,
            self._introduce,
            Terms(self._beat_s if beat_s is None else beat_s, late_acks),
        )
        self._outgoing.add(channel)
        self.watch(channel)
        return channel

    def tell_fingerprint(self, heard: Callable[[str, str], None]) -> None:
        """Answer programs that hold another key, as `fingerprints.Answers` says. It
        costs one more descriptor.

        Raises:
          OSError: another program has the port, of UDP.
        """
        own, where = self._sockets.fingerprint, (self._bind, self.port)
        answers = Answers(self._ready, self.clock, own, where, heard)
        self._made.callback(answers.close)

    def _introduce(self, host: str) -> tuple[bytes, str]:
        local = None if self._advertised else addresses.towards(host)
        if local is None:
            return self.id, self.address
        if self._seen is None and not addresses.is_loopback(local):
            self._seen = local
        return self.id, addresses.form(local, self.port)

    def channels(self) -> list[Channel]:
        """All that have not ended."""
        return [*self._outgoing, *self._acceptor.channels()]

    def statistics(self) -> dict[str, int]:
        """Numbers of what it has, and has done."""
        gate = self._sockets.gate
        return {
            "channels": len(self.channels()),
            "connections_in": self._acceptor.connections,
            "connections_turned_away": self._acceptor.unauthenticated.turned_away,
            "handshakes_admitted": gate.admitted,
            "handshakes_refused": gate.refused,
            "queued_bytes": sum(channel.queued for channel in self.channels()),
        }

    # -- the loop ----------------------------------------------------------

    def fileno(self) -> int:
        """Readable when there is something to serve."""
        return self._ready.fileno()

    def due(self) -> float | None:
        """The time of the clock at which `serve` must be called at the latest."""
        times = (channel.due() for channel in self._restless)
        return min((when for when in times if when is not None), default=None)

    def serve(self) -> None:
        """Act on what has come or is due, for some milliseconds; waits for nothing.
        `fileno` stays readable while there is more. Listeners are called from here. An
        exception of theirs passes through; nothing is lost by it.
        """
        try:
            self._ready.run()
            self._tick(self.clock.now())
            self._hand_on()
        finally:
            self._flush()

    def _tick(self, now: float) -> None:
        for channel in list(self._restless):
            due = channel.due()
            if due is None:
                self._restless.discard(channel)
            elif due <= now:
                channel.tick(now)

    def _hand_on(self) -> None:
        """Of each channel in turn one message, so that none waits for what has come
        over another one."""
        until = self.clock.now() + TURN_S
        while self._with_news:
            channel, _ = self._with_news.popitem(last=False)
            try:
                channel.deliver()
            finally:
                if channel.has_news:
                    self._with_news[channel] = None
            if self.clock.now() >= until:
                return

    def _flush(self) -> None:
        if self._closed:
            return
        dirty, self._dirty = self._dirty, set()
        for channel in dirty:
            channel.flush()
        self._acceptor.all_sent()
        if self._with_news or self._dirty:
            self._ready.soon(_nothing)

    def run_until(
        self, condition: Callable[[], object], timeout_s: float | None = None
    ) -> bool:
        """Serve until `condition` holds, for at most `timeout_s` of real time; whether
        it does. For programs without an event loop."""
        end = None if timeout_s is None else REAL.now() + timeout_s
        while True:
            self.serve()
            if condition():
                return True
            left = None if end is None else end - REAL.now()
            if left is not None and left <= 0:
                return False
            self._ready.wait(self._shorter(left))

    def _shorter(self, left: float | None) -> float | None:
        due = self.due()
        if due is None:
            return left
        wait = max(0.0, due - self.clock.now())
        return wait if left is None else min(wait, left)

    def close(self, linger_s: float = 0.5) -> None:
        """Close all channels and free everything; not from within `serve`.
        Messages that were posted before have `linger_s` to leave."""
        if self._closed:
            return
        self.accept = None
        for channel in self.channels():
            channel.close()
        self.run_until(lambda: not self.channels(), linger_s)
        for channel in self.channels():
            channel.end("its node was closed")
        self._closed = True
        self._made.close()

    # -- for channels ------------------------------------------------------

    def touch(self, channel: Channel) -> None:
        if not self._dirty:
            self._ready.soon(_nothing)  # `serve` ends with a flush
        self._dirty.add(channel)

    def tell(self, channel: Channel) -> None:
        if not self._with_news:
            self._ready.soon(_nothing)
        self._with_news.setdefault(channel)

    def watch(self, channel: Channel) -> None:
        if channel.why is not None and isinstance(channel, OutgoingChannel):
            self._outgoing.discard(channel)
        if channel.due() is None:
            self._restless.discard(channel)
        else:
            self._restless.add(channel)


def _nothing() -> None:
    """For `Readiness.soon`: `serve` is wanted."""
