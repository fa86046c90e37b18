# SPDX-License-Identifier: MIT
"""Histories of a runtime that keeps its promises: a simulation, to test the checker.

Actors take one call at a time, in the order sent. They are killed and restarted at
random; what happens to the calls is what the promises say. Names change hands, Refs
are made and read, deaths are noticed, and in the end nothing is left.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from tests.chaos.history import Event

DRIVER, RUNNER = "driver", "runner"


class _Call:
    def __init__(self, number: int, to: _Actor, client: str, method: str) -> None:
        self.id, self.to, self.client, self.method = f"c{number}", to, client, method
        self.retries, self.tell = 0, False
        self.items = 0
        self.has_run = False


class _Actor:
    def __init__(self, name: str, restarts: bool) -> None:
        self.id, self.name, self.restarts = f"id-{name}", name, restarts
        self.incarnation, self.alive, self.count = -1, False, 0
        self.queue: deque[_Call] = deque()
        self.running: _Call | None = None
        self.watches: list[str] = []

    @property
    def who(self) -> str:
        return f"{self.name}.{self.incarnation}"


class Simulator:
    """Makes one history; the same one for the same seed."""

    def __init__(self, seed: int, actors: int = 4) -> None:
        self.chance = random.Random(seed)
        self.events: list[Event] = []
        self._t, self._number, self._pid = 0.0, 0, 100
        self._pids: dict[str, int] = {}
        self._refs: list[tuple[str, str, _Actor, int]] = []
        self.note(RUNNER, "born", role=RUNNER, actor="", incarnation=0, pid=1)
        self.note(DRIVER, "born", role=DRIVER, actor="", incarnation=0, pid=2)
        self.actors = [_Actor(f"a{n}", True) for n in range(actors)]
        for actor in self.actors:
            self._spawn(actor, name=actor.name)
            self._watch(actor, DRIVER)
            self._watch(actor, DRIVER)
        self.claimed: _Actor | None = None

    def note(self, who: str, what: str, **facts: Any) -> None:
        self._t += self.chance.uniform(0.0001, 0.01)
        self.events.append(Event(self._t, who, what, facts))

    def new(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}{self._number}"

    # -- actors ------------------------------------------------------------

    def _spawn(self, actor: _Actor, name: str) -> None:
        self._bear(actor)
        self.note(DRIVER, "spawned", actor=actor.id, name=name, owned=True)

    def _bear(self, actor: _Actor) -> None:
        actor.incarnation += 1
        actor.alive = True
        self._pid += 1
        self._pids[actor.who] = self._pid
        facts = {"role": actor.name, "actor": actor.id, "pid": self._pid}
        self.note(actor.who, "born", incarnation=actor.incarnation, **facts)
        self._see(actor, "Restarted" if actor.incarnation else "Started")

    def _watch(self, actor: _Actor, who: str) -> None:
        watch = self.new("watch")
        self.note(who, "watching", watch=watch, actor=actor.id)
        kind = "Restarted" if actor.incarnation else "Started"
        self._see_by(watch, actor, kind)
        actor.watches.append(watch)

    def _see(self, actor: _Actor, kind: str, last: bool = False) -> None:
        for watch in actor.watches:
            self._see_by(watch, actor, kind, last)

    def _see_by(self, watch: str, actor: _Actor, kind: str, last: bool = False) -> None:
        facts = {"watch": watch, "actor": actor.id}
        incarnation = actor.incarnation
        self.note(DRIVER, "seen", kind=kind, incarnation=incarnation, **facts)
        if last:
            self.note(DRIVER, "unwatched", **facts)

    def kill(self, actor: _Actor) -> None:
        """A fault; then the actor comes back, or is gone for good."""
        facts = {"target": actor.name, "pid": self._pids[actor.who]}
        self.note(RUNNER, "fault", kind="kill", **facts)
        actor.alive = False
        self._see(actor, "Died", last=not actor.restarts)
        lost, actor.running = actor.running, None
        left, actor.queue = list(actor.queue), deque()
        for call in [lost, *left] if lost else left:
            self._lose(call, delivered=None if call.has_run else False)
        if actor.restarts:
            self._bear(actor)

    def _lose(self, call: _Call, delivered: bool | None) -> None:
        """Its actor is dead: it is sent again, or ends."""
        if call.retries and call.to.restarts:
            call.retries -= 1
            call.to.queue.append(call)
        elif not call.tell:
            error = "ActorRestarted" if call.to.restarts else "ActorDied"
            self._end(call, "error", error=error, delivered=delivered)

    # -- calls -------------------------------------------------------------

    def send(self, to: _Actor) -> None:
        """Start a call of some method."""
        method = self.chance.choice(["echo", "echo", "count", "fail", "items"])
        call = _Call(self._next(), to, self.chance.choice("xyz"), method)
        facts: dict[str, Any] = {}
        if method == "items":
            call.items = facts["items"] = self.chance.randrange(5)
        elif method != "fail":
            call.tell = self.chance.random() < 0.2
            call.retries = 0 if call.tell else self.chance.choice([0, 0, 2])
        if method == "echo":
            facts |= {"argument": call.id}
            if not call.tell:
                facts |= {"expect": call.id}
        facts |= {"retries": call.retries, "timeout": 60.0, "tell": call.tell}
        identity = {"call": call.id, "to": to.id, "client": call.client}
        self.note(DRIVER, "sent", method=method, **identity, **facts)
        if to.alive:
            to.queue.append(call)
        elif not call.tell:
            self._end(call, "error", error="ActorDied", delivered=False)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def begin(self, actor: _Actor) -> None:
        """The actor starts its next call."""
        call = actor.running = actor.queue.popleft()
        call.has_run = True
        facts = {"got": call.id} if call.method == "echo" else {}
        self.note(actor.who, "ran", call=call.id, method=call.method, **facts)

    def finish(self, actor: _Actor) -> None:
        """The actor's present call returns, and its caller sees that."""
        call, actor.running = actor.running, None
        assert call is not None
        value: Any = call.id
        if call.method == "count":
            actor.count += 1
            value = actor.count
        for n in range(call.items):
            self.note(DRIVER, "item", call=call.id, n=n, value=n)
        if call.method == "items":
            value = None
        if call.method != "fail":
            self.note(actor.who, "done", call=call.id, value=value)
        if call.method == "fail":
            self._end(call, "error", error="ValueError", delivered=None)
        elif not call.tell:
            self._end(call, "value", value=value)

    def _end(self, call: _Call, how: str, **facts: Any) -> None:
        self.note(DRIVER, "ended", call=call.id, how=how, **facts)

    # -- names and Refs ----------------------------------------------------

    def claim(self) -> None:
        """The name "claim" passes from one actor to the next."""
        if self.claimed is not None and self.claimed.alive:
            if self.chance.random() < 0.3:
                self.kill(self.claimed)
            elif self.chance.random() < 0.5:
                self.remove(self.claimed)
            else:
                self.look_up()
            return
        self.claimed = _Actor(self.new("claimed"), restarts=False)
        self._spawn(self.claimed, name="claim")
        self._watch(self.claimed, DRIVER)

    def look_up(self) -> None:
        """Of the name "claim"."""
        look, holder = self.new("look"), self.claimed
        self.note(DRIVER, "looking", look=look, name="claim")
        found = holder.id if holder is not None and holder.alive else ""
        self.note(DRIVER, "found", look=look, name="claim", actor=found)

    def remove(self, actor: _Actor) -> None:
        """moo.stop, after the calls under way."""
        self.note(DRIVER, "removing", actor=actor.id, how="stop")
        self.drain(actor)
        self.note(actor.who, "over")
        actor.alive = False
        self._see(actor, "Stopped", last=True)
        self.note(DRIVER, "removed", actor=actor.id)

    def drain(self, actor: _Actor) -> None:
        """All its calls run."""
        while actor.running or actor.queue:
            if actor.running:
                self.finish(actor)
            else:
                self.begin(actor)

    def refer(self) -> None:
        """A Ref is made, and an old one read."""
        maker = self.chance.choice(self.actors)
        ref = self.new("ref")
        self.note(maker.who, "made", ref=ref, value=f"value of {ref}")
        self._refs.append((ref, f"value of {ref}", maker, maker.incarnation))
        ref, value, owner, incarnation = self.chance.choice(self._refs)
        read = self.new("read")
        self.note(DRIVER, "reading", read=read, ref=ref)
        facts: dict[str, Any] = {"how": "value", "value": value}
        if owner.incarnation != incarnation:
            facts = {"how": "error", "error": "ActorDied"}
        self.note(DRIVER, "read", read=read, ref=ref, **facts)

    # -- the whole ---------------------------------------------------------

    def step(self) -> None:
        actor = self.chance.choice([*self.actors, self.claimed or self.actors[0]])
        choice = self.chance.random()
        if choice < 0.45:
            self.send(actor)
        elif choice < 0.9 and actor.running:
            self.finish(actor)
        elif choice < 0.9 and actor.queue:
            self.begin(actor)
        elif choice < 0.93:
            self.refer()
        elif choice < 0.97:
            self.claim()
        elif choice < 0.98 and actor.alive:
            self.kill(actor)

    def run(self, steps: int) -> list[Event]:
        """The history of so many steps, and of a good end."""
        for _ in range(steps):
            self.step()
        for actor in (*self.actors, self.claimed):
            if actor is not None and actor.alive:
                self.remove(actor)
        self.note(DRIVER, "closing")
        self.note(DRIVER, "over")
        self.note(RUNNER, "over")
        return self.events


def correct_history(seed: int, steps: int = 300) -> list[Event]:
    """A history in which every promise is kept."""
    return Simulator(seed).run(steps)
