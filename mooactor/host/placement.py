# SPDX-License-Identifier: MIT
"""The hosts on which a session has its actors, and the choice of one.

Its own host is always one of them, unless the driver offers nothing there. In a session
that has joined a broker, `Cluster` knows the others, and a host is asked to take part
when the first actor is placed there.

Invariants:

* Reserved amounts never exceed what a host has, as far as its announcements are known
  here; the host itself has the last word.
* Several actors are placed together or not at all.
* The same hosts, in the same state, give the same choice.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mooactor.host import resources
from mooactor.host.lifetimes import Supervised
from mooactor.host.remote import RemoteSite
from mooactor.host.resources import Grant, Resources
from mooactor.host.site import Process, Site
from mooactor.process.needs import Amount, Needs
from mooactor.process.protocol import Amounts, Configure, HostRow, Life

if TYPE_CHECKING:
    from mooactor.host.cluster import Cluster

_MOST_REASONS = 3  # of hosts that have refused


class NoPlace(Exception):
    """No choice is possible; its text says what exists and what is missing."""


class Candidate(msgspec.Struct):
    """A host, as a choice sees it. ``free`` counts what is reserved there, ``load`` the
    processors that actors of this session are expected to use. ``shares`` is what of
    each GPU is free; None: not known."""

    name: str
    total: Amount
    free: Amount
    load: float
    labels: dict[str, Any]
    here: bool  # it is the driver's
    strict: bool  # it reserves processors and memory, not only GPUs
    shares: Sequence[float] | None = None


def choose(
    candidates: Sequence[Candidate],
    needs: Needs,
    count: int = 1,
    refused: Container[str] = (),
) -> list[Candidate]:
    """A host for each of `count` actors with the same needs; none of those that have
    `refused` them.

    Raises:
      NoPlace: there is none for at least one of them. It says nothing of those that
        have refused them, and its text is empty if there are no others.
    """
    suitable = [one for one in candidates if _suits(one, needs)]
    if not suitable:
        raise NoPlace(_nowhere(candidates, needs))
    possible = [one for one in suitable if one.name not in refused]
    if not possible:
        raise NoPlace
    rest = [copy.copy(one) for one in possible]
    found: list[Candidate] = []
    for number in range(count):
        room = [one for one in rest if _has_room(one, needs.amount)]
        if not room:
            free = "; ".join(
                free_on(x.name, x.free, needs.amount, x.shares) for x in possible
            )
            raise NoPlace(lacks(needs, free, number, count))
        best = min(room, key=_packed if needs.pack else _spread)
        best.free -= needs.amount
        if best.shares is not None:
            best.shares = resources.without(best.shares, needs.amount.gpus)
        best.load += max(0.0, 1.0 - needs.amount.cpus)
        found.append(next(one for one in possible if one.name == best.name))
    return found


def _suits(one: Candidate, needs: Needs) -> bool:
    """Whether it could ever run such an actor."""
    named = not needs.host or needs.host == one.name
    labels = all(one.labels.get(key) == value for key, value in needs.labels.items())
    return named and labels and needs.amount.fits(one.total)


def _has_room(one: Candidate, amount: Amount) -> bool:
    asked = amount if one.strict else Amount(gpus=amount.gpus)
    return asked.fits(one.free) and _has_shares(one.shares, amount.gpus)


def _has_shares(shares: Sequence[float] | None, gpus: float) -> bool:
    """Whether that many GPUs, or a part of one, can be had together."""
    if shares is None or not gpus:
        return True
    return resources.chosen_of(shares, gpus) is not None


def _spread(one: Candidate) -> tuple[Any, ...]:
    """The most free processors first; among equals the driver's host."""
    return (-(one.free.cpus - one.load), not one.here, one.name)


def _packed(one: Candidate) -> tuple[Any, ...]:
    """The host with the fewest free processors, as long as it has some."""
    left = one.free.cpus - one.load
    return (left <= 0, left, not one.here, one.name)


