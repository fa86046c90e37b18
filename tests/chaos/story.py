# SPDX-License-Identifier: MIT
"""`Story`: the events of a chaos run, sorted out for the rules of the checker.

It also knows which deaths had a reason. A *trouble* of an actor is a time from a fault
that ends one of its processes until a while after the next one is born; calls may end
with the errors of a death in it, and at no other time. A short cut or a stopped process
is no trouble: it must heal.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from mooactor import times
from tests.chaos.history import Event

#: For news of a death and of a restart to reach every process, on a machine that is
#: busy and whose processes are stopped for a while.
SLACK_S = 10.0
#: Hosts that hear nothing of each other for so long are dead to each other.
PATIENCE_S = times.CHANNEL_SILENCE_S
#: The time they need to find each other again. Silences with less between them are one.
RECOVERY_S = 1.0
#: The time they need more where packets get lost: two of a connection's first packets
#: are said again after 0.2 and 0.4 s. Two of 100 then do not come within 0.7 s, here.
LOSSY_S = 0.6
#: A silence up to this must do no harm.
HARMLESS_S = PATIENCE_S - RECOVERY_S / 2
#: Methods that end their process.
FATAL = frozenset({"die"})


class Birth(NamedTuple):
    """One process of an actor, or the driver."""

    who: str
    t: float
    actor: str  # "" for the driver
    incarnation: int
    pid: int
    host: str


class Span(NamedTuple):
    """A time, in which an actor has trouble, say."""

    start: float
    end: float

    def touches(self, start: float, end: float) -> bool:
        return self.start <= end and start <= self.end


@dataclass
class Call:
    """A call, with all that was noted of it."""

    sent: Event
    ended: list[Event] = field(default_factory=list)
    ran: list[Event] = field(default_factory=list)
    done: list[Event] = field(default_factory=list)
    items: list[Event] = field(default_factory=list)

    @property
    def id(self) -> str:
        return str(self.sent.call)

    @property
    def tell(self) -> bool:
        return bool(self.sent.facts.get("tell"))

    @property
    def retries(self) -> int:
        return int(self.sent.facts.get("retries", 0))

    @property
    def timeout(self) -> float:
        return float(self.sent.facts.get("timeout") or math.inf)

    def events(self) -> list[Event]:
        parts = (self.ended, self.ran, self.done, self.items)
        return sorted([self.sent, *(event for part in parts for event in part)])

    def __str__(self) -> str:
        return f"call {self.id} of {self.sent.method} to {self.sent.to}"


class Story:
    """Indexes over the events of a run; `events` are in the order of time."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.by_kind: dict[str, list[Event]] = defaultdict(list)
        for event in events:
            self.by_kind[event.what].append(event)

    def of(self, *kinds: str) -> list[Event]:
        """The events of some kinds, in the order of time."""
        found = [event for kind in kinds for event in self.by_kind[kind]]
        return found if len(kinds) == 1 else sorted(found, key=lambda event: event.t)

    # -- participants ------------------------------------------------------

    @cached_property
    def births(self) -> dict[str, Birth]:
        """By the participant's name."""
        made = {}
        for one in self.of("born"):
            facts = (one.actor, one.incarnation, one.pid, one.facts.get("host", ""))
            made[one.who] = Birth(one.who, one.t, *facts)
        return made

    @cached_property
    def lives(self) -> dict[str, list[Birth]]:
        """The processes of each actor, by incarnation."""
        made: dict[str, list[Birth]] = defaultdict(list)
        for birth in self.births.values():
            if birth.actor:
                made[birth.actor].append(birth)
        for births in made.values():
            births.sort(key=lambda birth: birth.incarnation)
        return made

    @cached_property
    def last(self) -> dict[str, float]:
        """When each participant noted something for the last time."""
        return {event.who: event.t for event in self.events}

    @cached_property
    def over(self) -> set[str]:
        """The participants that ended in good order."""
        return {event.who for event in self.of("over")}

    @cached_property
    def killed(self) -> dict[str, float]:
        """The participants that a fault or a call has killed, and when."""
        found = {e.who: e.t for e in self.of("ran") if e.method in FATAL}
        for fault in self.of("fault"):
            if fault.kind == "kill":
                same = (b for b in self.births.values() if b.pid == fault.pid)
                born = [birth for birth in same if birth.t <= fault.t]
                if born:  # numbers of processes come again
                    who = max(born, key=lambda birth: birth.t).who
                    found[who] = min(fault.t, found.get(who, math.inf))
        return found

    # -- calls -------------------------------------------------------------

    @cached_property
    def calls(self) -> dict[str, Call]:
        made = {event.call: Call(event) for event in self.of("sent")}
        for kind, part in _PARTS.items():
            for event in self.of(kind):
                if event.call in made:
                    getattr(made[event.call], part).append(event)
        return made

    @cached_property
    def strays(self) -> list[Event]:
        """Events of calls that nobody has sent."""
        known = self.calls
        return [event for event in self.of(*_PARTS) if event.call not in known]

    # -- troubles ----------------------------------------------------------

    @cached_property
    def session_over(self) -> float:
        """When the driver began to end the session, or was killed."""
        times = [event.t for event in self.of("closing")]
        drivers = [who for who, birth in self.births.items() if not birth.actor]
        times += [self.killed[who] for who in drivers if who in self.killed]
        times += [fault.t for fault in self.of("fault") if _ends_session(fault)]
        return min(times, default=math.inf)

    @property
    def was_lost(self) -> bool:
        """Whether a fault ended the session."""
        return any(_ends_session(fault) for fault in self.of("fault"))

    @cached_property
    def owners(self) -> dict[str, str]:
        """The actor that each actor ends with; "" for the driver's."""
        made = {}
        for event in self.of("spawned"):
            birth = self.births.get(event.who)
            made[event.actor] = birth.actor if birth and event.owned else ""
        return made

    @cached_property
    def places(self) -> dict[str, str]:
        """The host for which each actor was meant."""
        spawned = self.of("spawned")
        return {event.actor: event.facts.get("host", "") for event in spawned}

    @cached_property
    def hosts_lost(self) -> dict[str, list[Span]]:
        """When each host was killed, or out of reach for longer than the patience:
        from then until it is reachable."""
        found: dict[str, list[Span]] = defaultdict(list)
        for fault in self.of("fault"):
            if fault.kind == "kill-host":
                found[fault.target].append(_span(fault))
        for host, silences in self._silences.items():
            lost = (one for one in merged(silences) if one.end - one.start > HARMLESS_S)
            found[host] += lost
        return found

    @cached_property
    def _silences(self) -> dict[str, list[Span]]:
        """When each host could not be heard, or could not hear: its network was cut,
        its agent or the session's was stopped."""
        found: dict[str, list[Span]] = defaultdict(list)
        hosts = {birth.host for birth in self.births.values()}
        hosts |= set(self.places.values())  # where none is born yet
        for fault in self.of("fault"):
            if fault.kind not in ("cut", "swallow", "stop"):
                continue
            affected = fault.facts.get("hosts", [fault.target])
            for host in hosts if fault.target == "agent" else affected:
                if host in hosts:
                    start, until = _span(fault)
                    until += LOSSY_S * self._loses(host, until)
                    found[host].append(Span(start, until))
        return found

    def _loses(self, host: str, t: float) -> bool:
        """Whether packets to a host get lost at a time."""
        losses = (fault for fault in self.of("fault") if fault.kind == "loss")
        return any(_span(one).touches(t, t) for one in losses if one.target == host)

    def troubles(self, actor: str) -> list[Span]:
        """The times in which calls to an actor may fail for a death."""
        known: dict[str, list[Span]] = self.__dict__.setdefault("_troubles", {})
        if actor not in known:
            known[actor] = []  # an actor that owned itself would end here
            known[actor] = sorted(self._troubles_of(actor))
        return known[actor]

    def _troubles_of(self, actor: str) -> Iterator[Span]:
        yield Span(self.session_over, math.inf)
        for event in self.of("removing"):
            if event.actor == actor:
                yield Span(event.t, math.inf)
        births = self.lives.get(actor, [])
        for birth, later in itertools.zip_longest(births, births[1:]):
            lost = self.hosts_lost.get(birth.host, ())
            starts = [span.start for span in lost if span.end >= birth.t]
            starts += [self.killed[birth.who]] if birth.who in self.killed else []
            for t in starts:  # until everybody knows of the next process
                yield Span(t, max(later.t, t) + SLACK_S if later else math.inf)
        # Perhaps it was to be on a host that was lost before it was born there.
        born = births[0].t if births else math.inf
        place = self.places.get(actor)  # "" is any host
        for host in [place] if place else list(self.hosts_lost):
            for span in self.hosts_lost.get(host, ()):
                if span.start < born:
                    yield Span(span.start, born + SLACK_S)
        if owner := self.owners.get(actor, ""):
            for trouble in self.troubles(owner):
                yield Span(trouble.start, math.inf)

    def explained(
        self, actors: list[str], start: float, end: float | None = None
    ) -> bool:
        """Whether one of these had trouble at some moment of this time."""
        return any(
            trouble.touches(start, start if end is None else end)
            for actor in actors
            for trouble in self.troubles(actor)
        )

    def cut_off(self, hosts: list[str], start: float, end: float) -> bool:
        """Whether one of these hosts was lost at some moment of this time."""
        return any(
            span.touches(start - SLACK_S, end)
            for host in hosts
            for span in self.hosts_lost.get(host, ())
        )

    def host_of(self, who: str) -> str:
        birth = self.births.get(who)
        return birth.host if birth else ""


def merged(silences: list[Span]) -> list[Span]:
    """The silences, those as one that had no time to recover between them."""
    found: list[Span] = []
    for one in sorted(silences):
        if found and one.start - found[-1].end < RECOVERY_S:
            found[-1] = Span(found[-1].start, max(found[-1].end, one.end))
        else:
            found.append(one)
    return found


def _span(fault: Event) -> Span:
    return Span(fault.t, fault.facts.get("until") or fault.t)


_PARTS = {"ended": "ended", "ran": "ran", "done": "done", "item": "items"}


def _ends_session(fault: Event) -> bool:
    return bool(fault.kind == "kill" and fault.facts.get("ends_session"))


def value_of(event: Event) -> Any:
    """The value according to an event."""
    return event.facts.get("value")
