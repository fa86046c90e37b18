# SPDX-License-Identifier: MIT
"""One of several processes that send each other random data all the time."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from mooactor.tensors.fetches import Fetch
from tests.transports import worker

MB = 1 << 20
LARGEST = 16 * MB
_KEPT = 4  # received things that are held on to, to be sent on


class Parcel(NamedTuple):
    """What one sent another."""

    descriptor: bytes
    nbytes: int
    digest: bytes


class Role(worker.Role):
    """Its `step` is one round: begin to receive, send, see what has come."""

    def __init__(self, directory: str, process_id: int, **options: Any) -> None:
        super().__init__(directory, process_id, **options)
        self._chance = random.Random(process_id)
        self._pool = np.random.default_rng(process_id).bytes(2 * LARGEST)
        self._into = bytearray(LARGEST)
        self._under_way: list[tuple[Fetch, Parcel]] = []
        self._kept: list[tuple[memoryview, Parcel]] = []
        self._count: Counter[str] = Counter()

    def step(self, parcels: list[Parcel], to: list[int]) -> list[Parcel]:
        """Take in `parcels`, and make one for each of the others in `to`."""
        earlier, self._under_way = self._under_way, []
        for parcel in parcels:
            self._begin(parcel)
        made = [self._make(receiver) for receiver in to]
        for fetch, parcel in earlier:
            self._end(fetch, parcel)
        return made

    def rest(self) -> None:
        """Receive what is under way, and hold on to nothing."""
        for fetch, parcel in self._under_way:
            self._end(fetch, parcel)
        self._under_way.clear()
        self._kept.clear()

    def counts(self) -> Counter[str]:
        return self._count

    def _begin(self, parcel: Parcel) -> None:
        what = self._chance.random()
        if what < 0.03:
            self.plane.discard(parcel.descriptor)
            self._count["discarded"] += 1
        elif what < 0.1:
            into = memoryview(self._into)[: parcel.nbytes]
            self._end(self.plane.begin(parcel.descriptor, out=into), parcel)
        else:
            fetch = self.plane.begin(parcel.descriptor)
            self._under_way.append((fetch, parcel))

    def _end(self, fetch: Fetch, parcel: Parcel) -> None:
        if self._chance.random() < 0.05:
            fetch.wait(self._chance.random() * 0.005)
            fetch.cancel()
            self._count["cancelled"] += 1
            return
        got = fetch.result(worker.PATIENCE_S)
        if _digest(got) != parcel.digest:
            raise AssertionError(f"{parcel.nbytes} bytes came as others")
        self._count["arrived"] += 1
        self._count["bytes"] += parcel.nbytes
        if got.obj is not self._into and self._chance.random() < 0.3:
            self._kept.append((got, parcel))
            del self._kept[:-_KEPT]

    def _make(self, to: int) -> Parcel:
        self._count["sent"] += 1
        what = self._chance.random()
        if what < 0.2 and self._kept:
            data, kept = self._chance.choice(self._kept)
            return Parcel(self.plane.export(data, to), kept.nbytes, kept.digest)
        nbytes = int(2 ** self._chance.uniform(0, LARGEST.bit_length() - 1))
        start = self._chance.randrange(LARGEST)
        private = memoryview(self._pool)[start : start + nbytes]
        memory: Any = private
        if what < 0.6:
            memory = self.plane.empty_buffer(nbytes)
            memory[:] = private
        moved = what < 0.3 and memory is not private
        descriptor = self.plane.export(memory, to, moved=moved)
        if what > 0.5 and memory is not private:
            memory[0] ^= 255  # nobody may see this
        return Parcel(descriptor, nbytes, _digest(private))


def _digest(data: memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
