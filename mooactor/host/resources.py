# SPDX-License-Identifier: MIT
"""What a host has, and what of it is reserved: processors, GPUs and memory.

One for each agent. All sessions of a `mooactor host` reserve from the same; that of a
driver's agent is of its session alone, so it binds nobody to cores: the next program on
this machine would take the same ones. A reservation is of an actor, and stays until
that is over, also between restarts. Amounts are promises among actors; nothing limits
what one uses, but that it sees no other GPU than its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from mooactor.host.cores import Cores
from mooactor.host.devices import Devices, visible
from mooactor.process.needs import Amount
from mooactor.process.protocol import Life, packed
from mooactor.tensors.limits import cpu_quota, memory_in_reach, processors

Holder = tuple[str, int]  # the session, which has one guest here, and the actor's id


class Grant(NamedTuple):
    """What an actor gets of its host for itself."""

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
        """What is offered; by default all that this process may use. `binds`: whether
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

    def take_all(self, holders: Sequence[Holder], needs: Amount) -> int:
        """Reserve as much for each of them, or nothing. For how many there is room."""
        taken: list[Holder] = []
        for number, holder in enumerate(holders):
            had = holder in self._reserved
            if self.take(holder, needs) is None:
                for one in taken:
                    self.give_back(one)
                return number
            if not had:
                taken.append(holder)
        return len(holders)

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
        """What is reserved, by one session or by all."""
        found = Amount()
        for (owner, _), amount in self._reserved.items():
            if session is None or owner == session:
                found += amount
        return found

    def by_session(self) -> dict[str, Amount]:
        """What each session has reserved."""
        sessions = {owner for owner, _ in self._reserved}
        return {one: self.reserved(one).shown() for one in sorted(sessions)}
