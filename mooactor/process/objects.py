# SPDX-License-Identifier: MIT
"""Values that outlive a call: what `moo.put` stored, and results that were handed on.

The process that made a value owns it and counts who borrows it. Counts are signed:
a third process may give back before its lender's note that it borrowed arrives; an
object goes when nobody here holds it and all counts are zero.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from mooactor import errors
from mooactor.control import codec
from mooactor.control.envelope import pack_attached
from mooactor.process.outcome import Outcome
from mooactor.tensors.plane import DataPlane

LARGE = 1 << 18  # bytes
PINNED = 0  # the "borrower" of a Ref that was pickled for nobody in particular


class Stored:
    """A value encoded once; each receiver gets the same memory, not a copy."""

    def __init__(self, data: bytes, buffers: Sequence[Any], plane: DataPlane) -> None:
        self._data = data
        self._plane: DataPlane | None = plane
        self._buffers = [plane.share(buffer) for buffer in buffers]
        self.plan: Any = None  # of how it is spread; see `spread`

    @property
    def is_large(self) -> bool:
        """Whether a second crossing of a network costs more than being told of it."""
        return sum(map(len, self._buffers)) >= LARGE

    def payload_for(self, process_id: int) -> tuple[bytes, bool]:
        """(payload, whether it has attachments) for one receiver."""
        if not self._buffers:
            return self._data, False
        return pack_attached(self.descriptors_for(process_id), self._data), True

    def descriptors_for(self, process_id: int) -> list[bytes]:
        """A lease of each buffer for one receiver. Waits for no contact."""
        plane = self._open_plane()
        return [plane.export(b, process_id, wait=False) for b in self._buffers]

    def _open_plane(self) -> DataPlane:
        if self._plane is None:
            raise errors.ActorUnavailable("the session of this value has ended")
        return self._plane

    def close(self) -> None:
        """Let go of the memory; the value cannot be had any more."""
        self._buffers.clear()
        self._plane = None

    def value(self) -> Any:
        """Decode it here: a view of the same memory, private on write."""
        plane = self._open_plane()
        buffers = [
            plane.import_(plane.export(buffer, plane.process_id))
            for buffer in self._buffers
        ]
        return codec.decode(self._data, buffers=buffers)


class Entry:
    """One value: a stored one, or the result of a call."""

    __slots__ = ("outcome", "stored", "held", "borrows")

    def __init__(self, outcome: Outcome | None, stored: Stored | None) -> None:
        self.outcome = outcome
        self.stored = stored
        self.held = 0 if stored is None else 1  # by how many local Refs
        self.borrows: dict[int, int] = {}


class ObjectTable:
    """The values that this process owns and others may ask for."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._dropped: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def add_stored(self, stored: Stored) -> int:
        """Own a stored value, held by one local Ref until `drop_local`."""
        self.sweep()
        object_id = next(self._ids)
        self._entries[object_id] = Entry(None, stored)
        return object_id

    def adopt(self, outcome: Outcome) -> int:
        """Own the result of a call, present or to come, for those who borrow it."""
        object_id = next(self._ids)
        self._entries[object_id] = Entry(outcome, None)
        return object_id

    def borrow(self, object_id: int, process_id: int, count: int) -> None:
        """Add to what `process_id` holds; a negative count gives back."""
        self.sweep()
        with self._lock:
            entry = self._entries.get(object_id)
            if entry is None:
                return
            total = entry.borrows.get(process_id, 0) + count
            if total:
                entry.borrows[process_id] = total
            else:
                entry.borrows.pop(process_id, None)
            self._collect(object_id, entry)

    def come_home(self, object_id: int, process_id: int) -> Entry | None:
        """A Ref that was lent returns to its owner: what it stands for, with the loan
        settled. A stored value is held by one more local Ref from here on."""
        with self._lock:
            entry = self._entries.get(object_id)
            if entry is not None and entry.stored is not None:
                entry.held += 1
        self.borrow(object_id, process_id, -1)
        return entry

    def drop_local(self, object_id: int) -> None:
        """The local Ref is gone. Called by the garbage collector, which may strike
        while a lock is held: so only a note is made, and `sweep` acts on it."""
        self._dropped.append(object_id)

    def sweep(self) -> None:
        """Free what the garbage collector reported."""
        while self._dropped:
            object_id = self._dropped.popleft()
            with self._lock:
                entry = self._entries.get(object_id)
                if entry is not None:
                    entry.held -= 1
                    self._collect(object_id, entry)

    def process_lost(self, process_id: int) -> None:
        """Forget what a dead process held."""
        with self._lock:
            for object_id, entry in list(self._entries.items()):
                if entry.borrows.pop(process_id, None) is not None:
                    self._collect(object_id, entry)

    def _collect(self, object_id: int, entry: Entry) -> None:
        if not entry.held and not entry.borrows:
            del self._entries[object_id]

    def close(self) -> None:
        """The session ends: let go of everything."""
        for entry in self._entries.values():
            if entry.stored is not None:
                entry.stored.close()
        self._entries.clear()

    def stored(self, object_id: int) -> Stored | None:
        entry = self._entries.get(object_id)
        return entry.stored if entry else None

    def outcome(self, object_id: int) -> Outcome | None:
        entry = self._entries.get(object_id)
        return entry.outcome if entry else None
