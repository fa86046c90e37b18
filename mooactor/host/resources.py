# SPDX-License-Identifier: MIT
"""The resources of a host, and their reservations: processors, GPUs and memory.

One for each agent. All sessions of a `mooactor host` reserve from the same; that of a
driver's agent is of its session alone, so it binds nobody to cores: the next program on
this machine would take the same ones. A reservation is of an actor, and stays until
that is over, also between restarts. Amounts are promises among actors; nothing limits
what one uses, but that it sees no other GPU than its own.

Of a `mooactor host`, an actor with whole CPUs reserved runs on that many cores, which
no other such actor has (`Cores`): on one NUMA node if one has enough left, because
memory of another node is slower. Other actors run wherever the kernel puts them.

Nothing here asks the driver of GPUs (`Devices`): it must not be initialised in the
process that forks actors. A GPU is a name that ``CUDA_VISIBLE_DEVICES`` understands,
and that variable hides all other GPUs from an actor.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from mooactor.process.needs import Amount
from mooactor.process.protocol import Life, packed
from mooactor.tensors.limits import cpu_quota, memory_in_reach, processors

Holder = tuple[str, int]  # the session, which has one guest here, and the actor's id


class Grant(NamedTuple):
    """The part of its host that an actor gets for itself."""

    variables: dict[str, str]  # for its environment
    cores: list[int]  # to run on; empty: on all

    def give(self, life: Life) -> Life:
        """The description of the actor's process, with that in it."""
        env = {**life.env, **packed(self.variables)}
        return replace(life, env=env, cores=self.cores)


class Resources:
    """The account of one host."""

    def __init__(
        self, total: Amount, devices: Devices, cores: Cores | None = None
    ) -> None:
        self.total = total
        self.devices = devices
        self.cores = cores or Cores(())
        self._reserved: dict[Holder, Amount] = {}
        self.changes = 0  # so far, for those that announce what is free

    @classmethod
    def of_this_host(
        cls,
        *,
        cpus: int | None = None,
        gpus: int | None = None,
        memory: int | None = None,
        binds: bool = True,
    ) -> Resources:
        """The offer; by default all that this process may use. `binds`: whether
        actors with whole CPUs get cores for themselves.

        Raises:
          ValueError: this host has fewer GPUs than that.
        """
        names = visible()
        if gpus is not None and gpus > len(names):
            raise ValueError(
                f"this host has {len(names)} GPUs, not {gpus}: offer at most that many"
            )
        names = names if gpus is None else names[:gpus]
        total = Amount(
            float(processors() if cpus is None else cpus),
            float(len(names)),
            float(memory if memory is not None else memory_in_reach()),
        )
        # A container with a quota runs on any core, and so do others beside it.
        cores = Cores.of_this_host() if binds and cpu_quota() is None else None
        return cls(total, Devices(names), cores)

    def take(self, holder: Holder, needs: Amount) -> Grant | None:
        """Reserve, for good. None if there is not enough left. An actor that has a
        reservation keeps it."""
        if holder in self._reserved or not needs:
            return Grant(self.devices.variables(holder), self.cores.of(holder))
        if not needs.fits(self.total - self.reserved()):
            return None
        variables = self.devices.take(holder, needs.gpus)
        if variables is None:
            return None
        self._reserved[holder] = needs
        self.changes += 1
        whole = needs.cpus == int(needs.cpus)
        return Grant(variables, self.cores.take(holder, int(needs.cpus) * whole))

    def give_back(self, holder: Holder) -> None:
        """An actor will not run here again; nothing happens if it has none."""
        self.changes += self._reserved.pop(holder, None) is not None
        self.devices.give_back(holder)
        self.cores.give_back(holder)

    def forget(self, session: str) -> None:
        """A session has ended."""
        for holder in [h for h in self._reserved if h[0] == session]:
            self.give_back(holder)

    def reserved(self, session: str | None = None) -> Amount:
        """The reservations of one session, or of all."""
        found = Amount()
        for (owner, _), amount in self._reserved.items():
            if session is None or owner == session:
                found += amount
        return found

    def by_session(self) -> dict[str, Amount]:
        """The reservations of each session."""
        sessions = {owner for owner, _ in self._reserved}
        return {one: self.reserved(one).shown() for one in sorted(sessions)}


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


VARIABLE = "CUDA_VISIBLE_DEVICES"
_ROUNDING = 1e-9  # three thirds are one GPU


class Devices:
    """Gives out whole GPUs, and parts of one.

    An actor with a whole one has it alone. Parts are a promise among actors: each sees
    the whole GPU, and nothing limits its use.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._free = dict.fromkeys(names, 1.0)
        self._held: dict[Hashable, dict[str, float]] = {}

    def take(self, holder: Hashable, count: float) -> dict[str, str] | None:
        """Give an actor `count` GPUs: a whole number, or a part of one.

        Returns the variables for its environment, None if there are too few free. An
        actor that asks for none sees all.
        """
        if not count:
            return {}
        names, share = list(self._free), min(1.0, count)
        found = chosen_of(list(self._free.values()), count)
        if found is None:
            return None
        chosen = [names[index] for index in found]
        for name in chosen:
            self._free[name] -= share
        self._held[holder] = dict.fromkeys(chosen, share)
        return self.variables(holder)

    def variables(self, holder: Hashable) -> dict[str, str]:
        """The variables for the environment of an actor that has some, or none."""
        held = self._held.get(holder)
        return {VARIABLE: ",".join(held)} if held else {}

    def give_back(self, holder: Hashable) -> None:
        """An actor will not run again; nothing happens if it has none."""
        for name, share in self._held.pop(holder, {}).items():
            self._free[name] += share

    @property
    def free(self) -> list[float]:
        """The free part of each GPU."""
        return list(self._free.values())

    def __str__(self) -> str:
        whole = sum(free > 1 - _ROUNDING for free in self._free.values())
        return f"{len(self._free)} GPUs, of which {whole} are free"


def chosen_of(free: Sequence[float], count: float) -> list[int] | None:
    """Choose the GPUs, by index, of which an actor gets `count`; None: too few have
    room. `free` is what of each is free. The fullest that has room is taken, so that
    whole ones stay whole."""
    share = min(1.0, count)
    room = [index for index, left in enumerate(free) if left > share - _ROUNDING]
    chosen = sorted(room, key=lambda index: free[index])[: max(1, int(count))]
    return None if len(chosen) < count else chosen


def without(free: Sequence[float], count: float) -> list[float]:
    """The rest that is free once an actor has got its `count`; there must be room for
    it."""
    chosen = chosen_of(free, count) if count else []
    assert chosen is not None
    share = min(1.0, count)
    return [left - share * (index in chosen) for index, left in enumerate(free)]


def visible(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The GPUs that a program with this environment would see, by name."""
    chosen = environment.get(VARIABLE)
    if chosen is None:
        return [str(number) for number in range(_installed())]
    names = []
    for name in map(str.strip, chosen.split(",")):
        if not name or name.startswith("-"):  # nothing behind it counts
            break
        names.append(name)
    return names


def set_for(variables: Mapping[str, str]) -> str | None:
    """`VARIABLE` in the environment of an actor of this host that is started with these
    variables; None: it is not set, and the actor sees all."""
    return variables.get(VARIABLE, os.environ.get(VARIABLE))


def _installed() -> int:
    try:
        entries = os.listdir("/dev")
    except OSError:
        return 0
    return sum(e.startswith("nvidia") and e[6:].isdigit() for e in entries)
