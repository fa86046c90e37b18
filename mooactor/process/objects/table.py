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

A process that lends a value gives the loan a number of its own, the *hold's*. The owner
keeps the holds of each value, by number: who has it, and who lent it. Invariants:

1. A hold is entered before the message that carries the Ref is sent: by its lender, at
   the owner directly or by a BORROW record. It is taken out by its holder's RELEASE,
   once nothing there needs it.
2. Each of the two may come twice, and does nothing then. A RELEASE may overtake the
   BORROW of a third process: it is remembered for `EARLY_S`, and that BORROW ignored.
3. An entry goes with its last hold. The entry of a result exists only while it is lent:
   the local Ref has the value, and is entered again when it is lent again.
4. The holds of a dead process are forgotten. The owner watches every process that holds
   something of it, and keeps nothing for one that it knows to be dead.
5. Of a lender that is killed, and over a connection that breaks, one of BORROW and
   message may arrive alone. `audit` makes that right.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from mooactor import errors
from mooactor.control import bodies, codec, envelope
from mooactor.control.keys import died_with, every_incarnation
from mooactor.control.links import Links
from mooactor.process.objects.borrow import Borrowing, Borrows
from mooactor.process.objects.future import AttachedReply, Future
from mooactor.process.objects.holds import Hold
from mooactor.tensors.plane import DataPlane

if TYPE_CHECKING:
    from mooactor.process.objects.audit import Audit, Entered
    from mooactor.process.objects.payloads import Payloads

LARGE = 1 << 18  # bytes
PINNED = 0  # the holder of a Ref that was pickled for nobody in particular
EARLY_S = 60.0  # no BORROW is under way for so long


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
        self, process_id: int, home: Hold | None = None
    ) -> tuple[bytes, int]:
        """(payload, flags) for one receiver, to be sent. Waits for no contact. `home`:
        a hold of this value, which is lent as well, before those of its Refs."""
        # Read before the plane: another thread that closes it meanwhile harms nothing.
        buffers = self._buffers
        self._open_plane()
        borrowing = self._borrowing
        if home is not None:
            borrowing = Borrowing(self._payloads.borrows).of(home, borrowing)
        return self._payloads.pack(self._data, buffers, borrowing, process_id)

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

    __slots__ = ("future", "stored", "holds", "early")

    def __init__(self, future: Future | None, stored: Stored | None) -> None:
        self.future = future
        self.stored = stored
        self.holds: dict[int, tuple[int, int]] = {}  # holder and lender, by number
        self.early: dict[int, float] = {}  # RELEASEs before their BORROWs, and when

    def release(self, number: int) -> None:
        """Take a hold out, now or when it is entered. The lender's BORROW is still to
        come if there is none, or only the holder has said that there is."""
        holder, lender = self.holds.pop(number, (0, 0))
        if holder == lender:
            now, early = monotonic(), self.early
            early[number] = now
            while early and early[first := next(iter(early))] < now - EARLY_S:
                del early[first]


class ObjectTable:
    """The values that this process owns and others may ask for. Threads: any.

    Values are freed without the lock: finalizers of users' objects may come here. A
    signal handler may, with the lock held.
    """

    audit: Audit  # sets itself

    def __init__(self, links: Links) -> None:
        self._me = links.process_id
        self._links = links
        self._entries: dict[int, OwnedValue] = {}
        self._ids = itertools.count(1)
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._entries)

    def new_id(self) -> int:
        """A number for a value of this process."""
        return next(self._ids)

    def own(self, stored: Stored, borrows: Borrows) -> Hold:
        """Own a stored value; returns a hold on it of this process."""
        hold, number = Hold(borrows, self._me, self.new_id()), borrows.new_number()
        hold.count(self._me, number)
        entry = OwnedValue(None, stored)
        entry.holds[number] = self._me, self._me
        self._entries[hold.object_id] = entry
        return hold

    def lend(
        self, object_id: int, holder: int, number: int, future: Future | None = None
    ) -> None:
        """This process lends a value of its own; a result that is not lent yet is
        entered with its `future`."""
        with self._lock:
            entry = self._entries.get(object_id)
            if entry is None and future is not None:
                entry = OwnedValue(future, None)
            if entry is not None:
                entry.holds[number] = holder, self._me
                self._entries[object_id] = entry
        self._look_after(holder)

    def on_borrow(self, record: envelope.Record) -> None:
        """A value of ours was lent by another process, or is held there, it says."""
        holder, number = bodies.numbers(record.payload, 2)
        object_id, lender = record.call_id, record.sender
        self.enter(object_id, number, holder, lender)
        self._look_after(holder)
        if self._links.is_gone(lender) and _is_process(holder):
            self.audit.ask([(object_id, number, holder)])

    def enter(self, object_id: int, number: int, holder: int, lender: int) -> None:
        """Somebody has a hold of it."""
        with self._lock:
            entry = self._entries.get(object_id)
            if entry is not None:
                early = entry.early.pop(number, None) is not None
                if not early or holder == lender:
                    entry.holds[number] = holder, lender

    def on_release(self, record: envelope.Record) -> None:
        """A hold has ended elsewhere, or was not given after all."""
        (number,) = bodies.numbers(record.payload, 1)
        self.release(record.call_id, number)

    def release(self, object_id: int, number: int) -> None:
        """A hold has ended."""
        freed = None  # dies after the lock is given back
        with self._lock:
            entry = self._entries.get(object_id)
            if entry is not None:
                entry.release(number)
                freed = self._collected(object_id, entry)
        del freed

    def has_entered(self, object_id: int, number: int) -> bool:
        """Whether there is a hold of that number."""
        entry = self._entries.get(object_id)
        return entry is not None and number in entry.holds

    def entered(self, concerns: Callable[[int, int], bool]) -> list[Entered]:
        """The holds of processes of which `concerns(holder, lender)` is true."""
        with self._lock:
            return [
                (object_id, number, holder)
                # a copy, because `own` takes no lock
                for object_id, entry in list(self._entries.items())
                for number, (holder, lender) in entry.holds.items()
                if _is_process(holder) and concerns(holder, lender)
            ]

    def _look_after(self, holder: int) -> None:
        if holder in (PINNED, self._me):
            return
        self._links.watch(holder)
        # Looked at after it was entered: a later death has a notice of its own.
        if self._links.is_gone(holder):
            self.process_lost(holder)

    def process_lost(self, process_id: int) -> None:
        """Forget the holds of a dead process, and of the same actor's processes before
        it, and have those looked for that they have lent."""
        freed = []
        doubtful: list[Entered] = []
        with self._lock:
            for object_id, entry in list(self._entries.items()):
                for number, (holder, lender) in list(entry.holds.items()):
                    if died_with(holder, process_id):
                        del entry.holds[number]
                    elif died_with(lender, process_id) and _is_process(holder):
                        doubtful.append((object_id, number, holder))
                freed.append(self._collected(object_id, entry))
        del freed
        if doubtful:
            self.audit.ask(doubtful)

    def _collected(self, object_id: int, entry: OwnedValue) -> OwnedValue | None:
        """Take an entry out if nobody holds it. The lock is held."""
        return None if entry.holds else self._entries.pop(object_id, None)

    def held_results(self) -> list[tuple[int, int]]:
        """(object id, holder) of each result that another process holds."""
        return [
            (object_id, holder)
            for object_id, _, holder in self.entered(lambda holder, _: True)
            if holder != self._me
            and (stored := self.stored(object_id)) is not None
            and stored.of_call
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
