# SPDX-License-Identifier: MIT
"""The choice of hosts for actors.

Invariants:

* Reserved amounts never exceed what a host has, as far as its announcements are known
  here; the host itself has the last word.
* Several actors are placed together or not at all.
* The same hosts, in the same state, give the same choice.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Iterable, Sequence
from typing import Any

import msgspec

from mooactor.host import resources
from mooactor.process.needs import Amount, Needs

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
