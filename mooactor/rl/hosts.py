# SPDX-License-Identifier: MIT
"""Runs on several hosts: the session, and which host gets which actor.

Learners and the supply are on the driver's host, where learners share memory. Actors
are on all hosts, each on a host of its own choice for the whole run: when that host is
lost, its actors wait until it is back, and the others play on. A host that joins later
gets actors, too: see `Newcomers`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from mooactor import MooError, Restart, hosts, init
from mooactor.rl.settings import SettingsError

HostRow = Mapping[str, Any]  # of `mooactor.hosts()`
#: Of the actors of a run. Whether an actor dies too often is for the supply to say,
#: which knows if it plays in between (`supply.MOST_FAILURES`). So this limit is out of
#: reach: it would end a run for ten deaths in thousands of unrolls.
RESTART = Restart(max=1_000_000, within=600)


@contextmanager
def session(address: str | None) -> Iterator[list[dict[str, Any]]]:
    """A session for a run; gives the rows of its hosts, the driver's first.

    Args:
      address: a broker's; None: that of ``MOOACTOR_ADDRESS``, or this machine alone.

    Raises:
      SettingsError: it cannot begin.
    """
    try:
        running = init(address)
    except (MooError, ValueError, OSError) as error:
        raise SettingsError(str(error)) from error
    with running:
        yield hosts()


def is_joined(address: str | None) -> bool:
    """Whether `session` with this address is of a cluster, of however many hosts."""
    return bool(address or os.environ.get("MOOACTOR_ADDRESS"))


def spread_actors(rows: Sequence[HostRow], actors: int) -> tuple[str, ...]:
    """The host of each actor: the one with the most CPUs per actor that it would have.

    The first of ``rows`` comes first among equals. Hosts without CPUs get none.

    Raises:
      SettingsError: no host has CPUs.
    """
    usable = [row for row in rows if row["cpus"] > 0]
    if not usable:
        raise SettingsError("no host offers CPUs: start one with more --num-cpus")
    counts = {str(row["name"]): 0 for row in usable}
    cpus = {str(row["name"]): float(row["cpus"]) for row in usable}
    for _ in range(actors):
        best = max(counts, key=lambda name: cpus[name] / (counts[name] + 1))
        counts[best] += 1
    return tuple(name for name, count in counts.items() for _ in range(count))


class Newcomers:
    """Hosts that join during a run, and the actors that they get: one per CPU, as long
    as all of the run together are at most ``most``.

    Args:
      known: the hosts that have their actors already.
      actors: the number of these.
    """

    def __init__(self, known: Iterable[str], actors: int, most: int) -> None:
        self._known = set(known)
        self._next, self._most = actors, most

    def look(self, rows: Sequence[HostRow]) -> list[tuple[int, str]]:
        """The number and the host of each actor to be added now.

        ``rows`` are those of `mooactor.hosts`. The caller starts them all.
        """
        found = []
        for row in rows:
            name, cpus = str(row["name"]), int(row["cpus"])
            if cpus < 1 or name in self._known:
                continue
            self._known.add(name)
            for _ in range(min(cpus, self._most - self._next)):
                found.append((self._next, name))
                self._next += 1
        return found