def _nowhere(candidates: Sequence[Candidate], needs: Needs) -> str:
    names = _listed(one.name for one in candidates)
    if needs.host and all(one.name != needs.host for one in candidates):
        return (
            f"there is no host {needs.host!r} in this session; it has {names}: start "
            "`mooactor host` there, or name another one"
        )
    exists = "; ".join(_described(one) for one in candidates)
    where = f"on host {needs.host!r}" if needs.host else "on any host"
    remedy = _remedy(candidates, needs)
    return f"{needs} can never be had {where}; there is {exists}: {remedy}"


def _remedy(candidates: Sequence[Candidate], needs: Needs) -> str:
    """The next step after that. Of labels there is no less to be asked for."""
    only = Needs(host=needs.host, labels=needs.labels)
    if any(_suits(one, only) for one in candidates):
        return "ask for less"
    what = f"host {needs.host!r}" if needs.host else "a host"
    options = " ".join(f"--label {key}={value}" for key, value in needs.labels.items())
    return f"start {what} with `{options}`"


def free_on(
    host: str, free: Amount, asked: Amount, shares: Sequence[float] | None
) -> str:
    """The free resources of a host, as far as the kinds that are asked for. If GPUs
    have room together, but none alone, that is said."""
    text = f"{host}: {free.like(asked)}"
    if not shares or _has_shares(shares, asked.gpus):
        return text
    if not Amount(gpus=asked.gpus).fits(free):
        return text
    return f"{text} in parts of at most {max(shares):g}"


def lacks(needs: object, free: str, room: int, count: int) -> str:
    """Why `count` actors cannot have that now, and no more than `room` can; `free` says
    what there is, for each host."""
    what, said = f"{needs}", "all is reserved"
    if count > 1:
        what, said = f"{needs} for each of {count} actors", f"there is room for {room}"
        said += " of them"
    return f"{what}: {said} now, free is {free}; ask for less, or stop an actor"


def reasons(refusals: Iterable[str], why: str) -> str:
    """Why nobody takes it: what hosts have said, and `why` of those not asked."""
    return ". ".join([*list(refusals)[:_MOST_REASONS], *filter(None, [why])])


def _described(one: Candidate) -> str:
    labels = "".join(f", {key}={value}" for key, value in one.labels.items())
    return f"{one.name} with {one.total}{labels}"


def _listed(names: Iterable[str]) -> str:
    found = [repr(name) for name in names]
    if len(found) > 8:
        found = [*found[:8], f"{len(found) - 8} more"]
    return ", ".join(found) or "none"


OWN = "own"  # the session of this agent's driver, in this host's account
# -- all hosts of a session ------------------------------------------------------

_DIGITS = 6  # after the point, of what is shown


class _Place(NamedTuple):
    """Where an actor is placed, and for what."""

    site: Site | RemoteSite
    needs: Needs


