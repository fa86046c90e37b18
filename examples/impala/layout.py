# SPDX-License-Identifier: MIT
"""`Layout`: how many actors, learners and environments a machine gets, or a cluster.

The result of learning depends on the settings alone. A larger machine gets more actors
with fewer environments each, and more learners with smaller parts of the same batch.
Several hosts get as many actors as one machine with all their cores. The supply is on
the driver's host, and so are the learners, which share memory there, unless a number of
learners is asked for: those are spread over the hosts. Each actor and each learner is
on one host for the whole run: when that host is lost, they wait until it is back, and
the others go on. A host that joins later gets actors, too, and a learner if a number of
them is asked for: see `Newcomers`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch

import mooactor as moo
from impala.settings import SettingsError, SupplySettings, Within
from mooactor.tensors.limits import processors

UNROLLS_IN_PLAY = 4  # environments for each unroll of the batch
MOST_ENVIRONMENTS = 16  # in one actor
CORES_PER_LEARNER = 4
LEAST_LOCAL_BATCH = 2  # unrolls for one learner, unless the settings say less

HostRow = Mapping[str, Any]  # of `moo.hosts()`


@dataclass(frozen=True)
class LayoutSettings:
    """How the work is divided among processes."""

    connect: str | None = None
    """A broker's address, such as tcp://10.0.0.5:4431: run on the hosts of its cluster.
    Default: what MOOACTOR_ADDRESS says, which `mooactor run` sets, or this machine
    alone."""
    actors: Annotated[int | None, Within(1)] = None
    """Processes that step environments. Default: one per core, of all hosts, at most as
    many as unrolls may be in flight; hosts that join during the run get theirs, too."""
    learners: Annotated[int | None, Within(1)] = None
    """Processes that learn and average gradients, spread over the hosts; a host that
    joins during the run gets one more, up to one per unroll of the batch. Default: on
    the driver's host one per GPU, or without GPU one per four cores, at most one per
    two unrolls of the batch. With GPUs each learner has one of its own."""
    envs_per_actor: Annotated[int | None, Within(1)] = None
    """Environments in each actor, stepped in two halves where the number is even.
    Default: four for each unroll in the batch, shared among the actors, at most 16."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where learners compute. Actors always choose actions on the CPU."""


@dataclass(frozen=True)
class Layout:
    """The processes of a run, all numbers decided.

    Attributes:
      in_flight: calls to actors whose unrolls no learner has taken yet, at most.
      hosts: all of them, the driver's first; empty on one machine.
      learner_hosts, actor_hosts: the host of each; no name on one machine.
      most_learners, most_actors: with those that hosts bring that join during the run.
    """

    cores: int
    actors: int
    learners: int
    envs_per_actor: int
    device: Literal["cpu", "cuda"]
    in_flight: int
    hosts: tuple[str, ...]
    learner_hosts: tuple[str, ...]
    actor_hosts: tuple[str, ...]
    most_learners: int
    most_actors: int

    @property
    def home(self) -> str:
        """The host of the driver and of the supply; empty on one machine."""
        return self.hosts[0] if self.hosts else ""

    def newcomers(self) -> tuple[Newcomers, Newcomers]:
        """The learners and the actors that come with hosts."""
        return (
            Newcomers(self.hosts, self._learners_on, self.learners, self.most_learners),
            Newcomers(
                self.hosts, lambda row: int(row["cpus"]), self.actors, self.most_actors
            ),
        )

    def _learners_on(self, row: HostRow) -> int:
        return int(row["gpus"] if self.device == "cuda" else row["cpus"] >= 1)

    def decided(self) -> dict[str, int]:
        """The numbers that `LayoutSettings` may leave open, by their names there."""
        names = ("actors", "learners", "envs_per_actor")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        hosts = len(self.hosts)
        where = f" on {hosts} host{'s' * (hosts > 1)}" if hosts else ""
        return (
            f"{self.cores} cores{where}: {self.actors} actors of {self.envs_per_actor} "
            f"environments, {self.learners} learners on {self.device}"
        )


