# SPDX-License-Identifier: MIT
"""Actors that are placed, and whose host is gone before they start. See `LoneHome`."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mooactor.host import spawning
from mooactor.host.placement import NoPlace, choose
from mooactor.host.protocol import Denied, Opened
from mooactor.process.needs import Amount, Needs
from mooactor.process.protocol import Member, Ready, Reply, Reserve, Supervise
from mooactor.process.supervision import Restart, Supervision
from tests.host.lone_homes import LoneHome

MANY: dict[str, Any] = {"max": 10_000, "within": 1e6, "backoff": 0.0}
RULES: dict[str, Any] = {"strategy": "one_for_one", **MANY, "jitter": 0.0}
POLICY = Restart(**MANY)


class SupervisedHome(LoneHome):
    """A home with a supervisor on host `z`, which has no room for others."""

    def __init__(self, directory: Any, names: str, **rules: Any) -> None:
        super().__init__(directory, names + "z")
        self.boss = self.spawn(1, host="z", num_cpus=4.0)
        self.born("z", self.boss)
        self.says("z", self.boss, Supervise(Supervision(**{**RULES, **rules}), rid=1))
        self.ready(self.boss)

    def ready(self, actor: Any) -> None:
        self.says(self.sites.host_of(actor.id), actor, Ready())

    def child(self, number: int, **fields: Any) -> Any:
        member = Member(f"child {number}", "always", False)
        request = self.request(
            number, member=member, policy=POLICY, rid=number, **fields
        )
        self.ask(request, self.boss.process.line)
        return self.home.actors[number << 16]

    def serve_until(self, condition: Callable[[], object]) -> None:
        until = time.monotonic() + 20.0
        while not condition():
            assert time.monotonic() < until
            self.loop.serve(time.monotonic() + 0.001)


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawning, "_PAUSE_S", 0.001)


@pytest.mark.parametrize("needs", [{"host": "b"}, {"num_cpus": 4.0}])
def test_a_child_that_finds_no_place_at_its_turn_waits_and_loses_no_restart(
    tmp_path: Path, needs: dict[str, Any]
) -> None:
    home = SupervisedHome(tmp_path, "b", max=0)
    child = home.child(2, **needs)
    home.hosts.names.discard("b")
    home.lose("b")
    home.serve_until(lambda: child in home.home.pending._waiting)

    home.hosts.names.add("b")
    home.serve_until(lambda: child.process)

    assert child.incarnation == 0 and home.boss.process is not None
    assert not home.died()
    home.close()


# -- random histories ------------------------------------------------------------------


class History:
    """Hosts a, b and c come, die and leave, and actors are placed, start and end."""

    def __init__(self, home: SupervisedHome, rng: random.Random) -> None:
        self.home, self.rng = home, rng
        self.deaths: Counter[int] = Counter()  # of processes that may have begun
        self.placed: dict[int, dict[str, Any]] = {}  # and not spawned: their needs
        self.asked: dict[int, tuple[list[int], dict[str, Any]]] = {}  # by request
        self._numbers = 1

    def step(self) -> None:
        actions = (
            *(self.join, self.die, self.die, self.unlist, self.lose, self.lose),
            *(self.spawn, self.child, self.child, self.place, self.spawn_placed),
            *(self.bear, self.bear, self.bear, self.exit, self.deny, self.refuse),
            self.serve,
        )
        self.rng.choice(actions)()

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _needs(self) -> dict[str, Any]:
        bound = {"host": self.rng.choice("abc")} if self.rng.random() < 0.3 else {}
        return {"num_cpus": self.rng.choice([0.0, 0.5, 1.0, 2.0]), **bound}

    # -- hosts

    def join(self) -> None:
        host = self.rng.choice("abc")
        if host not in self.home.hosts.names:
            self.home.hosts.silent.discard(host)
            self.home.hosts.names.add(host)

    def die(self) -> None:
        """The cluster and the home learn of it later, in any order."""
        self.home.hosts.silent.add(self.rng.choice("abc"))

    def unlist(self) -> None:
        """The broker takes a host for lost, and may be wrong."""
        self.home.hosts.names.discard(self.rng.choice("abc"))

    def lose(self) -> None:
        """The home does."""
        host = self.rng.choice("abc")
        site = self.home.sites._sites.get(host)
        if site is None or host not in self.home.hosts.silent:
            return
        there = self._at(site)
        if self.home.wire(host).peer:
            self.deaths.update(actor.id for actor in there)
            self.home.lose(host)
        else:
            self._fail_to_begin(there, lambda: self.home.lose(host))

    def refuse(self) -> None:
        """A host cannot take part."""
        host = self.rng.choice("abc")
        site = self.home.sites._sites.get(host)
        if site is None or host in self.home.hosts.silent:
            return
        there = self._at(site)
        if not any(actor.process.pid is not None for actor in there):
            why = f"host {host} cannot take part: it has no directory"
            what = partial(self.home.hear, host, Opened(why))
            self._fail_to_begin(there, what)

    def _at(self, site: Any) -> list[Any]:
        return self._with_process(lambda actor: actor.process.line._site is site)

    def _fail_to_begin(self, there: list[Any], what: Callable[[], None]) -> None:
        """That ends nobody but new actors, for which there is no other host."""
        before = {actor: (self._new(actor), actor.incarnation) for actor in there}
        what()
        for actor, (new, incarnation) in before.items():
            assert actor.incarnation - incarnation in ((0, 1) if new else (0,))
            self.deaths[actor.id] += actor.incarnation - incarnation

    def _new(self, actor: Any) -> bool:
        return not actor.incarnation and actor.member is None

    # -- actors

    def spawn(self) -> None:
        self.home.ask(self.home.request(self._number(), policy=POLICY, **self._needs()))

    def child(self) -> None:
        number = self._number()
        member = Member(f"child {number}", "always", False)
        request = self.home.request(number, member=member, **self._needs(), rid=number)
        self.home.ask(request, self.home.boss.process.line)

    def place(self) -> None:
        ids, needs = [self._number() << 16 for _ in range(2)], self._needs()
        self.asked[ids[0]] = ids, needs
        amount = Amount(needs["num_cpus"])
        self.home.ask(Reserve(ids, Needs(amount, needs.get("host", "")), rid=ids[0]))

    def hear_answers(self) -> None:
        for message in self.home.told():
            if isinstance(message, Reply) and message.rid in self.asked:
                ids, needs = self.asked.pop(message.rid)
                if message.value is not None:
                    assert isinstance(message.value, list)
                    assert len(message.value) == len(ids)
                    self.placed.update(dict.fromkeys(ids, needs))

    def spawn_placed(self) -> None:
        if self.placed:
            one = self.rng.choice(list(self.placed))
            fields = self.placed.pop(one)
            request = self.home.request(one >> 16, policy=POLICY, rid=1, **fields)
            self.home.ask(request)

    def _with_process(self, suits: Callable[[Any], bool]) -> list[Any]:
        others = list(self.home.home.living.values())[1:]
        return [one for one in others if one.process is not None and suits(one)]

    def _one_that_answers(self, *, is_born: bool) -> tuple[Any, str]:
        """An actor, or None, and its host, which is alive."""
        found = self._with_process(
            lambda actor: (
                (actor.process.pid is not None) == is_born
                and self.home.sites.host_of(actor.id) not in self.home.hosts.silent
            )
        )
        actor = self.rng.choice(found) if found else None
        return actor, actor and self.home.sites.host_of(actor.id)

    def bear(self) -> None:
        actor, host = self._one_that_answers(is_born=False)
        if actor is not None:
            self.home.born(host, actor)
            self.home.ready(actor)

    def exit(self) -> None:
        actor, host = self._one_that_answers(is_born=True)
        if actor is not None:
            self.deaths[actor.id] += 1
            self.home.exits(host, actor)

    def deny(self) -> None:
        actor, host = self._one_that_answers(is_born=False)
        if actor is not None:
            self.home.hear(host, Denied(actor.process.line.number, "all is reserved"))

    def serve(self) -> None:
        for _ in range(3):
            self.home.loop.serve(time.monotonic() + 0.001)

    # -- what always holds

    def check(self) -> None:
        living = self.home.home.living
        self.hear_answers()
        self._check_account(living)
        for actor in living.values():
            assert actor.incarnation == self.deaths[actor.id]
            if actor.process is not None:
                site = self.home.sites.of(actor)
                assert actor.process in site._processes.values() and not site.closed
                assert self.home.sites.host_of(actor.id) == site.host

    def _check_account(self, living: dict[int, Any]) -> None:
        needs = {one.id: one.needs.amount for one in living.values()}
        needs |= {one: Amount(f["num_cpus"]) for one, f in self.placed.items()}
        for ids, asked in self.asked.values():
            needs |= dict.fromkeys(ids, Amount(asked["num_cpus"]))
        assert set(self.home.sites._placed) <= set(needs), "a place of nobody's"
        for one in self.home.sites.candidates():
            there = [
                amount
                for actor_id, amount in needs.items()
                if self.home.sites.host_of(actor_id) == one.name
            ]
            assert one.free == one.total - sum(there, Amount())

    def check_those_that_wait(self) -> None:
        """Each of them waits for want of a place."""
        self.home.home.pending._look(0.0)
        for actor in list(self.home.home.pending._waiting):
            with pytest.raises(NoPlace):
                choose(self.home.sites.candidates(), actor.needs)

    def end(self) -> None:
        """All hosts are there and have room: every actor that is not over runs."""
        self.home.hosts.total = Amount(1e6, 1.0, 1e9)
        while self.home.hosts.silent & self.home.sites._sites.keys():
            self.lose()
            self.check()
        self.home.hosts.silent.clear()
        self.home.hosts.names = set("abcz")

        def all_run() -> bool:
            self.bear()
            self.check()
            living = self.home.home.living.values()
            return all(one.pid is not None for one in living)

        self.home.serve_until(all_run)
        assert not len(self.home.home.pending)


def test_random_hosts_and_actors_leave_nobody_waiting_for_a_host_that_has_left(
    tmp_path: Path,
) -> None:
    for seed in range(30):
        rng = random.Random(seed)
        home = SupervisedHome(tmp_path, "abc", in_order=rng.random() < 0.5)
        history = History(home, rng)
        for _ in range(150):
            history.step()
            history.check()
            history.check_those_that_wait()
        history.end()
        home.close()
