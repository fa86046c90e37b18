# SPDX-License-Identifier: MIT
"""The rules of supervisors, without processes, against random schedules.

`World` plays the processes and keeps its own, obvious books: who has a process, who
was told to end, when each failure was. After each answer of the roster it says whether
that is what the strategy's definition demands.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from mooactor.host.children import How, RestartBudget, Roster
from mooactor.process.supervision import Restart, Strategy, Supervision

STRATEGIES: list[Strategy] = ["one_for_one", "one_for_all", "rest_for_one"]


class World:
    """Processes of a supervisor's children, as they really are."""

    def __init__(self, rules: Supervision, whens: list[Any]) -> None:
        self.rules = rules
        self.roster = Roster(rules, draw=lambda: 0.0)
        self.order = [f"child {i}" for i in range(len(whens))]
        self.when = dict(zip(self.order, whens, strict=True))
        for key in self.order:
            self.roster.add(key, self.when[key])
        self.now = 100.0
        self.alive: dict[str, str] = {}  # key -> "starting", "running" or "doomed"
        self.over: set[str] = set()
        self.failures: list[tuple[float, str]] = []
        self.due = dict.fromkeys(self.order, 0.0)
        self.ran: set[str] = set()  # since the supervisor began
        self.up = self.gave_up = False
        self.begin()

    # -- the slow, obvious answers -------------------------------------------

    def together_with(self, key: str) -> list[str]:
        i = self.order.index(key)
        return {
            "one_for_one": [key],
            "one_for_all": self.order,
            "rest_for_one": self.order[i:],
        }[self.rules.strategy]

    def recent(self) -> list[tuple[float, str]]:
        return [f for f in self.failures if self.now - f[0] <= self.rules.within]

    def counts_as_failure(self, key: str, how: How) -> bool:
        if how == "requested" or self.when[key] == "never":
            return False
        if self.alive[key] == "doomed" or not self.up:
            return False
        return not (how == "clean" and self.when[key] == "on_failure")

    def stays_away(self, key: str, how: How) -> bool:
        if how == "requested" or self.when[key] == "never":
            return True
        left = how == "clean" and self.when[key] == "on_failure"
        return left and self.alive[key] != "doomed"

    # -- what happens --------------------------------------------------------

    def begin(self) -> None:
        assert not self.alive, "the supervisor waits until all its children are gone"
        self.roster.begin()
        self.up, self.gave_up = True, False
        self.failures, self.ran = [], set()
        self.due = dict.fromkeys(self.order, 0.0)
        self.start()

    def start(self) -> None:
        while started := self.roster.start(self.now):
            for key in started:
                self.check_start(key)
                self.alive[key] = "starting"

    def check_start(self, key: str) -> None:
        assert self.up and key not in self.alive and key not in self.over
        assert self.now >= self.due[key], "its back-off is not over"
        before = self.order[: self.order.index(key)]
        together = self.rules.strategy != "one_for_one"
        if together:
            assert "doomed" not in self.alive.values()
        if self.rules.in_order and (together or key not in self.ran):
            for other in before:
                assert other in self.over or self.alive.get(other) == "running"

    def ready(self, key: str) -> None:
        self.roster.ready(key)
        if self.alive[key] == "starting":
            self.alive[key] = "running"
            self.ran.add(key)
        self.start()

    def die(self, key: str, how: How) -> None:
        counted, away = self.counts_as_failure(key, how), self.stays_away(key, how)
        foreseen = self.roster.foresee(key, self.now)
        verdict = self.roster.died(key, self.now, how)
        del self.alive[key]
        assert verdict.returns != away
        if away:
            self.over.add(key)
            assert not verdict.kill and not verdict.gives_up
        elif not counted:
            assert not verdict.kill and not verdict.gives_up
        elif len(self.recent()) >= self.rules.max:
            assert verdict.gives_up and not verdict.kill and foreseen == "gives up"
            self.up, self.gave_up = False, True
        else:
            assert foreseen == "returns"
            self.fail(key, verdict)
        self.start()

    def fail(self, key: str, verdict: Any) -> None:
        together = self.together_with(key)
        living = [k for k in together if self.alive.get(k) in ("starting", "running")]
        assert list(verdict.kill) == living[::-1] and not verdict.gives_up
        before = [f for f in self.recent() if key in self.together_with(f[1])]
        backoff = self.rules.backoff * 2 ** len(before)
        delay = min(backoff, self.rules.longest_backoff)
        for other in together:
            self.due[other] = max(self.due[other], self.now + delay)
        for other in living:
            self.alive[other] = "doomed"
        self.failures.append((self.now, key))

    def supervisor_dies(self) -> None:
        living = [k for k in self.order if self.alive.get(k) in ("starting", "running")]
        assert self.roster.pause() == living[::-1]
        for key in living:
            self.alive[key] = "doomed"
        self.up = False
        for key in list(self.alive):
            self.die(key, "failed")
        self.begin()

    def stop_one(self, key: str) -> None:
        """Somebody stops or kills a child, with or without a process."""
        if key in self.alive:
            self.die(key, "requested")
        elif key not in self.over:
            assert not self.roster.died(key, self.now, "requested").returns
            self.over.add(key)
            self.start()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.start()

    def come_to_rest(self) -> None:
        """Nothing dies any more of itself."""
        for _ in range(10 * len(self.order)):
            for key, state in list(self.alive.items()):
                if state == "doomed":
                    self.die(key, "failed")
                elif state == "starting":
                    self.ready(key)
            due = self.roster.next_due(self.now)
            self.pass_time(0 if due is None else max(0.0, due - self.now))


