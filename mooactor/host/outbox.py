# SPDX-License-Identifier: MIT
"""Messages that wait until their channel has room for them.

A channel whose peer does not read is closed once 64 MiB wait in it, and with it ends
all that the peer does for this side. The arguments of a few constructors are as large,
and no sign of anything: they wait here meanwhile.

Invariants:

* Messages go to the channel in the order posted.
* At most `_MOST_QUEUED` bytes of them wait in the channel, or one that is larger.
* A message that cannot be sent at all is refused when it is posted.
* What waits here is bounded, but for messages that are `patient`: the sender keeps what
  is in these anyway. Past that bound the peer counts as one that does not read.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mooactor.control.lifeline import Message
from mooactor.control.reliable import MAX_QUEUED
from mooactor.host.eventloop import EventLoop

if TYPE_CHECKING:  # it loads ZeroMQ, for which an agent alone has no use
    from mooactor.control.channel import Channel

_MOST_QUEUED = 1 << 24
_RETRY_S = 0.02


class Outbox:
    """Of one channel."""

    def __init__(self, channel: Channel, loop: EventLoop) -> None:
        self._channel = channel
        self._loop = loop
        self._waiting: deque[tuple[bytes, bool]] = deque()  # encoded; patient
        self._impatient = 0  # bytes of those that are not patient

    def __len__(self) -> int:
        return len(self._waiting)

    def post(self, message: Message, *, patient: bool = False) -> None:
        """Send a message after all earlier ones; never blocks.

        Raises:
          NotPlain: see `Channel.post`.
        """
        data = self._channel.encoded(message)
        if not self._channel.is_open:
            return
        if not self._waiting and self._has_room(data):
            self._channel.post_encoded(data)
            return
        if not self._waiting:
            self._loop.later(_RETRY_S, self._drain)
        self._waiting.append((data, patient))
        self._impatient += 0 if patient else len(data)
        if self._impatient > MAX_QUEUED:
            waiting = self._impatient
            self.clear()
            self._channel.fail(
                f"{self._channel.address} does not read what it is sent: "
                f"{waiting} bytes wait for it"
            )

    def _has_room(self, data: bytes) -> bool:
        queued = self._channel.queued
        return not queued or queued + len(data) <= _MOST_QUEUED

    def _drain(self) -> None:
        if not self._channel.is_open:
            self.clear()
        while self._waiting and self._has_room(self._waiting[0][0]):
            data, patient = self._waiting.popleft()
            self._impatient -= 0 if patient else len(data)
            self._channel.post_encoded(data)
        if self._waiting:
            self._loop.later(_RETRY_S, self._drain)

    def clear(self) -> None:
        """The channel is over, or to be closed: drop what waits."""
        self._waiting.clear()
        self._impatient = 0
