# SPDX-License-Identifier: MIT
"""The ROUTER of a node, and the channels that it has accepted.

libzmq says by which descriptor a connection has ended, and by which one each frame came
(ZMQ_SRCFD). Numbers of descriptors are used again, so the events of the ROUTER's
monitor are read before a HELLO is acted on: libzmq's one thread tells of a connection
before it hands on its frames. If the number belongs to a later connection by then, the
earlier one is known to be gone by the WELCOME, which cannot be sent over it: libzmq's
thread has told the ROUTER so before it accepted the later one. Invariant: a descriptor
stands for the connection that has it now.

When the connection of an `IncomingChannel` breaks, the other side connects again;
meanwhile its kernel may say that it is gone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import zmq

from mooactor.control import addresses, curve, frames
from mooactor.control.channel import Channel, Keeper, Listener, Terms
from mooactor.control.outgoing import FIRST_DELAY_S, LONGEST_DELAY_S, REFUSED, Probe
from mooactor.control.readiness import TURN_S, Readiness
from mooactor.control.sockets import Socket, Sockets, events_of, has_news, unmonitor
from mooactor.control.unauthenticated import Unauthenticated


class Router:
    """`socket` is the user's to bind, watch and close."""

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self._swallowed = False

    def send(self, identity: bytes, frame: bytes) -> bool:
        """Queue a frame. False: there is no such connection any more."""
        self._swallowed = True
        try:
            curve.send(self.socket, (identity, frame))
        except zmq.ZMQError:
            return False
        return True

    def receive(self) -> tuple[bytes, list[zmq.Frame]]:
        """The next message: which connection it came over, and its parts.

        Raises:
          zmq.Again: there is none.
        """
        identity, *found = curve.receive(self.socket)
        return identity.bytes, found

    def catch_up(self) -> None:
        """Take note of all connections that have ended: `send` alone may look for such
        news a millisecond later."""
        has_news(self.socket)

    def has_missed(self) -> bool:
        """Whether something has come of which the descriptor does not tell: sending may
        have swallowed the sign. Ask after the last of several sends."""
        asked, self._swallowed = self._swallowed, False
        return asked and has_news(self.socket)


_PROBE_S = 0.5


class Route:
    """One connection to a ROUTER."""

    def __init__(self, router: Router, identity: bytes, fd: int) -> None:
        self.identity = identity
        self.fd = fd
        self._router = router

    def send(self, frame: bytes) -> bool:
        return self._router.send(self.identity, frame)

    def sent(self) -> None:
        """The node looks after all of its ROUTER's connections at once."""


