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
needs the value becomes the holder.

Of arguments that only one process may need (`Stored.alone`), the first of a host does
not become the holder before a second one needs them: it gets the record again then,
which says so. If it has used them meanwhile, the second asks here.

`Relay` is the receiving side: values taken from a holder, and held for others.

A holder may be busy for long, in a method that runs: while it keeps a value, the
housekeeper reads its inbox every `LOOK_S`, so it answers all the same. A holder to
which the value is still on its way says so. One from which nothing comes for
`PATIENCE_S` holds its GIL, was stopped, or has not read yet that it is the holder; the
receiver asks the owner then, which sends the value another way. If it comes twice, the
second is dropped.
"""

from __future__ import annotations

import itertools
import os
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from mooactor import errors
from mooactor.control import bodies, codec, envelope
from mooactor.control.keys import actor_of
from mooactor.control.links import Links
from mooactor.control.sender import Sender
from mooactor.process.objects.borrow import Borrowing
from mooactor.process.objects.future import Reply
from mooactor.process.objects.holds import Living
from mooactor.process.objects.payloads import Payloads
from mooactor.process.objects.table import Stored


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
        #: By host: its first process, and the token, of what is `alone`.
        self.firsts: dict[bytes, tuple[int, int]] = {}
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
        for host, first in list(self.firsts.items()):
            if first[0] == process_id:
                self.firsts.pop(host, None)

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
    #: Sends a target an error in place of a value; sets itself.
    failed: Callable[[int, int, BaseException], None]

    def __init__(self, process_id: int, payloads: Payloads, sender: Sender) -> None:
        self._me = process_id
        self._payloads = payloads
        self._sender = sender
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

    def send(self, stored: Stored, target: int, token: int) -> None:
        """Send a value as `token`, or have a nearer holder send it: now, or once it is
        known where the process is. If that fails then, `failed` is called.

        Raises:
          MooError: it cannot be sent.
        """
        if stored.is_large and self._is_unknown(target):
            assert self.when_located is not None
            late = partial(self._send_late, stored, target, token)
            self.when_located(target, late)
        else:
            self._send_now(stored, target, token)

    def _send_late(self, stored: Stored, target: int, token: int) -> None:
        try:
            self._send_now(stored, target, token)
        except errors.MooError as error:
            self.failed(target, token, error)

    def _send_now(self, stored: Stored, target: int, token: int) -> None:
        host = self.host_of(target) if stored.is_large else None
        if host is None:
            self._send(stored, target, token, None)
            return
        tree = self._tree_of(stored)
        if stored.alone and host not in tree.holders:
            mine = target, token
            first = tree.firsts.setdefault(host, mine)
            if first is mine:
                self._send(stored, target, token, None)
                return
            self._have_kept(stored, tree, host, *first)
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
        self._waiting[token] = (stored, target, source)
        self._sender.arm()
        if not self._sender.post(target, envelope.REDIRECT, token, payload, flags):
            self._waiting.pop(token, None)

    def _have_kept(
        self, stored: Stored, tree: BroadcastTree, host: bytes, first: int, token: int
    ) -> None:
        """Make the first process of a host its holder, after all."""
        tree.source(host, first)
        try:
            self._send(stored, first, token, tree)
        except errors.MooError:
            tree.dismiss(first)

    def _tree_of(self, stored: Stored) -> BroadcastTree:
        tree: BroadcastTree | None = stored.tree
        if tree is None:
            tree = stored.tree = BroadcastTree(self._sender, next(self._numbers))
            self._trees.add(tree)
        return tree

    def _send(
        self, stored: Stored, target: int, token: int, tree: BroadcastTree | None
    ) -> None:
        payload, flags = stored.payload_for(target)
        flags |= stored.flags
        if tree is not None:
            payload = bodies.pack_numbers(tree.number) + payload
            flags |= envelope.KEEP
        gather = stored.alone and tree is None  # its call comes next
        kind = envelope.VALUE
        self._sender.post(target, kind, token, payload, flags, gather=gather)

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


#: How long a receiver waits for the first answer of a holder, and for each further one.
PATIENCE_S = 0.5
#: Between two looks at the inbox, if all threads are busy. Few enough to cost nothing,
#: as the value may be kept for hours.
LOOK_S = 0.02
_DROPPED_KEPT = 1024


class Key(NamedTuple):
    """A value: its owner, and its number there."""

    owner: int
    number: int


class Asked:
    """The holder asked for a value, and what came from there."""

    def __init__(self, holder: int, key: Key) -> None:
        self.holder = holder
        self.key = key
        self.heard = False  # lately: it will have the value
        self.answered = False  # the value is under way from there


class Kept:
    """A value that others may ask for: None until it is here."""

    def __init__(self) -> None:
        self.stored: Stored | None = None
        self.asks: list[tuple[int, int]] = []  # (process, token) that wait for it


class Relay:
    """Methods run in the poller's thread, and some in the housekeeper's."""

    def __init__(
        self,
        links: Links,
        sender: Sender,
        payloads: Payloads,
        later: Callable[[float, Callable[[], None]], None],
        drain: Callable[[], object],
    ) -> None:
        """`later`: call in so many seconds, in the housekeeper's thread. `drain`:
        handle the records that have come, if no other thread does."""
        self._links = links
        self._sender = sender
        self._payloads = payloads
        self._later = later
        self._drain = drain
        self._will_look = False
        self._asked: dict[int, Asked] = {}  # by token
        self._keys: dict[int, Key] = {}  # by token: to be kept once it is here
        self._kept: dict[Key, Kept] = {}
        self._dropped: OrderedDict[Key, None] = OrderedDict()  # lately

    def __len__(self) -> int:
        return len(self._asked) + len(self._kept)

    # -- values for this process -------------------------------------------

    def on_redirect(self, record: envelope.Record) -> None:
        """Take a value from a holder."""
        holder, number = bodies.numbers(record.payload, 2)
        token, owner = record.call_id, record.sender
        key = Key(owner, number)
        if record.flags & envelope.KEEP:
            self.expect(token, key)
        link = self._links.link(
            actor_of(holder), holder & 0xFFFF, "the holder of a value", watch=True
        )
        if link.cause is not None or link.process_id != holder:
            self._post_retry(owner, token, holder)
            return
        self._ask(token, Asked(holder, key))

    def _ask(self, token: int, asked: Asked) -> None:
        """Ask, perhaps once more; a value that comes twice is dropped."""
        self._asked[token] = asked
        payload = bodies.pack_numbers(*asked.key)
        self._sender.post(asked.holder, envelope.ASK, token, payload)
        self._later(PATIENCE_S, partial(self._check, token, asked))

    def _check(self, token: int, asked: Asked) -> None:
        """Whether the holder has answered. In the housekeeper's thread."""
        self._drain()
        if self._asked.get(token) is not asked or asked.answered:
            return
        if asked.heard:
            asked.heard = False
            self._ask(token, asked)
        else:
            self.ask_owner(token)

    def answered(self, token: int, process_id: int) -> None:
        """The record of a value has come; its data follows."""
        asked = self._asked.get(token)
        if asked is not None and asked.holder == process_id:
            asked.answered = True

    def expect(self, token: int, key: Key) -> None:
        """Keep the value that will come as `token`."""
        self._keys[token] = key
        self._dropped.pop(key, None)
        self._keep(key)
        self._is_lost(key)

    def arrived(self, token: int, reply: Reply) -> None:
        """It is here, and was not used yet."""
        self._taken(token)
        key = self._keys.get(token)
        kept = None if key is None else self._kept.get(key)
        if kept is not None:
            made = kept.stored or self._stored(reply)
            if kept.stored is None:  # no call
                kept.stored = made
            self._answer(kept, kept.stored)
        self._keys.pop(token, None)

    def _taken(self, token: int) -> None:
        """No holder is to send it any more, which its owner is told. It may be told
        twice: what is cut short is done again."""
        asked = self._asked.get(token)
        if asked is not None:
            self._sender.post(asked.key.owner, envelope.TAKEN, token)
            self._asks_no_more(token, asked)

    def _asks_no_more(self, token: int, asked: Asked) -> None:
        """After its owner was told. That may have named another holder meanwhile, which
        the poller's thread has asked, while the housekeeper's is here: that stays."""
        if token in self._asked and self._asked[token] is asked:  # no call
            del self._asked[token]

    def _stored(self, reply: Reply) -> Stored:
        borrowing = self._own_borrowing(reply)
        return Stored(self._payloads, bytes(reply.payload), reply.buffers, borrowing)

    def _own_borrowing(self, reply: Reply) -> Borrowing | None:
        """A kept value holds the values of the Refs in it by holds of its own: decoding
        the reply gives its borrows back."""
        if reply.claims is None:
            return None
        borrows = self._payloads.borrows
        borrowing = Borrowing(borrows)
        for owner, number in reply.claims.borrows():
            borrowing.add(borrows.lend_here(owner, number))
        return borrowing

    def knows(self, token: int) -> bool:
        """Whether it comes from a holder, or must be kept for others."""
        return token in self._asked or token in self._keys

    def asks_holder(self, token: int) -> bool:
        """Whether a holder is to send it, as its owner has said."""
        return token in self._asked

    def does_not_come(self, token: int, error: BaseException | None) -> None:
        """It does not come from its owner either. The processes that wait for it here
        ask that, unless `error` says that nothing comes from there."""
        key = self._keys.get(token)
        if key is not None:
            self._forget(key, error)
            self._keys.pop(token, None)

    def ask_owner(self, token: int) -> None:
        """A holder did not give it."""
        asked = self._asked.get(token)
        if asked is not None:
            self._post_retry(asked.key.owner, token, asked.holder)
            self._asks_no_more(token, asked)

    def _post_retry(self, owner: int, token: int, holder: int) -> None:
        payload = bodies.pack_numbers(holder)
        self._sender.post(owner, envelope.RETRY, token, payload)

    def holder_has_none(self, token: int, process_id: int) -> bool:
        """The same, if that process is the holder."""
        asked = self._asked.get(token)
        if asked is None or asked.holder != process_id:
            return False
        self.ask_owner(token)
        return True

    def came_again(self, token: int, key: Key | None, *, arriving: bool) -> None:
        """A value came that is here already, is `arriving`, or is not needed any more.
        `key`: others may ask for it here, so what is arriving is kept for them. Of one
        that is gone they are sent on to its owner, which need not wait for this
        process, either."""
        if arriving:
            if key is not None:
                self.expect(token, key)
            return
        self._taken(token)
        key = self._keys.pop(token, key)
        if key is None or key in self._keys.values():
            return
        kept = self._kept.get(key)
        if kept is None or kept.stored is None:
            self._forget(key)

    def give_up(self, token: int, error: BaseException) -> None:
        """It is lost for good: its owner need not wait, and others must not."""
        self._taken(token)
        self.does_not_come(token, error)

    # -- values for others -------------------------------------------------

    def on_ask(self, record: envelope.Record) -> None:
        """Another process was told to take a value from here. Or the holder that was
        asked will have it."""
        target = record.sender
        if record.flags & envelope.PROMISED:
            self._on_promise(target, record.call_id)
            return
        key = Key(*bodies.numbers(record.payload, 2))
        if key in self._dropped:
            self._refuse(target, record.call_id)
            return
        # The owner's message that we keep it may arrive after this.
        kept = self._keep(key)
        if (target, record.call_id) not in kept.asks:
            kept.asks.append((target, record.call_id))
        if self._is_lost(key):
            return
        if kept.stored is not None:
            self._answer(kept, kept.stored)
        elif key in self._keys.values():  # otherwise it may never come here
            flags = envelope.PROMISED
            self._sender.post(target, envelope.ASK, record.call_id, b"", flags)

    def _on_promise(self, holder: int, token: int) -> None:
        asked = self._asked.get(token)
        if asked is not None and asked.holder == holder:
            asked.heard = True

    def _keep(self, key: Key) -> Kept:
        kept = self._kept.setdefault(key, Kept())
        self._look_later()
        return kept

    def _is_lost(self, key: Key) -> bool:
        """Whether its owner is dead, so that nobody will have it dropped. Looked at
        after it was noted: a later death has a notice of its own."""
        self._links.watch(key.owner)  # nothing of it may have come here
        lost = self._links.is_gone(key.owner)
        if lost:
            self._forget(key)
        return lost

    def _look_later(self) -> None:
        if self._kept and not self._will_look:
            self._will_look = True
            self._later(LOOK_S, self._look)

    def _look(self) -> None:
        """Answer those who ask while all threads here are busy. In the housekeeper's
        thread."""
        self._will_look = False
        try:
            self._drain()
        finally:
            self._look_later()

    def _answer(self, kept: Kept, stored: Stored) -> None:
        while kept.asks:
            ask = kept.asks[0]
            self._hand_on(stored, *ask)
            if ask in kept.asks:
                kept.asks.remove(ask)

    def _hand_on(self, stored: Stored, target: int, token: int) -> None:
        try:
            payload, flags = stored.payload_for(target)
            self._sender.post(target, envelope.VALUE, token, payload, flags)
        except errors.MooError:
            self._refuse(target, token)  # its owner will see

    def _refuse(
        self, target: int, token: int, error: BaseException | None = None
    ) -> None:
        """With an error: its owner cannot be reached, so a request to it would fail in
        the same way."""
        if error is None:
            self._sender.post(target, envelope.VALUE, token, b"", envelope.GONE)
            return
        payload = codec.encode_error(error, f"process {os.getpid()}")
        flags = envelope.GONE | envelope.ERROR
        self._sender.post(target, envelope.VALUE, token, payload, flags)

    def on_drop(self, record: envelope.Record) -> None:
        """No other process will ask for it any more."""
        self._forget(Key(record.sender, record.call_id))

    def _forget(self, key: Key, error: BaseException | None = None) -> None:
        self._dropped[key] = None
        if len(self._dropped) > _DROPPED_KEPT:
            self._dropped.popitem(last=False)
        kept = self._kept.pop(key, None)
        cut_off = isinstance(error, errors.ActorUnavailable)
        for target, token in kept.asks if kept is not None else ():
            self._refuse(target, token, error if cut_off else None)

    def process_lost(self, process_id: int) -> None:
        """A process died: ask owners in its place, unless the data is under way, whose
        end will tell; and drop the kept values that it owned."""
        for token, asked in list(self._asked.items()):
            if asked.holder == process_id and not asked.answered:
                self.ask_owner(token)
        for key in [key for key in list(self._kept) if key.owner == process_id]:
            self._forget(key)

    def close(self) -> None:
        """Let go of the kept values."""
        for kept in self._kept.values():
            if kept.stored is not None:
                kept.stored.close()
        self._kept.clear()
        self._asked.clear()
        self._keys.clear()