def random_world(seed: int, strategy: Strategy) -> tuple[random.Random, World]:
    dice = random.Random(f"{seed} {strategy}")
    rules = Supervision(
        strategy,
        max=dice.choice([0, 1, 3, 10, 100]),
        within=dice.choice([1.0, 10.0, 1000.0]),
        backoff=dice.choice([0.0, 0.0, 0.5]),
        longest_backoff=dice.choice([0.5, 4.0]),
        in_order=dice.choice([True, True, False]),
    )
    whens = ["always"] * 4 + ["on_failure", "never"]
    return dice, World(rules, dice.choices(whens, k=dice.randint(1, 6)))


def step(dice: random.Random, world: World) -> None:
    living = list(world.alive)
    match dice.choices(
        ["ready", "fail", "clean", "many", "time", "stop", "supervisor"],
        [8, 5, 1, 1, 4, 0.5, 0.5],
    )[0]:
        case "ready" if living:
            world.ready(dice.choice(living))
        case "fail" if living:
            world.die(dice.choice(living), "failed")
        case "clean" if living:
            world.die(dice.choice(living), "clean")
        case "many":
            for key in dice.sample(living, len(living)):
                if key in world.alive:
                    world.die(key, "failed")
        case "time":
            world.pass_time(dice.choice([0.1, 0.5, 2.0, 50.0]))
        case "stop":
            world.stop_one(dice.choice(world.order))
        case "supervisor":
            world.supervisor_dies()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_random_schedules_obey_the_definitions(strategy: Strategy) -> None:
    gave_up = rested = 0
    for seed in range(1500):
        dice, world = random_world(seed, strategy)
        for _ in range(60):
            step(dice, world)
        assert world.roster.gave_up == world.gave_up
        gave_up += world.gave_up
        if world.up:
            world.come_to_rest()
            missing = set(world.order) - world.over
            assert {k for k, s in world.alive.items() if s == "running"} == missing
            assert world.roster.complete
            rested += 1
    assert gave_up > 100 and rested > 100  # the schedules are worth their time


def running(strategy: Strategy, n: int = 4, **rules: Any) -> World:
    """All children run."""
    world = World(Supervision(strategy, **rules), ["always"] * n)
    while "starting" in world.alive.values():
        (starting,) = [k for k, s in world.alive.items() if s == "starting"]
        world.ready(starting)
    assert len(world.alive) == n
    return world


def test_failures_are_forgotten_when_the_window_has_passed() -> None:
    world = running("one_for_one", max=1, within=10.0)
    for _ in range(5):
        world.die("child 0", "failed")
        world.ready("child 0")
        world.pass_time(10.5)
    world.die("child 0", "failed")
    world.ready("child 0")
    world.pass_time(9.5)
    world.die("child 0", "failed")
    assert world.gave_up


def test_the_limit_of_a_child_holds_beside_that_of_the_supervisor() -> None:
    roster = Roster(Supervision(max=100))
    roster.add("fragile", "always", RestartBudget(Restart(max=1, backoff=2.0)))
    roster.begin()
    assert roster.start(0.0) == ["fragile"]
    assert not roster.died("fragile", 0.0, "failed").gives_up
    assert roster.start(1.9) == [] and roster.next_due(1.9) == 2.0
    assert roster.start(2.0) == ["fragile"]
    assert roster.died("fragile", 2.0, "failed").gives_up


def test_restarts_are_forgotten_when_the_window_has_passed() -> None:
    budget = RestartBudget(Restart(max=2, within=10.0, backoff=1.0))
    assert [budget.take(0.0), budget.take(9.0)] == [1.0, 2.0]
    assert budget.take(10.0) is None
    assert budget.take(10.5) == 2.0  # the first one is forgotten, the second is not
    assert budget.take(19.0) is None
    assert budget.take(100.0) == 1.0


def test_back_offs_double_up_to_the_longest_and_jitter_only_shortens_them() -> None:
    rules = Supervision(backoff=1.0, longest_backoff=10.0, jitter=0.5)
    assert [rules.delay(n, 0.0) for n in range(6)] == [1, 2, 4, 8, 10, 10]
    assert [rules.delay(n, 1.0) for n in range(6)] == [0.5, 1, 2, 4, 5, 5]
    assert rules.delay(10**9, 0.0) == 10.0
