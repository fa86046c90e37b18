# SPDX-License-Identifier: MIT
"""The cores of a `mooactor host`, and the actors that have some for themselves.

An actor with whole CPUs reserved runs on that many cores, which no other such actor
has: on one NUMA node if one has enough left, because memory of another node is slower.
Actors without a reservation, and those that a driver's own agent starts, run wherever
the kernel puts them.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Hashable, Iterable, Sequence


class Cores:
    """Gives out cores by number."""

    def __init__(
        self, cores: Iterable[int], nodes: Sequence[Iterable[int]] = ()
    ) -> None:
        """`nodes`: the cores of each NUMA node; those of none are one more node."""
        rest = set(cores)
        self._nodes: list[set[int]] = []
        for node in nodes:
            self._nodes.append(rest & set(node))
            rest -= self._nodes[-1]
        self._nodes = [node for node in (*self._nodes, rest) if node]
        self._free = [set(node) for node in self._nodes]
        self._held: dict[Hashable, set[int]] = {}

    @classmethod
    def of_this_host(cls) -> Cores:
        """Those that this process may use."""
        return cls(os.sched_getaffinity(0), list(_nodes()))

    def take(self, holder: Hashable, count: int) -> list[int]:
        """So many cores for an actor, as near to each other as possible; none at all if
        fewer are left, for then the kernel does better."""
        left = sum(map(len, self._free))
        if not count or count > left:
            return []
        # The fullest node with room for all, so that large requests find one, too.
        order = sorted(self._free, key=lambda node: (len(node) < count, len(node)))
        if len(order[0]) < count:
            order = sorted(self._free, key=len, reverse=True)
        chosen = [core for node in order for core in sorted(node)][:count]
        self._held[holder] = set(chosen)
        for node in self._free:
            node -= self._held[holder]
        return sorted(chosen)

    def of(self, holder: Hashable) -> list[int]:
        """Those that an actor has."""
        return sorted(self._held.get(holder, ()))

    def give_back(self, holder: Hashable) -> None:
        """An actor will not run again; nothing happens if it has none."""
        held = self._held.pop(holder, set())
        for whole, free in zip(self._nodes, self._free, strict=True):
            free |= held & whole


def _nodes() -> Iterable[list[int]]:
    for path in sorted(glob.glob("/sys/devices/system/node/node[0-9]*/cpulist")):
        try:
            with open(path) as file:
                yield parse_list(file.read())
        except OSError:
            continue


def parse_list(text: str) -> list[int]:
    """The numbers of a kernel's list such as ``0-3,8``."""
    found: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found += range(int(first), int(last or first) + 1)
    return found
