# SPDX-License-Identifier: MIT
"""Broadcast trees: a value for many processes crosses the way to each other host once.

The first process of a host that gets a stored value becomes its *holder* there: it
keeps the received value, without a copy, for as long as the value lives here. A later
process of that host is told to take the value from the holder, over shared memory. The
hosts form a binary tree, in the order in which they came up: this process serves the
first two, their holders serve the next four, and so on.

A process that was told to take a value from a holder reports when it has it, and asks
here if it cannot have it there, or if the holder is silent; until then the value stays.
A holder that did not give a value is dismissed, and the next process of its host that
needs the value becomes the holder. `relay` is the receiving side.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from mooactor import errors
from mooactor.control import bodies, envelope
from mooactor.control.sender import Sender
from mooactor.process.objects.living import Living
from mooactor.process.objects.table import Stored
from mooactor.process.objects.unsent import Unsent

if TYPE_CHECKING:
    from mooactor.process.objects.payloads import Payloads


class BroadcastTree:
    """The holders of one stored value, by host. It goes with the value, and tells then
    all that live and were ever to keep it: also those of which it is not certain that
    they have learned of it, as a signal handler cut that short, and the dismissed ones.
    """

    def __init__(self, sender: Sender, number: int) -> None:
        self._sender = sender
        self.number = number
        self.holders: dict[bytes, int] = {}  # 0: it died, or was dismissed
        self._order: list[bytes] = []
        self._told = set[int]()  # last: see `__del__`

    def source(self, host: bytes, target: int) -> tuple[int, bool]:
        """The process from which `target`, on `host`, takes it, 0 for here, perhaps
        itself; and whether `target` is the holder from now on."""
        holder = self.holders.get(host, 0)
        if holder:
            return holder, False
        if host not in self._order:
            self._order.append(host)
        self._told.add(target)  # before anything is sent
        self.holders[host] = target
        above = self._order.index(host) // 2
        return (self.holders[self._order[above - 1]] if above else 0), True

    def dismiss(self, process_id: int) -> None:
        """It is no holder any more: no process may ask it."""
        for host, holder in list(self.holders.items()):
            if holder == process_id:
                self.holders[host] = 0

    def lost(self, process_id: int) -> None:
        """A process died."""
        self.dismiss(process_id)
        self._told.discard(process_id)

    def __del__(self) -> None:
        # A signal handler may have cut its construction short.
        for process_id in getattr(self, "_told", ()):
            if not self._sender.ended:
                self._sender.post_later(process_id, envelope.DROP, self.number)


class Broadcaster:
    """Sends stored values out. In the thread that sends, or the poller's."""

    #: Has a function called once it is known where a process is, by the housekeeper or
    #: at once; None in a session on one machine.
    when_located: Callable[[int, Callable[[], None]], None] | None = None

    def __init__(
        self,
        process_id: int,
        payloads: Payloads,
        sender: Sender,
        arm: Callable[[], None],
    ) -> None:
        """`arm`: have the inbox read soon, even if no thread waits."""
        self._me = process_id
        self._payloads = payloads
        self._sender = sender
        self._arm = arm
        self._hosts: dict[int, bytes] = {}
        self._trees = Living[BroadcastTree]()
        self._numbers = itertools.count(1)
        # By token: a value to be taken from a holder, its receiver, and the holder.
        self._waiting: dict[int, tuple[Stored, int, int]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def host_of(self, target: int) -> bytes | None:
        """The host of a process, if it is known and not this one."""
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

    def may_be_elsewhere(self, target: int) -> bool:
        """Whether a process is on another host, or that is not known yet."""
        return self.host_of(target) is not None or self._is_unknown(target)

    def _is_unknown(self, target: int) -> bool:
        if self.when_located is None or target in self._hosts:
            return False
        return self._payloads.plane.host(target) is None

    def send(
        self,
        stored: Stored,
        target: int,
        token: int,
        failed: Callable[[int, int, BaseException], None],
    ) -> None:
        """Send a value as `token`, or have a nearer holder send it: now, or once it is
        known where the process is. If that fails then, `failed` is called with target,
        token and error.

        Raises:
          MooError: it cannot be sent.
        """
        if stored.is_large and self._is_unknown(target):
            assert self.when_located is not None
            late = partial(self._send_late, stored, target, token, failed)
            self.when_located(target, late)
        else:
            self._send_now(stored, target, token)

    def _send_late(
        self,
        stored: Stored,
        target: int,
        token: int,
        failed: Callable[[int, int, BaseException], None],
    ) -> None:
        try:
            self._send_now(stored, target, token)
        except errors.MooError as error:
            failed(target, token, error)

    def _send_now(self, stored: Stored, target: int, token: int) -> None:
        host = self.host_of(target) if stored.is_large else None
        if host is None:
            self._send(stored, target, token, None)
            return
        tree = self._tree_of(stored)
        source, holds = tree.source(host, target)
        if not source:
            try:
                self._send(stored, target, token, tree if holds else None)
            except BaseException:
                tree.dismiss(target)  # nobody knows whether it has the value
                raise
            return
        payload = bodies.pack_numbers(source, tree.number)
        flags = envelope.KEEP if holds else 0
        unsent = [1]
        try:
            self._waiting[token] = (stored, target, source)
            self._arm()
            kind = envelope.REDIRECT
            self._sender.post_once(target, kind, token, payload, flags, unsent)
        finally:
            if unsent:  # the receiver will never say that it has it
                self._waiting.pop(token, None)

    def _tree_of(self, stored: Stored) -> BroadcastTree:
        tree: BroadcastTree | None = stored.tree
        if tree is None:
            tree = stored.tree = BroadcastTree(self._sender, next(self._numbers))
            self._trees.add(tree)
        return tree

    def _send(
        self, stored: Stored, target: int, token: int, tree: BroadcastTree | None
    ) -> None:
        unsent = Unsent()
        try:
            payload, flags = stored.payload_for(target, unsent)
            flags |= stored.flags
            if tree is not None:
                payload = bodies.pack_numbers(tree.number) + payload
                flags |= envelope.KEEP
            kind = envelope.VALUE
            self._sender.post_once(target, kind, token, payload, flags, unsent)
        finally:
            unsent.take_back()

    def on_taken(self, record: envelope.Record) -> None:
        """It has come from its holder."""
        self._waiting.pop(record.call_id, None)

    def retry(self, token: int, holder: int = 0) -> bool:
        """It does not come from there, or not soon: that process is no holder any more.
        False: no holder was to send it. `holder`: which one, if that is known; its
        receiver may have been told of another one since.

        Raises:
          MooError: it cannot be sent.
        """
        entry = self._waiting.get(token)
        if entry is None:
            return False
        stored, target, source = entry
        if holder in (0, source) and self._waiting.pop(token, None) is not None:
            self._dismiss(self._tree_of(stored), source)
            self._send_now(stored, target, token)
        return True

    def _dismiss(self, tree: BroadcastTree, holder: int) -> None:
        """Also of one that is none: others may have asked it in vain, and wait."""
        tree.dismiss(holder)
        self._sender.post(holder, envelope.DROP, tree.number)

    def connection_broke(self, process_id: int) -> list[tuple[int, int]]:
        """A connection with a process broke, and that lives. It may not know what it
        was given to keep: it is dismissed. Returns (receiver, token) of all that it was
        to send, for `retry`. As a receiver from others it is forgotten."""
        entries = list(self._waiting.items())
        for tree in self._trees.all():
            if process_id in tree.holders.values():
                self._dismiss(tree, process_id)
        self.process_lost(process_id)
        again = {token: entry for token, entry in entries if entry[2] == process_id}
        self._waiting.update(again)
        return [(entry[1], token) for token, entry in again.items()]

    def process_lost(self, process_id: int) -> None:
        """A process died: forget it as holder and as receiver."""
        for tree in self._trees.all():
            tree.lost(process_id)
        for token, entry in list(self._waiting.items()):
            if entry[1] == process_id:
                self._waiting.pop(token, None)
        self._hosts.pop(process_id, None)

    def close(self) -> None:
        self._waiting.clear()