class IncomingChannel(Channel):
    """``tries`` is the number of the other side's attempt that it is connected by."""

    route: Route
    tries = 0

    def __init__(
        self,
        keeper: Keeper,
        ready: Readiness,
        key: bytes,
        hello: frames.Hello,
        came_from: str,
        terms: Terms,
        ended: Callable[[IncomingChannel], None],
    ) -> None:
        """`came_from`: the host that it connects from. `ended` is called in the end."""
        super().__init__(keeper, key, hello.address, terms)
        self.peer = hello.id
        self._ready = ready
        self._ended = ended
        self._where = _where_to_ask(hello.address)
        self._came_from = came_from
        self._asking_helps = False
        self._probe: Probe | None = None
        self._probe_at: float | None = None
        self._delay_s = FIRST_DELAY_S

    def welcome(self, route: Route, frame: frames.Frame, node_id: bytes) -> bool:
        """The other side has connected, perhaps again. False: that connection has ended
        already, or began against the protocol."""
        self.route = route
        self.tries = frame.number
        self._probe_at = None
        body = frames.Welcome(node_id)
        stands = route.send(
            frames.pack_struct(frames.WELCOME, self.key, body, taken=self._in.taken)
        )
        self.attach(route, frame.taken)
        if not stands:
            route.fd = -1  # the number may be another one's
            self.lost()
        return self.connected

    def accept(self, listener: Listener) -> None:
        """It is wanted here."""
        self._listener = listener
        if self._where is not None:
            self._find_out_whether_asking_helps(*self._where)

    def _find_out_whether_asking_helps(self, host: str, port: int) -> None:
        """Behind a translation of addresses another host may have that address here,
        and its refusal would say nothing."""
        if addresses.is_same(host, self._came_from):
            self._asking_helps = True
        else:
            self._ask(host, port)

    # -- while there is no connection --------------------------------------

    def _recover(self, now: float) -> None:
        self._delay_s = FIRST_DELAY_S
        self._probe_at = now if self._asking_helps else None

    def due(self) -> float | None:
        times = [super().due(), self._probe_at]
        return min((when for when in times if when is not None), default=None)

    def tick(self, now: float) -> None:
        super().tick(now)
        if self.why is None and self._probe_at is not None and now >= self._probe_at:
            assert self._where is not None
            self._ask(*self._where)
            self._probe_at = now + _PROBE_S

    def _ask(self, host: str, port: int) -> None:
        if self._probe is not None:
            self._probe.close()
        try:
            self._probe = Probe(self._ready, host, port, self._probed)
        except OSError:
            self._probe = None  # out of descriptors: nothing is known

    def _probed(self, code: int) -> None:
        self._probe = None
        self._asking_helps = self._asking_helps or code == 0
        if code == REFUSED and self._asking_helps and self._carrier is None:
            self.end(f"the process that listened at {self.address} has ended")
        elif self._probe_at is not None:
            self._probe_at = self._now() + self._delay_s
            self._delay_s = min(2 * self._delay_s, LONGEST_DELAY_S)
            self._keeper.watch(self)

    def _release(self) -> None:
        self._probe_at = None
        if self._probe is not None:
            self._probe.close()
            self._probe = None
        self._ended(self)


def _where_to_ask(address: str) -> tuple[str, int] | None:
    try:
        host, port = addresses.parse(address)
    except ValueError:
        return None
    return (host, port) if addresses.is_numeric(host) else None


MAX_CHANNELS = 1 << 14
_REMEMBERED = 1024  # channels that have ended, with the reason
_PARTING_MS = 100  # for last frames


