# SPDX-License-Identifier: MIT
"""The GPUs of a host, and the actors that have them.

Nothing here asks the driver: it must not be initialised in the process that forks
actors. A GPU is a name that ``CUDA_VISIBLE_DEVICES`` understands, and that variable
hides all other GPUs from an actor.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence

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
        """What of each GPU nobody has."""
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
    """What is free once an actor has got its `count`; there must be room for it."""
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
