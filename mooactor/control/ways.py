# SPDX-License-Identifier: MIT
"""Ways: the TCP connections of one process to processes of other hosts.

A way is one DEALER at a time, and a DEALER is one TCP connection: ZeroMQ's own
reconnecting is off, because it is silent, and what a broken connection had under way is
lost. So what arrives of one connection is a beginning of what was sent over it, without
gaps. The invariants:

* Records wait in their outbox until the handshake has succeeded. A connection that
  never came up has lost nothing.
* A connection that was up and broke, which the socket's monitor tells, may have lost
  what was sent over it. `process.peers` tells the other side over the next one, and
  both end what was under way between them.
* The next connection has the next *epoch*, which is in the prefix of each of its
  messages. So what still arrives of the earlier one, behind later messages, is known
  and dropped (see `epochs`).
* A way that cannot be connected for `WAY_PATIENCE_S`, or `BUSY_PATIENCE_S`, drops what
  waits, which was never sent, and says so in the same manner. The agents tell the other
  side, which may never hear of it otherwise. It goes on trying until the process is
  known to be dead.

TCP itself repairs what is shorter than `DEAD_PATH_MS`: within that time everything
arrives, in order. A stopped process breaks nothing, as long as the kernels have room
for what is sent to it.

Threads: the housekeeper's, for all methods but `known`; `close` after its end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import zmq

from mooactor.control import curve
from mooactor.control.clock import Clock
from mooactor.control.envelope import next_epoch, prefix
from mooactor.control.sockets import events_of, monitored, unmonitor
from mooactor.times import (
    BUSY_PATIENCE_S,
    DEAD_PATH_MS,
    WAY_CONNECT_MS,
    WAY_HANDSHAKE_MS,
    WAY_PATIENCE_S,
)

if TYPE_CHECKING:
    from mooactor.control.messenger import Peer

# Keepalive: as long as `DEAD_PATH_MS`, of an idle connection.
_IDLE_S, _ASK_EVERY_S, _ASKS = 4, 2, 3
#: The parts of a message over TCP: a listener takes no larger ones, so that a stranger
#: cannot make it keep much.
PART_BYTES = 256 << 10
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 1.0

_UP = zmq.EVENT_HANDSHAKE_SUCCEEDED
_DOWN = (
    zmq.EVENT_CLOSED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_WHY = {
    zmq.EVENT_CLOSED: "nobody takes the connection",
    zmq.EVENT_DISCONNECTED: "the connection broke",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "it ended during the handshake",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "somebody else answers there",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "it belongs to another session",
}


class Keeper(Protocol):
    """The housekeeper, as ways see it."""

    clock: Clock

    def watch(self, fd: int, action: Callable[[], None]) -> None: ...
    def unwatch(self, fd: int) -> None: ...
    def after(self, seconds: float, action: Callable[[], None]) -> None: ...


class Way:
    """To one process. ``epoch`` is that of the present connection, or of the next."""

    def __init__(self, peer: Peer, host: str, address: str, now: float) -> None:
        self.peer = peer
        self.host = host
        self.address = address
        self.epoch = 1
        self.up = False
        self.stood = False  # something may have been sent
        self.closed = False
        self.socket: zmq.Socket[bytes] | None = None
        self.monitor: zmq.Socket[bytes] | None = None
        self.pause_s = _FIRST_PAUSE_S
        self.trying_since = now
        self.failure = ""  # why it was given up the last time

    def close(self, linger_ms: int) -> None:
        """Close the present connection, which the outbox does not use any more.

        The sender of events comes first: libzmq's I/O thread blocks on each event that
        it sends, and would do so for ever when nobody can receive it.
        """
        socket, self.socket = self.socket, None
        monitor, self.monitor = self.monitor, None
        self.up = False
        if socket is not None and monitor is not None:
            unmonitor(socket, monitor)
        if socket is not None:
            socket.close(linger=linger_ms)


class Ways:
    """All of one process, by the id of the process that they lead to."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        process_id: int,
        key: bytes,
        keeper: Keeper,
        broke: Callable[[int, str, bool | None], None],
        stands: Callable[[int], None],
    ) -> None:
        """`broke`: called with a process, the reason, and whether what was sent to it
        has arrived: None if that is unknown, False if it was not sent. `stands`: called
        with a process to which there is a connection now."""
        self._context = context
        self._me = process_id
        self._key = key
        self._keeper = keeper
        self._now = keeper.clock.now
        self._broke = broke
        self._stands = stands
        self._ways: dict[int, Way] = {}
        self.breaks = 0  # connections that broke, so far

    def known(self, process_id: int) -> Way | None:
        """The way to a process of another host, once it is located."""
        return self._ways.get(process_id)

    def __len__(self) -> int:
        return len(self._ways)

    # -- connecting --------------------------------------------------------

    def open(self, peer: Peer, host: str, address: str) -> None:
        """Connect to the process of `peer`, which is on `host`."""
        if peer.process_id not in self._ways:
            way = self._ways[peer.process_id] = Way(peer, host, address, self._now())
            self._dial(way)

    def _dial(self, way: Way) -> None:
        if way.closed:
            return
        try:
            self._connect(way)
        except zmq.ZMQError as error:  # there are no descriptors left
            self._try_later(way, str(error), WAY_PATIENCE_S)
            return
        self._listen(way)  # the monitor's descriptor tells of news only once

    def _connect(self, way: Way) -> None:
        socket = way.socket = self._dealer(way.address)
        monitor = way.monitor = monitored(self._context, socket, _UP | _DOWN)
        listen = partial(self._listen, way)
        self._keeper.watch(int(monitor.getsockopt(zmq.FD)), listen)
        socket.connect(way.address)

    def _dealer(self, address: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.DEALER)
        for option, value in (
            (zmq.SNDHWM, 0),
            (zmq.LINGER, 0),
            (zmq.RECONNECT_IVL, -1),
            (zmq.IPV6, int("[" in address)),
            (zmq.CONNECT_TIMEOUT, WAY_CONNECT_MS),
            (zmq.HANDSHAKE_IVL, WAY_HANDSHAKE_MS),
        ):
            socket.setsockopt(option, value)
        expect_dead_paths(socket)
        curve.make_client(socket, self._key)
        return socket

    # -- what the monitor tells --------------------------------------------

    def _listen(self, way: Way) -> None:
        monitor = way.monitor
        if monitor is None:
            return
        for event, _ in events_of(monitor):
            self._on_event(way, event)
            if monitor is not way.monitor:
                return

    def _on_event(self, way: Way, event: int) -> None:
        if event == _UP:
            self._came_up(way)
        elif way.up and event == zmq.EVENT_DISCONNECTED:
            self._break(way)
        elif not way.up and event & _DOWN:
            busy = event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
            patience_s = BUSY_PATIENCE_S if busy else WAY_PATIENCE_S
            self._try_later(way, _WHY[zmq.Event(event)], patience_s)

    def _came_up(self, way: Way) -> None:
        assert way.socket is not None
        head = prefix(self._key, self._me, way.epoch)
        try:
            connected = way.peer.connect(way.socket, head, PART_BYTES)
        except MemoryError as error:
            self._try_later(way, str(error), WAY_PATIENCE_S)
            return
        if not connected:
            self._hang_up(way)  # its outbox is closed; `forget` follows
            return
        way.up = way.stood = True
        way.pause_s = _FIRST_PAUSE_S
        self._stands(way.peer.process_id)

    def _break(self, way: Way) -> None:
        way.peer.hold()
        self._hang_up(way)
        self.breaks += 1
        way.epoch = next_epoch(way.epoch)
        way.trying_since = self._now()
        why = f"the connection to it at {way.address}, on host {way.host}, broke"
        self._broke(way.peer.process_id, why, None)
        self._dial(way)

    def _try_later(self, way: Way, why: str, patience_s: float) -> None:
        self._hang_up(way)
        now = self._now()
        if now - way.trying_since > patience_s:
            self._give_up(way, why, now - way.trying_since)
        self._keeper.after(way.pause_s, partial(self._dial, way))
        way.pause_s = min(2 * way.pause_s, _LONGEST_PAUSE_S)

    def _give_up(self, way: Way, why: str, tried_s: float) -> None:
        way.peer.drop()
        way.epoch = next_epoch(way.epoch)  # records were dropped
        way.trying_since = self._now()
        way.failure = why
        text = (
            f"no connection to it at {way.address}, on host {way.host}, in "
            f"{tried_s:.0f} s ({why})"
        )
        self._broke(way.peer.process_id, text, False)

    def _hang_up(self, way: Way) -> None:
        """Close the present connection; its outbox does not use it (any more)."""
        if way.monitor is not None:
            self._keeper.unwatch(int(way.monitor.getsockopt(zmq.FD)))
        way.close(linger_ms=0)

    # -- the end -----------------------------------------------------------

    def forget(self, process_id: int) -> None:
        """That process is gone; its outbox is about to be closed."""
        way = self._ways.pop(process_id, None)
        if way is not None:
            way.closed = True
            way.peer.hold()
            self._hang_up(way)

    def close(self, linger_ms: int) -> None:
        """Let go of all; what was sent has `linger_ms` to leave."""
        for way in self._ways.values():
            way.closed = True
            way.peer.hold()
            way.close(linger_ms if way.up else 0)
        self._ways.clear()


def expect_dead_paths(socket: zmq.Socket[Any]) -> None:
    """Have TCP notice within `DEAD_PATH_MS` that nothing gets through any more."""
    for option, value in (
        (zmq.TCP_KEEPALIVE, 1),
        (zmq.TCP_KEEPALIVE_IDLE, _IDLE_S),
        (zmq.TCP_KEEPALIVE_INTVL, _ASK_EVERY_S),
        (zmq.TCP_KEEPALIVE_CNT, _ASKS),
        (zmq.TCP_MAXRT, DEAD_PATH_MS),
    ):
        socket.setsockopt(option, value)
