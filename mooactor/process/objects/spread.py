# SPDX-License-Identifier: MIT
"""One value for many processes: it crosses the way to each other host once.

The first process of a host that is to get a stored value becomes its *holder* there:
it keeps what it received, without a copy, for as long as the value lives here. Whoever
of that host comes later is told to take it from the holder, over shared memory. The
hosts themselves form a binary tree, in the order in which they came up: the first two
are served from here, the next four by the holders of these, and so on.

Who is told to take a value from a holder says when it has it, and asks here if it
cannot have it there; until then the value stays. `relay` is the other side of this.
"""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING

from mooactor.control import envelope
from mooactor.control.sender import Sender
from mooactor.process.objects.table import Stored

if TYPE_CHECKING:
    from mooactor.process.objects.payloads import Payloads


class Plan:
    """Who holds one stored value on which host. It goes with the value, and tells the
    holders when it does."""

    def __init__(self, sender: Sender, number: int) -> None:
        self._sender = sender
        self.number = number
        self.holders: dict[bytes, int] = {}  # 0: it died
        self._order: list[bytes] = []

    def source(self, host: bytes, target: int) -> tuple[int, bool]:
        """Where `target`, on `host`, is to take it from, 0 for here; and whether it is
        the holder from now on."""
        holder = self.holders.get(host, 0)
        if holder and holder != target:
            return holder, False
        if host not in self._order:
            self._order.append(host)
        self.holders[host] = target
        above = self._order.index(host) // 2
        return (self.holders[self._order[above - 1]] if above else 0), True

    def lost(self, process_id: int) -> None:
        for host, holder in self.holders.items():
            if holder == process_id:
                self.holders[host] = 0

    def __del__(self) -> None:
        for holder in self.holders.values():
            if holder and not self._sender.ended:
                self._sender.post_later(holder, envelope.DROP, self.number)


class Spread:
    """Sends stored values out. In the thread that sends, or the poller's."""

    def __init__(self, process_id: int, payloads: Payloads, sender: Sender) -> None:
        self._me = process_id
        self._payloads = payloads
        self._sender = sender
        self._hosts: dict[int, bytes] = {}
        self._plans: weakref.WeakSet[Plan] = weakref.WeakSet()
        self._numbers = itertools.count(1)
        # By token: what is to be taken from a holder, by whom, and from which.
        self._waiting: dict[int, tuple[Stored, int, int]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def host_of(self, target: int) -> bytes | None:
        """Its host, if that is known and another than this one."""
        if self._payloads.inbound is None:
            return None
        host = self._hosts.get(target)
        if host is None:
            host = self._payloads.plane.host(target)
            if host is None:
                return None
            self._hosts[target] = host
        mine = self._payloads.plane.host(self._me)
        return None if host == mine else host

    def send(self, stored: Stored, target: int, token: int) -> None:
        """Send a value as `token`, or have it sent by who is nearer.

        Raises:
          MooError: it cannot be sent.
        """
        host = self.host_of(target) if stored.is_large else None
        if host is None:
            self._send(stored, target, token, None)
            return
        plan = self._plan_of(stored)
        source, holds = plan.source(host, target)
        if not source:
            try:
                self._send(stored, target, token, plan if holds else None)
            except BaseException:
                plan.lost(target)  # nobody is to ask it
                raise
            return
        self._waiting[token] = (stored, target, source)
        payload = envelope.pack_numbers(source, plan.number)
        flags = envelope.KEEP if holds else 0
        self._sender.post(target, envelope.REDIRECT, token, payload, flags)

    def _plan_of(self, stored: Stored) -> Plan:
        plan: Plan | None = stored.plan
        if plan is None:
            plan = stored.plan = Plan(self._sender, next(self._numbers))
            self._plans.add(plan)
        return plan

    def _send(self, stored: Stored, target: int, token: int, plan: Plan | None) -> None:
        payload, flags = stored.payload_for(target)
        if plan is not None:
            payload = envelope.pack_numbers(plan.number) + payload
            flags |= envelope.KEEP
        self._sender.post(target, envelope.VALUE, token, payload, flags)

    def on_taken(self, record: envelope.Record) -> None:
        """It has come from its holder."""
        self._waiting.pop(record.call_id, None)

    def retry(self, token: int) -> None:
        """It does not come from there: whoever was to hold it, does not.

        Raises:
          MooError: it cannot be sent.
        """
        entry = self._waiting.pop(token, None)
        if entry is None:
            return
        stored, target, source = entry
        plan = self._plan_of(stored)
        if source in plan.holders.values():
            plan.lost(source)
            self._sender.post(source, envelope.DROP, plan.number)
        self.send(stored, target, token)

    def process_lost(self, process_id: int) -> None:
        for plan in list(self._plans):
            plan.lost(process_id)
        for token, entry in list(self._waiting.items()):
            if entry[1] == process_id:
                self._waiting.pop(token, None)
        self._hosts.pop(process_id, None)

    def close(self) -> None:
        self._waiting.clear()