def choose_layout(
    settings: LayoutSettings,
    batch: int,
    supply: SupplySettings,
    *,
    cores: int | None = None,
    gpus: int | None = None,
    hosts: Sequence[HostRow] = (),
) -> Layout:
    """Divide updates of ``batch`` unrolls among processes.

    ``supply`` says how many unrolls may be in flight. ``cores`` and ``gpus`` are those
    of this machine unless they are given. ``hosts`` are the rows of `mooactor.hosts`,
    this machine's first. If there are several, or more may join, actors get the cores
    of all.

    Raises:
      SettingsError: ``settings`` do not go together, or not with this machine.
    """
    cores = processors() if cores is None else cores
    own_cores = cores
    many = len(hosts) > 1 or (len(hosts) == 1 and is_joined(settings.connect))
    if many:
        cores = sum(int(row["cpus"]) for row in hosts)
        own_cores = int(hosts[0]["cpus"])
    if settings.device == "cpu":
        gpus = 0
    elif many and settings.learners:
        gpus = sum(int(row.get("gpus", 0)) for row in hosts)
    elif gpus is None:
        gpus = torch.cuda.device_count()
    if settings.device == "cuda" and not gpus:
        raise SettingsError("--device cuda, but torch sees no GPU here")
    most = supply.lag * batch
    actors = settings.actors or max(1, min(cores, most))
    wanted = gpus or max(
        1, min(own_cores // CORES_PER_LEARNER, batch // LEAST_LOCAL_BATCH)
    )
    learners = settings.learners or _divisor(batch, wanted)
    environments = settings.envs_per_actor or min(
        MOST_ENVIRONMENTS, most, max(1, UNROLLS_IN_PLAY * batch // actors)
    )
    if gpus and learners > gpus:
        raise SettingsError(
            f"--learners {learners}: each needs a GPU of its own, and torch sees "
            f"{gpus} here; lower --learners to that, or choose --device cpu"
        )
    if learners > batch:
        raise SettingsError(f"--batch {batch} is too small for {learners} learners")
    if supply.deterministic and batch % learners:
        raise SettingsError(
            f"--deterministic: --batch {batch} does not split over {learners} learners"
        )
    if environments > most:
        raise SettingsError(
            f"--envs-per-actor {environments}: one call brings more than the {most} "
            "unrolls that may be in flight; raise --batch or --lag"
        )
    if supply.lag > supply.max_lag:
        raise SettingsError(
            f"--lag {supply.lag} with --max-lag {supply.max_lag}: unrolls would be "
            "dropped as too old; lower --lag or raise --max-lag"
        )
    if supply.deterministic and actors < learners:
        raise SettingsError(
            f"--deterministic: {learners} learners need at least as many actors"
        )
    names = tuple(str(row["name"]) for row in hosts) if many else ()
    learner_hosts = (names[0] if many else "",) * learners
    if many and settings.learners:
        # On the CPU each host has one before any has two: then the loss of a host
        # leaves the others with the weights.
        each = (
            hosts if gpus else [{**row, "cpus": int(row["cpus"] > 0)} for row in hosts]
        )
        learner_hosts = spread(each, learners, "gpus" if gpus else "cpus")
    grows = many and not supply.deterministic
    return Layout(
        cores=cores,
        actors=actors,
        learners=learners,
        envs_per_actor=environments,
        device="cuda" if gpus else "cpu",
        in_flight=most // environments,
        hosts=names,
        learner_hosts=learner_hosts,
        actor_hosts=spread(hosts, actors) if many else ("",) * actors,
        most_learners=batch if grows and settings.learners else 0,
        most_actors=most // environments if grows and settings.actors is None else 0,
    )


def share(batch: int, learners: int) -> int:
    """The unrolls that each of so many learners contributes to each ``batch``.

    It divides the batch, so contributions of some learners always add up to it.
    """
    return _divisor(batch, max(1, batch // learners))


def _divisor(number: int, most: int) -> int:
    """The largest divisor of ``number`` that is at most ``most``."""
    return max(d for d in range(1, number + 1) if number % d == 0 and d <= most)


# -- hosts --


@contextmanager
def session(address: str | None) -> Iterator[list[dict[str, Any]]]:
    """A session for a run; gives the rows of its hosts, the driver's first.

    Args:
      address: a broker's; None: that of ``MOOACTOR_ADDRESS``, or this machine alone.

    Raises:
      SettingsError: it cannot begin.
    """
    try:
        running = moo.init(address)
    except (moo.MooError, ValueError, OSError) as error:
        raise SettingsError(str(error)) from error
    with running:
        yield moo.hosts()


def is_joined(address: str | None) -> bool:
    """Whether `session` with this address is of a cluster, of however many hosts."""
    return bool(address or os.environ.get("MOOACTOR_ADDRESS"))


def spread(
    rows: Sequence[HostRow], processes: int, resource: str = "cpus"
) -> tuple[str, ...]:
    """The host of each process: the one with the most CPUs for each that it would have,
    or GPUs, if these are the ``resource``.

    The first of ``rows`` comes first among equals. Hosts without CPUs get none.

    Raises:
      SettingsError: no host has CPUs.
    """
    usable = [row for row in rows if row[resource] > 0]
    if not usable:
        raise SettingsError("no host offers CPUs: start one with more --num-cpus")
    counts = {str(row["name"]): 0 for row in usable}
    has = {str(row["name"]): float(row[resource]) for row in usable}
    for _ in range(processes):
        best = max(counts, key=lambda name: has[name] / (counts[name] + 1))
        counts[best] += 1
    return tuple(name for name, count in counts.items() for _ in range(count))


class Newcomers:
    """Processes of a kind that come with hosts that join during a run.

    Args:
      known: the hosts that have theirs already.
      on_host: how many a host gets, as long as there are not too many.
      there: the number of all of them so far.
      most: the number of all of them, at most.
    """

    def __init__(
        self,
        known: Iterable[str],
        on_host: Callable[[HostRow], int],
        there: int,
        most: int,
    ) -> None:
        self._known = set(known)
        self._on_host = on_host
        self._next, self._most = there, most

    def look(self, rows: Sequence[HostRow]) -> list[tuple[int, str]]:
        """The number and the host of each process to be added now.

        ``rows`` are those of `moo.hosts`. The caller starts them all.
        """
        found = []
        for row in rows:
            name, wanted = str(row["name"]), self._on_host(row)
            if wanted < 1 or name in self._known:
                continue
            self._known.add(name)
            for _ in range(min(wanted, self._most - self._next)):
                found.append((self._next, name))
                self._next += 1
        return found
