# SPDX-License-Identifier: MIT
"""`Story`: the events of a chaos run, sorted out for the rules of the checker.

It also knows which deaths had a reason. A *trouble* of an actor is a time from a fault
that ends one of its processes until a while after the next one is born; calls may end
with the errors of a death in it, and at no other time. A short cut or a stopped process
is no trouble: it must heal.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from mooactor.control import channel
from tests.chaos.history import Event

#: For news of a death and of a restart to reach every process, on a machine that is
#: busy and whose processes are stopped for a while.
SLACK_S = 10.0
#: Hosts that hear nothing of each other for so long are dead to each other.
PATIENCE_S = channel.PATIENCE_S
#: What they need to find each other again. Silences with less between them are one.
RECOVERY_S = 1.0
#: What they need more where packets get lost: of a connection's first packets two are
#: said again after 0.2 and 0.4 s. Two of 100 then do not come within 0.7 s, here.
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


class Trouble(NamedTuple):
    """A time in which an actor's calls may fail."""

    start: float
    end: float
    why: str

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
        """The participants that a fault killed, and when."""
        by_pid: dict[int, list[Birth]] = defaultdict(list)
        for birth in self.births.values():
            by_pid[birth.pid].append(birth)
        found: dict[str, float] = {}
        for fault in self.of("fault"):
            if fault.kind == "kill" and fault.facts.get("pid"):
                born = [b for b in by_pid[fault.pid] if b.t <= fault.t]
                if born:
                    found[max(born, key=lambda birth: birth.t).who] = fault.t
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
        times += [t for who, t in self.killed.items() if not self.births[who].actor]
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
    def hosts_lost(self) -> dict[str, list[tuple[float, float]]]:
        """When each host was killed, or out of reach for longer than the patience:
        from then until it is reachable."""
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for fault in self.of("fault"):
            if fault.kind == "kill-host":
                found[fault.target].append((fault.t, fault.facts.get("until", fault.t)))
        for host, silences in self._silences.items():
            lost = (one for one in merged(silences) if one[1] - one[0] > HARMLESS_S)
            found[host] += lost
        return found

    @cached_property
    def _silences(self) -> dict[str, list[tuple[float, float]]]:
        """When each host could not be heard, or could not hear: its network was cut,
        its agent or the session's was stopped."""
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        hosts = {birth.host for birth in self.births.values()}
        for fault in self.of("fault"):
            if fault.kind not in ("cut", "swallow", "stop"):
                continue
            affected = fault.facts.get("hosts", [fault.target])
            for host in hosts if fault.target == "agent" else affected:
                if host in hosts:
                    until = fault.facts.get("until") or fault.t
                    until += LOSSY_S * self._loses(host, until)
                    found[host].append((fault.t, until))
        return found

    def _loses(self, host: str, t: float) -> bool:
        """Whether packets to a host get lost at a time."""
        losses = [fault for fault in self.of("fault") if fault.kind == "loss"]
        mine = [fault for fault in losses if fault.target == host]
        return any(fault.t <= t <= fault.facts.get("until", fault.t) for fault in mine)

    def troubles(self, actor: str) -> list[Trouble]:
        """The times in which calls to an actor may fail for a death."""
        known: dict[str, list[Trouble]] = self.__dict__.setdefault("_troubles", {})
        if actor not in known:
            known[actor] = []  # an actor that owned itself would end here
            known[actor] = sorted(self._troubles_of(actor))
        return known[actor]

    def _troubles_of(self, actor: str) -> list[Trouble]:
        found = [Trouble(self.session_over, math.inf, "the end of the session")]
        for event in self.of("removing"):
            if event.actor == actor:
                found.append(Trouble(event.t, math.inf, f"moo.{event.how}"))
        births = self.lives.get(actor, ())
        for birth in births:
            found += self._troubles_of_process(birth)
        found += self._troubles_before_birth(actor)
        owner = self.owners.get(actor, "")
        if owner:
            ends = [t._replace(end=math.inf) for t in self.troubles(owner)]
            found += [t._replace(why=f"{t.why} of its owner") for t in ends]
        return found

    def _troubles_before_birth(self, actor: str) -> list[Trouble]:
        """It was to be on a host that was lost before it, or its next process, was
        born there."""
        place = self.places.get(actor)  # "" is any host
        born = [birth.t for birth in self.lives.get(actor, ())]
        found = []
        for host in [place] if place else list(self.hosts_lost):
            for start, _ in self.hosts_lost.get(host, ()):
                first = min((t for t in born if t > start), default=math.inf)
                if not born or start < born[0]:
                    found.append(Trouble(start, first + SLACK_S, f"host {host} lost"))
        return found

    def _troubles_of_process(self, birth: Birth) -> list[Trouble]:
        starts = []
        if birth.who in self.killed:
            starts.append((self.killed[birth.who], "a kill"))
        starts += [
            (event.t, event.method)
            for event in self.fatal.get(birth.who, ())
            if event.method in FATAL
        ]
        for start, until in self.hosts_lost.get(birth.host, ()):
            if until >= birth.t:
                starts.append((start, f"the loss of host {birth.host}"))
        return [Trouble(t, self.recovered(birth, t), why) for t, why in starts]

    @cached_property
    def fatal(self) -> dict[str, list[Event]]:
        """Calls that ended their process."""
        found: dict[str, list[Event]] = defaultdict(list)
        for event in self.of("ran"):
            if event.method in FATAL:
                found[event.who].append(event)
        return found

    def recovered(self, birth: Birth, t: float) -> float:
        """When everybody knows of the process after this one, which died at `t`."""
        for later in self.lives[birth.actor]:
            if later.incarnation > birth.incarnation:
                return max(later.t, t) + SLACK_S
        return math.inf

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
            lost <= end and start <= until + SLACK_S
            for host in hosts
            for lost, until in self.hosts_lost.get(host, ())
        )

    def host_of(self, who: str) -> str:
        birth = self.births.get(who)
        return birth.host if birth else ""


def merged(silences: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The silences, those as one that had no time to recover between them."""
    found: list[tuple[float, float]] = []
    for start, until in sorted(silences):
        if found and start - found[-1][1] < RECOVERY_S:
            found[-1] = (found[-1][0], max(found[-1][1], until))
        else:
            found.append((start, until))
    return found


_PARTS = {"ended": "ended", "ran": "ran", "done": "done", "item": "items"}


def _ends_session(fault: Event) -> bool:
    return bool(fault.kind == "kill" and fault.facts.get("ends_session"))


def value_of(event: Event) -> Any:
    """What an event says that a value was."""
    return event.facts.get("value")