class Sites:
    """See the module. A home places its actors; their hosts have the last word.

    Invariant: an actor is placed at a site, and its process is at that one. A host's
    name says nothing: a `mooactor host` with the name of this one may come and go
    meanwhile, and one that is lost may be back, as another site, before the old one is
    closed. An actor whose site is closed, or that may not be here any more, is placed
    anew when it starts: it may be placed long before, for a supervisor's child has to
    wait for its turn, and a group is placed before its members are spawned.
    """

    def __init__(self, here: Site, resources: Resources) -> None:
        self.here = here
        self._resources = resources
        self.cluster: Cluster | None = None  # set once the session has joined one
        self._config: Configure | None = None
        self._offers_here = True
        self._placed: dict[int, _Place] = {}  # by actor
        # By host: the processors that actors use unreserved, and what is reserved.
        self._used: dict[str, tuple[float, Amount]] = {}
        self._sites: dict[str, RemoteSite] = {}
        self._incarnations: dict[int, int] = {}  # of actors that were restarted

    def configure(self, config: Configure) -> None:
        """The session's options are known."""
        self._config = config
        self._offers_here = config.local

    # -- placement -----------------------------------------------------------

    def candidates(self) -> list[Candidate]:
        """All hosts that can have actors of this session now."""
        rows = []
        if self._is_here(self.here.host):
            free = self._resources.total - self._resources.reserved()
            rows += [
                self._candidate(
                    self.here.host,
                    self._resources.total,
                    free,
                    {},
                    self._resources.devices.free,
                )
            ]
        if self.cluster is not None and self._config is not None:
            for row in self.cluster.rows():
                if self._is_here(row.name):
                    continue
                mine = row.reserved.get(self._config.mark, Amount())
                # The part that others leave.
                free = row.total + mine
                for amount in row.reserved.values():
                    free -= amount
                shares = row.shares if self._is_all(row.name, mine) else None
                rows += [self._candidate(row.name, row.total, free, row.labels, shares)]
        return rows

    def _is_all(self, host: str, mine: Amount) -> bool:
        """Whether a host knew of all GPUs that this session has there, and of no more.
        If not, what it says of each GPU may be out of date."""
        _, now = self._used.get(host, (0.0, Amount()))
        told, own = Amount(gpus=mine.gpus), Amount(gpus=now.gpus)
        return told.fits(own) and own.fits(told)

    def rows(self) -> list[HostRow]:
        """The hosts for `moo.hosts()`, without their actors: those that can have some
        now, this one first and the others by name."""
        addresses = {}
        if self.cluster is not None:
            addresses = self.cluster.addresses(self.here.host)
        return [
            HostRow(
                one.name,
                addresses.get(one.name, ""),
                (total := _shown_of(one.total)).cpus,
                total.gpus,
                total.memory,
                one.labels,
                _shown_of(one.free),
                True,
                [],
            )
            for one in sorted(self.candidates(), key=_own_first)
        ]

    def offer(self) -> tuple[Amount, Amount]:
        """The resources of this host for this session alone, and what of it is free, as
        shown in the cluster. Nothing until the other hosts may be known: one of them
        could be a `mooactor host` of this name."""
        if self.cluster is None or not self._is_here(self.here.host):
            return Amount(), Amount()
        total = self._resources.total
        return total, total - self._resources.reserved()

    def files(self) -> list[tuple[int, str]]:
        """How many files the processes of each other host may open, and its name."""
        return [(site.files, name) for name, site in self._sites.items() if site.files]

    def _is_here(self, host: str) -> bool:
        """Whether actors on that host are this agent's own children."""
        if host != self.here.host or not self._offers_here:
            return False
        # A `mooactor host` of the same name has the cores of this machine.
        return not self._is_known(host)

    def _candidate(
        self,
        name: str,
        total: Amount,
        free: Amount,
        labels: dict[str, str],
        shares: Sequence[float] | None,
    ) -> Candidate:
        load, mine = self._used.get(name, (0.0, Amount()))
        if not self._is_here(name):
            free -= mine  # what others have is subtracted already
        here, strict = name == self.here.host, self.cluster is not None
        return Candidate(name, total, free, load, labels, here, strict, shares)

    def place(
        self, ids: Sequence[int], needs: Needs, refused: Container[str] = ()
    ) -> None:
        """Choose a host for each of these actors, and reserve there; `refused`: those
        that have not taken them.

        Raises:
          NoPlace: it cannot be done for all; then it is done for none.
        """
        found = choose(self.candidates(), needs, len(ids), refused)
        try:
            for actor_id, one in zip(ids, found, strict=True):
                here = self._is_here(one.name)
                site = self.here if here else self._site(one.name)
                self._placed[actor_id] = _Place(site, needs)
                self._count(one.name, needs, 1)
                if here and self._take(actor_id, needs) is None:
                    devices = self._resources.devices
                    raise NoPlace(f"{needs}: this host has {devices}")
        except NoPlace:
            self.unplace(ids)
            raise

    def _take(self, actor_id: int, needs: Needs) -> Grant | None:
        amount = needs.amount
        if self.cluster is None:  # alone, processors and memory are not reserved
            amount = Amount(gpus=amount.gpus)
        return self._resources.take((OWN, actor_id), amount)

    def unplace(self, ids: Sequence[int]) -> None:
        """Give back what was reserved for actors that will not run there (again)."""
        for actor_id in ids:
            if actor_id not in self._placed:
                continue
            site, needs = self._placed.pop(actor_id)
            self._count(site.host, needs, -1)
            self._resources.give_back((OWN, actor_id))
            if isinstance(site, RemoteSite):
                site.leave(actor_id)

    def _count(self, host: str, needs: Needs, sign: int) -> None:
        load, mine = self._used.get(host, (0.0, Amount()))
        load += sign * max(0.0, 1.0 - needs.amount.cpus)
        mine = mine + needs.amount if sign > 0 else mine - needs.amount
        self._used[host] = (load, mine)

    def is_placed(self, actor_id: int) -> bool:
        """Whether an actor has a host."""
        return actor_id in self._placed

    def ensure_place(
        self, actor_id: int, needs: Needs, refused: Container[str] = ()
    ) -> None:
        """Have an actor placed where it can start: anew, if it has no place or has lost
        it. `refused` is as in `place`.

        Raises:
          NoPlace: there is none; then it has none.
        """
        if self._has_moved(actor_id):
            self.unplace([actor_id])
        if not self.is_placed(actor_id):
            self.place([actor_id], needs, refused)

    def host_of(self, actor_id: int) -> str:
        """The name of an actor's host; empty if it has none."""
        placed = self._placed.get(actor_id)
        return "" if placed is None else placed.site.host

    # -- processes -----------------------------------------------------------

    def start(self, actor: Supervised, life: Life, fds: Sequence[int]) -> Process:
        """Have the next process of an actor started on its host.

        Raises:
          OSError, TypeError: that is not possible there.
          NoPlace: its host is gone, and there is no other one for it.
        """
        self.ensure_place(actor.id, actor.needs, actor.denials)
        site, needs = self._placed[actor.id]
        site.preload(actor.request.preload)
        if isinstance(site, RemoteSite):
            return site.start(life, fds, needs.amount)
        grant = self._take(actor.id, needs) or Grant({}, [])
        return site.start(grant.give(life), fds)

    def _has_moved(self, actor_id: int) -> bool:
        """Whether it is placed where it cannot start any more."""
        placed = self._placed.get(actor_id)
        if placed is None:
            return False
        if isinstance(placed.site, RemoteSite):
            return placed.site.closed
        return not self._is_here(placed.site.host)

    def _is_known(self, host: str) -> bool:
        """Whether a `mooactor host` of that name is in the cluster."""
        return self.cluster is not None and self.cluster.has(host)

    def _site(self, host: str) -> RemoteSite:
        """The session's part on another host, opened on first use."""
        site = self._sites.get(host)
        if site is None or site.closed:
            assert self.cluster is not None and self._config is not None
            site = self._sites[host] = self.cluster.open(host, self._config)
            for actor_id, incarnation in self._incarnations.items():
                site.note(actor_id, incarnation)
        return site

    def note(self, actor_id: int, incarnation: int | None) -> None:
        """An actor's next process is that incarnation; None: it is over. For processes
        of other hosts that have an old handle."""
        if incarnation is not None:
            self._incarnations[actor_id] = incarnation
        elif self._incarnations.pop(actor_id, None) is None:
            return  # it was never restarted
        for site in self._sites.values():
            site.note(actor_id, incarnation)

    def of(self, actor: Supervised) -> Site | RemoteSite:
        """Where an actor has its process."""
        return self._placed[actor.id].site

    def kill(self, actor: Supervised) -> None:
        """Kill its process, which is born."""
        assert actor.process is not None
        self.of(actor).kill(actor.process)

    def disown(self, actor: Supervised, process: Process) -> None:
        """Its process is not born yet, and not wanted any more."""
        self.of(actor).disown(process)

    def closed(self, site: RemoteSite) -> None:
        """A host has no process of this session any more: its actors may be placed
        anew, but for those that have been started elsewhere since."""
        if self._sites.get(site.host) is site:
            del self._sites[site.host]
        self.unplace([i for i, placed in self._placed.items() if placed.site is site])

    def close(self) -> None:
        """The session is over on every host."""
        for site in list(self._sites.values()):
            site.close()
        if self.cluster is not None:
            self.cluster.close()
        self.here.close()


def _own_first(one: Candidate) -> tuple[bool, str]:
    return not one.here, one.name


def _shown_of(amount: Amount) -> Amounts:
    return Amounts(_shown(amount.cpus), _shown(amount.gpus), round(amount.memory))


def _shown(number: float) -> float:
    """The number that is meant: sums of fractions such as 0.1 are a little beside."""
    near = round(number, _DIGITS)
    return int(near) if near == int(near) else near
