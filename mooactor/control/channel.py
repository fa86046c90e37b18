# SPDX-License-Identifier: MIT
"""Channels: reliable, ordered messages between two nodes.

A channel is opened by one node (`Node.connect`) and accepted by another; after that
both sides are alike. It goes over one TCP connection, from the node that opened it: so
a node behind a firewall needs no way in, both directions break and heal together, and
a pair of nodes costs one handshake and one descriptor at the side that listens.

Guarantees:

* Each message is handled at most once, in the order posted, and none is lost while the
  channel is open: also if its connection breaks and a later one takes its place.
* A channel whose other side was not heard of for `CHANNEL_SILENCE_S` is closed, on both
  sides.
  A process that is busy or stopped for less is heard of, because libzmq's own thread
  speaks for it, or because it comes back in time.
* A process that has ended is known as soon as its kernel says so: its connection ends,
  and a new one is refused.
* A channel that is closed on one side never comes back: each frame of it is answered
  with CLOSED.
* The bytes that wait for the other side are bounded (`control.reliable`). A channel
  past that bound is closed with that reason.
* A listener that is slow slows the other side down: what has arrived is acknowledged
  once it is handled, and at most `WINDOW` pieces wait for that.

Acknowledgements go with what a side sends next, and alone if it has nothing to send.
With *late* ones it then waits until it has taken `LATE_PIECES`: that spares frames
where many channels carry a small message now and then. The other side keeps so many
pieces for longer, and its `delivered` may not come to hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from mooactor.control import frames, messages
from mooactor.control.clock import Clock
from mooactor.control.reliable import (
    MAX_MESSAGE,
    WINDOW,
    Data,
    Inflow,
    Outflow,
    Overflow,
    Violation,
)
from mooactor.control.sockets import unnoticed_s
from mooactor.times import CHANNEL_SILENCE_S

LATE_PIECES = 4  # that a side with late acknowledgements has taken when it tells so
LINGER_S = 1.0  # after `close`, for what was posted before


class Terms(NamedTuple):
    """How one side of a channel behaves.

    ``beat_s``: seconds between its heartbeats, 0 for none; ``late_acks``: see above;
    ``most_bytes``: of a message that it takes. A larger one ends the channel.
    """

    beat_s: float
    late_acks: bool = False
    most_bytes: int = MAX_MESSAGE


class Listener(Protocol):
    """The receiver of a channel's news. Both are called by `Node.serve` only, never
    from within `post` or `close`."""

    def handle(self, channel: Channel, data: bytes) -> None:
        """Act on a message: these are its bytes, from whoever holds the key."""

    def channel_closed(self, channel: Channel, why: str) -> None:
        """The channel has ended, and all its messages were handled. Called once, and
        not at all if this side has closed the channel itself."""


Accept: TypeAlias = "Callable[[Channel], Listener | None]"


class Carrier(Protocol):
    """A connection, as a channel sends over it."""

    def send(self, frame: bytes) -> bool:
        """Queue a frame. False: the connection is gone."""

    def sent(self) -> None:
        """That were all frames for now."""


class Keeper(Protocol):
    """The node that a channel belongs to."""

    clock: Clock
    accept: Accept | None

    def touch(self, channel: Channel) -> None:
        """Have `Channel.flush` called soon."""

    def tell(self, channel: Channel) -> None:
        """Have `Channel.deliver` called as long as it `has_news`."""

    def watch(self, channel: Channel) -> None:
        """`Channel.due` has changed."""


class Channel:
    """One side of it. Threads: the node's.

    ``peer`` is the id of the other node, empty until it has answered; ``address`` is
    where that node listens; ``why`` says why the channel has ended, and is None before.
    ``parted``: the other side has said that it closes the channel.
    """

    def __init__(self, keeper: Keeper, key: bytes, address: str, terms: Terms) -> None:
        self.key = key
        self.peer = b""
        self.address = address
        self.why: str | None = None
        self.parted = False
        self._keeper = keeper
        self._beat_s = terms.beat_s
        self._listener: Listener | None = None
        self._carrier: Carrier | None = None
        self._out = Outflow()
        self._in = Inflow(terms.most_bytes)
        self._told = 0  # pieces that the other side knows to be taken
        # So many are told in an ACK.
        self._untold = LATE_PIECES if terms.late_acks else 1
        self._end_told = False  # to the listener
        self._farewell: str | None = None  # this side has closed it, and says so
        self._farewell_sent = False  # over this connection
        self._now = keeper.clock.now
        self._heard = self._now()
        self._ends_at: float | None = self._heard + CHANNEL_SILENCE_S

    def __repr__(self) -> str:
        state = self.why or ("connected" if self.connected else "not connected")
        return f"<Channel {self.key.hex()[:8]} with {self.address}: {state}>"

    # -- for its user ------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self.why is None and self._farewell is None

    @property
    def connected(self) -> bool:
        """Whether its connection stands just now."""
        return self._carrier is not None

    @property
    def silent_s(self) -> float:
        """Seconds since anything was heard of the other side, at most: its heartbeats
        are heard while the connection stands."""
        if self._carrier is not None and self._beat_s:
            return 0.0
        return self._now() - self._heard

    @property
    def queued(self) -> int:
        """Bytes that wait for the other side, beside those under way."""
        return self._out.queued

    @property
    def posted(self) -> int:
        """Bytes that were posted in all."""
        return self._out.posted

    @property
    def handled(self) -> int:
        """Of these, bytes that the other side is known to have handled."""
        return self._out.taken

    @property
    def delivered(self) -> bool:
        """Whether the other side has told that it has handled all that was posted; also
        once the channel has ended."""
        return bool(self.peer) and self._out.all_taken

    def post(
        self, message: Any, parcels: Sequence[Data] = (), *, patient: bool = False
    ) -> None:
        """Send a message, as soon as the other side takes it; never blocks. A closed
        channel drops it. `parcels` become its last field. They are not copied, and must
        not change until they are sent. `patient`: it does not count as one that waits.

        Raises:
          Unsendable: see `control.messages`, or it is larger than 1 GiB.
        """
        parts = messages.encode_in_parts(message, parcels)
        size = sum(map(len, parts))
        if size > MAX_MESSAGE:
            what = type(message).__name__
            raise messages.Unsendable(
                f"a {what} of {size} bytes cannot be sent; {MAX_MESSAGE} fit"
            )
        self.post_encoded(parts, patient=patient)

    def post_encoded(self, parts: Sequence[Data], *, patient: bool = False) -> None:
        """As `post`, without an error."""
        if not self.is_open:
            return
        try:
            self._out.post(*parts, patient=patient)
        except Overflow as error:
            self.fail(f"{self.address} does not read what it is sent: {error}")
        else:
            self._keeper.touch(self)

    def close(self, why: str = "the other side has closed it") -> None:
        """Send what was posted before, for at most `LINGER_S`, then tell the other side
        `why` it ends. No news of the channel reaches its listener from now on."""
        if self._farewell is not None:
            return
        self._farewell = why
        if self.why is None and not self.peer and self._out.all_taken:
            self._leave(why)
        elif self.why is None:
            self._ends_at = self._now() + LINGER_S
            self._keeper.watch(self)
            self._keeper.touch(self)

    def _leave(self, why: str) -> None:
        """Close it before the other side has answered, with nothing posted."""
        self.end(why)

    # -- for the node ------------------------------------------------------

    def due(self) -> float | None:
        """When `tick` has to be called, if nothing happens before."""
        return self._ends_at if self.why is None else None

    def tick(self, now: float) -> None:
        """Act on what is due."""
        if self._ends_at is not None and now >= self._ends_at:
            self.end(self._silence())

    def _silence(self) -> str:
        return f"nothing was heard of {self.address} for {CHANNEL_SILENCE_S:g} s"

    @property
    def has_news(self) -> bool:
        """Whether `deliver` has something to do."""
        return bool(self._in) or (self.why is not None and not self._end_told)

    def deliver(self) -> None:
        """Hand the next message to the listener; after the last one, the end."""
        if not self._in:
            self._end_told = True
            if self._farewell is None and self._listener is not None:
                self._listener.channel_closed(self, self.why or "")
            return
        data = self._in.fetch()
        try:
            if self._farewell is None and self._listener is not None:
                self._listener.handle(self, data)
        finally:
            self._acknowledge()

    def flush(self) -> None:
        """Send all that may be sent now."""
        carrier = self._carrier
        if carrier is None:
            return
        for number, piece in self._out.pieces():
            if not self._send(frames.DATA, number, piece):
                return
        if self._owes_ack() and not self._send(frames.ACK):
            return
        if self._farewell is not None and self._out.all_sent:
            self._say_farewell(self._farewell)
        carrier.sent()

    def _owes_ack(self) -> bool:
        least = self._untold if self._farewell is None else 1
        return self._in.taken - self._told >= least

    def _send(self, kind: int, number: int = 0, body: Data = b"") -> bool:
        taken = self._in.taken
        frame = frames.pack(kind, self.key, number, taken, body)
        if self._carrier is None or not self._carrier.send(frame):
            self.lost()
            return False
        self._told = taken
        return True

    def _say_farewell(self, why: str) -> None:
        if self._carrier is not None and not self._farewell_sent:
            self._farewell_sent = True
            self._carrier.send(frames.pack_why(frames.CLOSE, self.key, why))
            self._carrier.sent()

    # -- connections -------------------------------------------------------

    def attach(self, carrier: Carrier, taken: int) -> None:
        """A connection stands, and the other side has taken so many pieces."""
        try:
            self._out.resume(taken)
        except Violation as error:
            self.fail(f"{self.address} broke the protocol: {error}")
            return
        self._carrier = carrier
        self._heard = self._now()
        self._farewell_sent = False
        if self._farewell is None:
            self._ends_at = None
        self._keeper.watch(self)
        self._keeper.touch(self)

    def lost(self) -> None:
        """The connection has broken."""
        if self._carrier is None:
            return
        self._carrier = None
        now = self._now()
        if self._beat_s:
            # It stood until then. Frames that came since do not say that the other side
            # hears this one: it may have gone on sending, until it gave up itself.
            self._heard = now - unnoticed_s(self._beat_s)
        if self._farewell is None:
            self._ends_at = max(now, self._heard + CHANNEL_SILENCE_S)
        self._recover(now)
        self._keeper.watch(self)

    def _recover(self, now: float) -> None:
        """Bring about another connection."""
        raise NotImplementedError

    def _release(self) -> None:
        """The channel has ended: free everything that it has."""
        raise NotImplementedError

    # -- frames ------------------------------------------------------------

    def receive(self, frame: frames.Frame) -> None:
        """Act on a frame of this channel."""
        if self.why is not None:
            return
        self._heard = self._now()
        act = _ACTIONS.get(frame.kind)
        try:
            if act is None:
                raise frames.Malformed(f"a frame of kind {frame.kind} at this point")
            act(self, frame)
        except (Violation, frames.Malformed) as error:
            self.fail(f"{self.address} broke the protocol: {error}")

    def _data(self, frame: frames.Frame) -> None:
        self._out.acknowledge(frame.taken)
        self._in.arrive(frame.number, frame.body)
        if self._in:
            self._keeper.tell(self)  # which acknowledges, and flushes
        else:
            self._acknowledge()

    def _acknowledge(self) -> None:
        """Tell what was taken: now if it is much, else with the next flush."""
        if self._in.taken - self._told >= WINDOW // 4:
            self.flush()
        else:
            self._keeper.touch(self)

    def _ack(self, frame: frames.Frame) -> None:
        self._out.acknowledge(frame.taken)
        if not self._out.all_sent or self._farewell is not None:
            self._keeper.touch(self)

    def _close(self, frame: frames.Frame) -> None:
        why = frames.read_why(frame)
        self.parted = True
        if self._carrier is not None:
            self._carrier.send(frames.pack_why(frames.CLOSED, self.key, why))
        self.end(why)

    def _closed(self, frame: frames.Frame) -> None:
        self.end(frames.read_why(frame))

    # -- the end -----------------------------------------------------------

    def fail(self, why: str) -> None:
        """End it, and tell the other side if there is a way."""
        self._say_farewell(why)
        self.end(why)

    def end(self, why: str) -> None:
        """It is over, on this side; the listener hears of it."""
        if self.why is not None:
            return
        self.why = why
        self._carrier = None
        self._release()
        self._keeper.watch(self)
        self._keeper.tell(self)


_ACTIONS: dict[int, Callable[[Channel, frames.Frame], None]] = {
    frames.DATA: Channel._data,
    frames.ACK: Channel._ack,
    frames.CLOSE: Channel._close,
    frames.CLOSED: Channel._closed,
}
