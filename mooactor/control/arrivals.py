# SPDX-License-Identifier: MIT
"""Connections that arrive at the inbox of a process, from other hosts.

Anybody can connect. A connection that has not passed the handshake within
`ADMISSION_MS` is closed by libzmq; how many there can be until then is bounded here, as
`Strangers` says. The cost is an event of the inbox's monitor for each connection that
comes or goes, in the housekeeper's thread; a message costs nothing. While another
thread holds the GIL nobody is turned away, and libzmq itself stops accepting when there
are no descriptors left.
"""

from __future__ import annotations

import zmq

from mooactor.control.sockets import events_of, monitored, unmonitor
from mooactor.control.strangers import Strangers, has_passed
from mooactor.control.ways import Keeper


class Arrivals:
    """Those at one ROUTER, which does not listen yet."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], inbox: zmq.Socket[bytes]
    ) -> None:
        self.strangers = Strangers(has_passed)
        self._inbox = inbox
        events = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
        self._monitor = monitored(context, inbox, events)

    def watch(self, keeper: Keeper) -> None:
        """From here on the housekeeper looks after them."""
        keeper.watch(int(self._monitor.getsockopt(zmq.FD)), self._read)
        self._read()  # a monitor tells of its first news to a reader only

    def _read(self) -> None:
        for event, fd in events_of(self._monitor):
            if event == zmq.EVENT_ACCEPTED:
                self.strangers.add(fd)
            else:
                self.strangers.discard(fd)

    def close(self) -> None:
        """Before the inbox is closed, and when no other thread uses it."""
        unmonitor(self._inbox, self._monitor)
