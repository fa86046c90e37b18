# SPDX-License-Identifier: MIT
"""Messages that wait until their channel has room for them.

A channel whose peer does not read is closed once 64 MiB wait in it, and with it ends
all that the peer does for this side. The arguments of a few constructors are as large,
and no sign of anything: they wait here meanwhile.

Invariants:

* Messages go to the channel in the order posted.
* At most `_MOST_QUEUED` bytes of them wait in the channel, beside one message.
* A message that cannot be sent at all is refused when it is posted.
* The messages that wait here are bounded, but for messages that are `patient`: the
  sender keeps what is in these anyway, and their parcels are no copies. Past that bound
  the peer counts as one that does not read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mooactor.control.messages import Message
from mooactor.control.reliable import MAX_QUEUED, Data
from mooactor.host.eventloop import EventLoop
from mooactor.process.parcel import contents

if TYPE_CHECKING:  # it loads ZeroMQ, for which an agent alone has no use
    from mooactor.control.channel import Channel

_MOST_QUEUED = 1 << 24
_RETRY_S = 0.02


class _Waiting(NamedTuple):
    """A message, encoded."""

    parts: list[Data]
    counted: int  # bytes, if it is not patient


class Outbox:
    """Of one channel."""

    def __init__(self, channel: Channel, loop: EventLoop) -> None:
        self._channel = channel
        self._loop = loop
        self._waiting: deque[_Waiting] = deque()
        self._impatient = 0  # bytes of those that are not patient

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def reached(self) -> bool:
        """Whether the channel has ever stood."""
        return bool(self._channel.peer)

    def post(
        self, message: Message, fds: Sequence[int] = (), *, patient: bool = False
    ) -> None:
        """Send a message after all earlier ones; never blocks. The contents of `fds`
        become its parcels; the descriptors stay the caller's.

        Raises:
          Unsendable: see `Channel.post`.
          OSError: a parcel cannot be read.
        """
        parts = self._channel.encoded(message, [contents(fd) for fd in fds])
        if not self._channel.is_open:
            return
        if not self._waiting and self._has_room():
            self._channel.post_encoded(parts)
            return
        if not self._waiting:
            self._loop.later(_RETRY_S, self._drain)
        counted = 0 if patient else sum(map(len, parts))
        self._waiting.append(_Waiting(parts, counted))
        self._impatient += counted
        if self._impatient > MAX_QUEUED:
            waiting = self._impatient
            self._clear()
            self._channel.fail(
                f"{self._channel.address} does not read what it is sent: "
                f"{waiting} bytes wait for it"
            )

    def _has_room(self) -> bool:
        return self._channel.queued <= _MOST_QUEUED

    def _drain(self) -> None:
        if not self._channel.is_open:
            self._clear()
        while self._waiting and self._has_room():
            first = self._waiting.popleft()
            self._impatient -= first.counted
            self._channel.post_encoded(first.parts)
        if self._waiting:
            self._loop.later(_RETRY_S, self._drain)

    def _clear(self) -> None:
        self._waiting.clear()
        self._impatient = 0

    def close(self, last: Message | None = None) -> None:
        """Drop what waits; send `last` before the end of the channel, if that is open
        still."""
        self._clear()
        if last is not None:
            self._channel.post(last)
        self._channel.close()
