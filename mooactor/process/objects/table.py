# SPDX-License-Identifier: MIT
"""Values that outlive a call: those of `moo.put`, and results that were lent.

The process that made a value *owns* it. A value is available as long as its owner lives
and it has a holder. Holders are:

* a local Ref, in the owner's process: to a result by having it, to a stored value by a
  count of its own process;
* a process to which a Ref was *lent*: from the moment before the message with the Ref
  is sent until the last object that was made of that borrow is gone there, or the
  message was dropped undecoded. So a value that is in flight is held by its receiver;
* an actor in all its incarnations (`every_incarnation`): Refs among its constructor's
  arguments and in its snapshots, until it has ended for good;
* nobody in particular (`PINNED`): Refs pickled by hand, until the session ends.

Invariants:

1. Counts are kept by (holder, lender). A borrow is counted once: by its lender, at the
   owner directly or by a BORROW record posted before the message that carries the Ref.
   It is given back once: by its holder, with a RELEASE record that names the lender.
2. A count may be negative for a while: a holder's RELEASE may overtake the BORROW of a
   third process. If no BORROW can come any more, because the lender is dead or is this
   process, a RELEASE without a count is ignored.
3. An entry goes when all its counts are zero. The entry of a result exists only while
   it is lent: the local Ref has the value, and is entered again when it is lent again.
4. The borrows of a dead process are forgotten. The owner watches every process that
   holds something of it, and counts nothing for one that it knows to be dead.

5. A third process that lends may be killed between its BORROW and its message, so that
   only one of them arrives. Borrows of a dead lender are audited (see `audit`): the
   holder's own number replaces the count. The audit takes some tenths of a second. If
   the value has no other holder meanwhile, it may be gone for such a holder, which then
   gets `ActorUnavailable`.
6. After a break of a connection, what was lost with it is counted once more: see
   `audit`.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mooactor import errors
from mooactor.control import bodies, codec, envelope
from mooactor.control.keys import died_with, every_incarnation
from mooactor.control.links import Links
from mooactor.process.objects.audit import Doubts, Key
from mooactor.process.objects.borrow import Borrowing
from mooactor.process.objects.future import AttachedReply, Future
from mooactor.process.objects.holds import Unsent
from mooactor.tensors.plane import DataPlane

if TYPE_CHECKING:
    from mooactor.process.objects.audit import Audit
    from mooactor.process.objects.holds import Hold
    from mooactor.process.objects.payloads import Payloads

LARGE = 1 << 18  # bytes
PINNED = 0  # the holder of a Ref that was pickled for nobody in particular


def _is_process(holder: int) -> bool:
    return holder != PINNED and holder != every_incarnation(holder)


class Stored:
    """A value encoded once; each receiver gets the same memory, not a copy.

    Its large parts are in shared memory. It holds the values of the Refs inside it, and
    lends them to each receiver.
    """

    def __init__(
        self,
        payloads: Payloads,
        data: bytes,
        buffers: Sequence[Any],
        borrowing: Borrowing | None = None,
        *,
        of_call: bool = False,
        alone: bool = False,
        flags: int = 0,
    ) -> None:
        """`of_call`: a call's result, not what `moo.put` was given. `alone`: it is for
        one process, as far as is known. `flags`: of the VALUE records with it."""
        self.of_call = of_call
        self.alone = alone
        self.flags = flags
        #: Those of whom each has the script's definitions that this needs; None: all.
        self.receivers: tuple[int, ...] | None = None
        self._data = data
        self._payloads = payloads
        self._plane: DataPlane | None = payloads.plane
        self._buffers = [payloads.plane.share(buffer) for buffer in buffers]
        self._borrowing = borrowing or None
        self.tree: Any = None  # by which it is broadcast, see `broadcast`

    def is_same(self, data: bytes, buffers: codec.Buffers) -> bool:
        """Whether it is what would be made of these."""
        plane = self._plane
        return (
            plane is not None
            and self._data == data
            and len(self._buffers) == len(buffers)
            and all(map(plane.is_same, self._buffers, buffers))
        )

    def serves(self, process_id: int) -> bool:
        """Whether that process can read it."""
        return self.receivers is None or process_id in self.receivers

    def end_of_call(self) -> None:
        """A listener that keeps this until the call with it has ended."""

    @property
    def is_large(self) -> bool:
        """Whether a second crossing of a network costs more than a redirection."""
        return sum(map(len, self._buffers)) >= LARGE

    def payload_for(
        self, process_id: int, unsent: Unsent, home: Hold | None = None
    ) -> tuple[bytes, int]:
        """(payload, flags) for one receiver, to be sent. Waits for no contact. `home`:
        a hold of this value, which is lent as well, before those of its Refs."""
        # Read before the plane: another thread that closes it meanwhile harms nothing.
        buffers = self._buffers
        self._open_plane()
        payload, flags = self._data, 0
        if buffers:
            payload = self._payloads.attach(payload, buffers, process_id)
            unsent.append((self._payloads.take_back, payload))
            flags = envelope.ATTACHED
        borrowing = self._borrowing
        if home is not None:
            borrowing = Borrowing(self._payloads.borrows).of(home, borrowing)
        if borrowing is None:
            return payload, flags
        return borrowing.issue(process_id, payload, flags, unsent)

    def _open_plane(self) -> DataPlane:
        if self._plane is None:
            raise errors.ActorUnavailable("the session of this value has ended")
        return self._plane

    def close(self) -> None:
        """Let go of the memory; the value is no longer available."""
        self._plane = None  # first: see `payload_for`
        self._buffers = []
        self._borrowing = None

    def value(self) -> Any:
        """Decode it here: a view of the same memory, private on write."""
        shared, borrowing = self._buffers, self._borrowing
        plane = self._open_plane()
        # It frees what it has not decoded.
        reply = AttachedReply(self._data, [], False, plane)
        for buffer in shared:
            reply.descriptors.append(plane.export(buffer, plane.process_id))
        return reply.value() if borrowing is None else borrowing.decode(reply.value)


def size_of(buffers: codec.Buffers) -> int:
    """Their bytes."""
    return sum(buffer.raw().nbytes for buffer in buffers)


class OwnedValue:
    """One value: a stored one, or the result of a call that is lent."""

    __slots__ = ("future", "stored", "counts")

    def __init__(self, future: Future | None, stored: Stored | None) -> None:
        self.future = future
        self.stored = stored
        self.counts: dict[tuple[int, int], int] = {}  # by (holder, lender)

    def add(
        self, key: tuple[int, int], count: int, once: list[int] | None = None
    ) -> None:
        """Add to a count, which may be negative; one of zero is dropped. `once` is
        emptied in the same step, whatever a signal handler does."""
        counts = self.counts
        total = counts.get(key, 0) + count
        if total:  # no call from here on
            counts[key] = total
        elif key in counts:
            del counts[key]
        if once:
            del once[:]


class ObjectTable:
    """The values that this process owns and others may ask for. Threads: any.

    Values are freed without the lock: finalizers of users' objects may come here.
    """

    audit: Audit  # sets itself

    def __init__(self, links: Links) -> None:
        self._me = links.process_id
        self._links = links
        self._entries: dict[int, OwnedValue] = {}
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self.doubts = Doubts(self._lock)
        self.broken: set[int] = set()  # processes, a connection with which has broken
        self.when_negative: Callable[[Key], None] | None = None
        # Object id, lender, and the count; see `_count`.
        self.dropped: deque[tuple[int, int, list[int]]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def new_id(self) -> int:
        """A number for a value of this process."""
        return next(self._ids)

    def add_stored(self, object_id: int, stored: Stored) -> None:
        """Own a stored value of that number, held by one local Ref until `drop_local`.
        The Ref's hold is there before: so a signal handler leaves none without one."""
        self.sweep()
        entry = OwnedValue(None, stored)
        entry.add((self._me, self._me), 1)
        self._entries[object_id] = entry

    @contextlib.contextmanager
    def adding(self, object_id: int, stored: Stored) -> Iterator[None]:
        """Own a stored value that is lent within this."""
        entry = self._entries[object_id] = OwnedValue(None, stored)
        try:
            yield
        finally:
            with self._lock:
                self._collected(object_id, entry)

    def lend(
        self,
        object_id: int,
        holder: int,
        future: Future | None = None,
        once: list[int] | None = None,
    ) -> None:
        """This process lends a value of its own; a result that is not lent yet is
        entered with its `future`. `once` is emptied in the step that counts it."""
        with self._lock:
            entry = self._entries.get(object_id)
            if entry is None and future is not None:
                entry = OwnedValue(future, None)
            if entry is not None:
                entry.add((holder, self._me), 1, once)
                # With no call in between: one without a count would stay.
                self._entries[object_id] = entry
                if self.doubts:
                    self.doubts.note((object_id, holder, self._me))
        self._look_after(holder)

    def on_borrow(self, record: envelope.Record) -> None:
        """Another process has lent a value of ours."""
        (holder,) = bodies.numbers(record.payload, 1)
        object_id, lender = record.call_id, record.sender
        self._count(object_id, holder, lender, record.memo.setdefault("count", [1]))
        self._look_after(holder)
        if self._links.is_gone(lender):
            self.audit.ask(holder, lender, [object_id])

    def on_release(self, record: envelope.Record) -> None:
        """A borrow has ended elsewhere."""
        holder, lender = bodies.pair(record.payload)
        once = record.memo.setdefault("count", [-1])
        self._count(record.call_id, holder, lender, once)
        if holder != record.sender:
            # Its lender has taken it back. The count of a holder that is dead is gone,
            # and this one would stay.
            self._look_after(holder)

    def given_back(self, object_id: int, holder: int, lender: int) -> None:
        """A borrow has ended."""
        self._count(object_id, holder, lender, [-1])

    def recount(
        self, holder: int, lender: int, counts: Iterable[tuple[int, int]]
    ) -> None:
        """Borrows of a dead lender that have arrived, and were not given back: (object
        id, count) of each value in question."""
        freed = []
        with self._lock:
            for object_id, count in counts:
                entry = self._entries.get(object_id)
                if entry is not None:
                    entry.counts.pop((holder, lender), None)
                    entry.add((holder, lender), count)
                    freed.append(self._collected(object_id, entry))
        del freed

    # -- counts in doubt, see `audit` --------------------------------------

    def keys_of(self, process_id: int, other: int | None = None) -> list[Key]:
        """The counts of borrows between two processes; without `other`, of all that one
        process has or has lent."""
        with self._lock:
            keys = [
                (object_id, *key)
                # a copy, because `add_stored` takes no lock
                for object_id, entry in list(self._entries.items())
                for key in entry.counts
                if process_id in key and _is_process(key[0])
            ]
        return [key for key in keys if other is None or other in key[1:]]

    def doubt(self, keys: Iterable[Key], number: int) -> None:
        """Watch counts for changes, in round `number`."""
        with self._lock:
            self.doubts.add([key for key in keys if key[0] in self._entries], number)

    def settle(
        self, number: int, keys: Iterable[Key], counts: Mapping[int, int]
    ) -> list[Key]:
        """The holder's counts of a round, by object. Those that have changed here
        meanwhile are left as they are, and returned."""
        changed, freed = [], []
        with self._lock:
            for key in keys:
                object_id, *whose = key
                holds = self.doubts.settle(key, number)
                entry = self._entries.get(object_id)
                if holds is None or entry is None:
                    continue
                if holds:
                    entry.counts.pop((whose[0], whose[1]), None)
                    entry.add((whose[0], whose[1]), counts[object_id])
                    freed.append(self._collected(object_id, entry))
                else:
                    changed.append(key)
        del freed
        return changed

    def _look_after(self, holder: int) -> None:
        self.sweep()
        if holder in (PINNED, self._me):
            return
        self._links.watch(holder)
        # Looked at after it was counted: a later death has a notice of its own.
        if self._links.is_gone(holder):
            self.process_lost(holder)

    def _count(self, object_id: int, holder: int, lender: int, once: list[int]) -> None:
        """`once` has the count, until it was counted: so this may be repeated."""
        freed = None  # dies after the lock is given back
        with self._lock:
            entry = self._entries.get(object_id)
            if entry is None:
                return
            key = (holder, lender)
            if once:
                back = once[0] < 0 and key not in entry.counts
                if back and not self._may_count(lender):
                    return
                entry.add(key, once[0], once)
            if self.doubts:
                self.doubts.note((object_id, holder, lender))
            negative = entry.counts.get(key, 0) < 0
            freed = self._collected(object_id, entry)
        del freed
        if negative and lender in self.broken and self.when_negative is not None:
            self.when_negative((object_id, holder, lender))

    def _may_count(self, lender: int) -> bool:
        return lender != self._me and not self._links.is_gone(lender)

    def drop_local(self, object_id: int, lender: int) -> None:
        """A local hold is gone. Called by the garbage collector, which may strike
        while a lock is held: so only a note is made, and `sweep` acts on it."""
        self.dropped.append((object_id, lender, [-1]))

    def sweep(self) -> None:
        """Free the values whose Refs the garbage collector reported."""
        dropped = self.dropped
        while dropped:
            try:
                first = dropped[0]
            except IndexError:
                return  # another thread took the last one
            object_id, lender, once = first
            self._count(object_id, self._me, lender, once)
            if dropped and dropped[0] is first:
                del dropped[0]

    def process_lost(self, process_id: int) -> None:
        """Forget the holds of a dead process, and of the same actor's processes before
        it, and the borrows that they can no longer have lent."""
        freed = []
        self.broken.discard(process_id)
        doubtful: dict[tuple[int, int], list[int]] = {}
        with self._lock:
            for object_id, entry in list(self._entries.items()):
                for (holder, lender), count in list(entry.counts.items()):
                    lender_died = died_with(lender, process_id)
                    if died_with(holder, process_id) or (lender_died and count < 0):
                        del entry.counts[holder, lender]
                    elif lender_died and _is_process(holder):
                        doubtful.setdefault((holder, lender), []).append(object_id)
                freed.append(self._collected(object_id, entry))
        del freed
        for (holder, lender), object_ids in doubtful.items():
            self.audit.ask(holder, lender, object_ids)

    def _collected(self, object_id: int, entry: OwnedValue) -> OwnedValue | None:
        """Take an entry out if nobody holds it. The lock is held."""
        return None if entry.counts else self._entries.pop(object_id, None)

    def held_results(self) -> list[tuple[int, int]]:
        """(object id, holder) of each result that another process holds."""
        with self._lock:
            return [
                (object_id, holder)
                for object_id, entry in list(self._entries.items())
                if entry.stored is not None and entry.stored.of_call
                for holder, _ in entry.counts
                if _is_process(holder) and holder != self._me
            ]

    def close(self) -> None:
        """The session ends: let go of everything."""
        for entry in list(self._entries.values()):
            if entry.stored is not None:
                entry.stored.close()
        self._entries.clear()

    def entry(self, object_id: int) -> OwnedValue | None:
        return self._entries.get(object_id)

    def stored(self, object_id: int) -> Stored | None:
        entry = self._entries.get(object_id)
        return entry.stored if entry else None

    def future(self, object_id: int) -> Future | None:
        entry = self._entries.get(object_id)
        return entry.future if entry else None
