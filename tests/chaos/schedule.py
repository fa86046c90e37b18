# SPDX-License-Identifier: MIT
"""The faults of a chaos run: chosen in advance from a seed, the same ones each time.

A run is a sequence of acts. Each act is one session, with a driver of its own, and ends
well or by a kill; the checker reads its histories before the next one begins.
"""

from __future__ import annotations

import random
from typing import NamedTuple

#: Actors that are killed and stopped, by their roles in tests/chaos/workload.py.
VICTIMS = (
    *("w0", "w1", "w2", "v0", "v1", "g.0", "g.1", "g.2", "claim0", "claim1"),
    *("t0", "t1", "t2", "t3") * 2,
)
#: How often each kind of fault comes, in relation to the others.
HERE = {
    "kill-actor": 8,
    "stop-actor": 2,
    "stop-driver": 1,
    "stop-agent": 1,
    "stop-zygote": 1,
    "kill-zygote": 2,
}
BETWEEN_HOSTS = {
    "kill-host": 2,
    "kill-broker": 2,
    "stop-host": 1,
    "stop-broker": 1,
    "cut-short": 2,
    "cut-long": 1,
    "swallow-short": 2,
    "swallow-long": 1,
    "loss": 1,
}
#: How long each lasts. Nothing lasts for about the three seconds of the patience.
SECONDS = {
    "stop": 2.0,
    "cut-short": 1.0,
    "swallow-short": 1.0,
    "cut-long": 7.0,
    "swallow-long": 7.0,
    "loss": 5.0,
    "kill-host": 1.0,  # until it is started again
    "kill-broker": 1.0,
}
ACT_S = 20.0
_GAPS_S = (0.2, 1.6)


class Fault(NamedTuple):
    """A fault and its victim, so many seconds after the act's load has begun."""

    at: float
    kind: str
    target: str
    seconds: float

    def __str__(self) -> str:
        lasting = f" for {self.seconds:g} s" if self.seconds else ""
        return f"{self.at:6.2f} s  {self.kind} {self.target}{lasting}"


class Act(NamedTuple):
    """One session. `end`: "finish", "kill-driver" or "kill-agent"."""

    number: int
    seed: str
    seconds: float
    faults: list[Fault]
    end: str

    def __str__(self) -> str:
        title = f"act {self.number}: {self.seconds:g} s, then {self.end}"
        return "\n".join([title, *(f"  {fault}" for fault in self.faults)])


def acts(seed: int, seconds: float, hosts: list[str]) -> list[Act]:
    """The acts of a run: it lasts so long, beside their beginnings and ends.

    Args:
      hosts: those that can be killed and cut off; none on one machine.
    """
    number = max(1, round(seconds / ACT_S))
    return [_act(seed, n, seconds / number, hosts) for n in range(number)]


def _act(seed: int, number: int, seconds: float, hosts: list[str]) -> Act:
    own = f"{seed}/{number}"
    chance = random.Random(own)
    kinds = {**HERE, **(BETWEEN_HOSTS if hosts else {})}
    faults: list[Fault] = []
    at = chance.uniform(*_GAPS_S)
    while at < seconds:
        (kind,) = chance.choices(list(kinds), list(kinds.values()))
        faults.append(Fault(round(at, 2), kind, _target(chance, kind, hosts), _s(kind)))
        at += chance.uniform(*_GAPS_S)
    ends = ["finish", "finish", "kill-driver", "kill-agent"]
    return Act(number, own, seconds, faults, ends[number % 4])


def _s(kind: str) -> float:
    return SECONDS.get(kind, SECONDS.get(kind.partition("-")[0], 0.0))


def _target(chance: random.Random, kind: str, hosts: list[str]) -> str:
    what, _, whom = kind.partition("-")
    if whom == "actor":
        return chance.choice(VICTIMS)
    if what == "swallow":
        return " ".join(chance.sample(hosts, 2))
    if what in ("cut", "loss") or whom == "host":
        return chance.choice(hosts)
    return whom