class Acceptor:
    """The ROUTER of a node. Its `accept` decides on each new channel."""

    def __init__(
        self,
        node_id: bytes,
        keeper: Keeper,
        sockets: Sockets,
        ready: Readiness,
        terms: Terms,
    ) -> None:
        self._keeper = keeper
        self._ready = ready
        self._node_id = node_id
        self._terms = terms
        self._channels: dict[bytes, IncomingChannel] = {}
        self._ended: OrderedDict[bytes, str] = OrderedDict()
        self._standing: dict[int, IncomingChannel | None] = {}  # by descriptor
        self.unauthenticated = Unauthenticated()
        self._reads_soon = False
        self._router = Router(socket := sockets.listener(terms.beat_s))
        events = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
        try:
            self._monitor = sockets.monitor(socket, events)
        except BaseException:
            socket.close()
            raise
        self._fds = [int(s.getsockopt(zmq.FD)) for s in (socket, self._monitor)]
        for fd, action in zip(self._fds, (self._read, self._read_events)):
            ready.watch(fd, action)
            ready.soon(action)  # a socket tells of its first news to a reader only

    @property
    def connections(self) -> int:
        """TCP connections here, those that are no channel yet included."""
        return len(self._standing)

    def channels(self) -> list[IncomingChannel]:
        return list(self._channels.values())

    def bind(self, host: str, port: int | None, ports: Sequence[int] | None) -> int:
        """Listen; see `addresses.bind`."""
        self.unauthenticated.port = addresses.bind(
            self._router.socket, host, port, ports
        )
        return self.unauthenticated.port

    def close(self) -> None:
        for fd in self._fds:
            self._ready.unwatch(fd)
        unmonitor(self._router.socket, self._monitor)
        self._router.socket.close(linger=_PARTING_MS)

    # -- receiving ---------------------------------------------------------

    def _read_events(self) -> None:
        for event, fd in events_of(self._monitor):
            if event == zmq.EVENT_ACCEPTED:
                self._standing[fd] = None
                self.unauthenticated.add(fd)
            else:
                self._ended_connection(fd)

    def _ended_connection(self, fd: int) -> None:
        self.unauthenticated.discard(fd)
        channel = self._standing.pop(fd, None)
        if channel is not None and channel.route.fd == fd:
            channel.lost()

    def all_sent(self) -> None:
        """The channels have sent what they had for now."""
        if self._router.has_missed():
            self._read_soon()

    def _read_soon(self) -> None:
        if not self._reads_soon:
            self._reads_soon = True
            self._ready.soon(self._read)

    def _read(self) -> None:
        self._reads_soon = False
        now = self._keeper.clock.now
        until = now() + TURN_S
        try:
            while now() < until:
                self._frame(*self._router.receive())
        except zmq.Again:
            return
        except BaseException:
            self._read_soon()
            raise
        self._read_soon()

    def _frame(self, identity: bytes, parts: Sequence[zmq.Frame]) -> None:
        if len(parts) != 1:
            return
        try:
            frame = frames.unpack(parts[0].bytes)
        except frames.Malformed:
            return  # it names no channel
        if frame.kind == frames.HELLO:
            self._hello(identity, frame, parts[0])
            return
        channel = self._channels.get(frame.channel)
        if channel is None:
            if frame.kind != frames.CLOSED:
                self._refuse(identity, frame.channel, self._why_not(frame.channel))
        elif channel.route.identity == identity:
            channel.receive(frame)

    def _refuse(self, identity: bytes, key: bytes, why: str) -> None:
        self._route(identity).send(frames.pack_why(frames.CLOSED, key, why))

    def _route(self, identity: bytes, fd: int = -1) -> Route:
        return Route(self._router, identity, fd)

    def _why_not(self, key: bytes) -> str:
        return self._ended.get(key, "this channel is not open here any more")

    def _hello(self, identity: bytes, frame: frames.Frame, part: zmq.Frame) -> None:
        self._read_events()
        fd = int(part.get(zmq.SRCFD))
        if fd not in self._standing:
            return  # it has ended already
        try:
            hello = frames.read_hello(frame)
        except frames.Malformed as error:
            self._refuse(identity, frame.channel, f"a malformed hello: {error}")
            return
        channel = self._channels.get(frame.channel)
        if channel is None:
            if why := self._objection(hello, frame.channel):
                self._refuse(identity, frame.channel, why)
                return
            came_from = str(part.get("Peer-Address"))
            channel = IncomingChannel(
                self._keeper,
                self._ready,
                frame.channel,
                hello,
                came_from,
                self._terms,
                self._forget,
            )
        if self._standing[fd] not in (None, channel):
            self._refuse(identity, frame.channel, "this connection has a channel")
        elif frame.number > channel.tries:  # else it is an old one, read late
            self._connect(channel, self._route(identity, fd), frame)

    def _objection(self, hello: frames.Hello, key: bytes) -> str | None:
        if hello.wire != frames.WIRE:
            return (
                f"it speaks version {frames.WIRE} {frames.OTHER_WIRE} and this side "
                f"version {hello.wire}: install one mooactor on all hosts"
            )
        if hello.peer not in (None, self._node_id):
            return "the process that listened there has ended, and another one does"
        if hello.peer is not None or key in self._ended:
            return self._why_not(key)
        if len(self._channels) >= MAX_CHANNELS:
            return f"it has {MAX_CHANNELS} channels already"
        return None

    def _connect(
        self, channel: IncomingChannel, route: Route, frame: frames.Frame
    ) -> None:
        if channel.key not in self._channels:
            accept = self._keeper.accept
            listener = None if accept is None else accept(channel)
            if listener is None:
                self._refuse(route.identity, channel.key, "it accepts no channel")
                return
            channel.accept(listener)
            self._channels[channel.key] = channel
        self._router.catch_up()
        if channel.welcome(route, frame, self._node_id):
            self._standing[route.fd] = channel
            self.unauthenticated.discard(route.fd)

    def _forget(self, channel: IncomingChannel) -> None:
        """A channel has ended."""
        if self._channels.pop(channel.key, None) is None:
            return
        if self._standing.get(channel.route.fd) is channel:
            self._standing[channel.route.fd] = None
            self.unauthenticated.add(channel.route.fd)
        self._ended[channel.key] = channel.why or ""
        if len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)
