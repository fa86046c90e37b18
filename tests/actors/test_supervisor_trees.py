# SPDX-License-Identifier: MIT
"""Trees of supervisors under random kills of any process, with a seed to replay: every
call ends, each actor's story is one of deaths and restarts in turns, names and handles
stay, and when the kills end, all run again."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from tests.actors.members import Member
from tests.conftest import eventually
from tests.marks import slow

SEEDS = range(int(os.environ.get("MOOACTOR_TEST_TREES", "5")))
ROUNDS = 25
STRATEGIES = ["one_for_one", "one_for_all", "rest_for_one"]


class Tree:
    """A random tree; only its root never gives up."""

    def __init__(self, dice: random.Random, log: Path) -> None:
        self.dice, self.log = dice, log
        self.leaves: list[str] = []
        self.supervisors: list[str] = []
        children = self.some_children(depth=2)
        strategy = dice.choice(STRATEGIES)
        self.root = moo.spawn(moo.Supervisor, children, strategy=strategy, max=10**6)
        with moo.monitor(self.root) as events:
            assert isinstance(next(events), moo.Started)
        self.handles = {name: moo.lookup(name) for name in self.leaves}
        names = [*self.leaves, *self.supervisors]
        self.monitors = [moo.monitor(moo.lookup(name)) for name in names]

    def some_children(self, depth: int) -> list[moo.Child[Any]]:
        count = self.dice.randint(1, 3)
        return [self.some_child(depth) for _ in range(count)]

    def some_child(self, depth: int) -> moo.Child[Any]:
        if depth and self.dice.random() < 0.6:
            self.supervisors.append(name := f"supervisor-{len(self.supervisors)}")
            return moo.on(moo.Supervisor, name=name).child(
                self.some_children(depth - 1),
                strategy=self.dice.choice(STRATEGIES),
                max=self.dice.choice([0, 1, 3, 10**6]),
                within=self.dice.choice([0.05, 60.0]),
                backoff=self.dice.choice([0.0, 0.001]),
                in_order=self.dice.random() < 0.7,
            )
        self.leaves.append(name := f"leaf-{len(self.leaves)}")
        return moo.on(Member, name=name).child(name, self.log)

    def victims(self) -> list[int]:
        """The processes of all but the root."""
        rows = [info for info in moo.actors() if info.owner is not None]
        return [info.pid for info in rows if info.pid is not None]

    def kill_some(self) -> None:
        pids = self.victims()
        most = self.dice.choice([1, 1, 2, len(pids)])
        for pid in self.dice.sample(pids, min(most, len(pids))):
            try:
                os.kill(pid, self.dice.choice([signal.SIGKILL, signal.SIGSEGV]))
            except ProcessLookupError:
                pass  # it died since

    def link_some(self) -> None:
        """Some leaves, of any supervisors, die together from now on."""
        for _ in range(self.dice.choice([0, 0, 1, 2])):
            moo.link(*self.dice.choices(list(self.handles.values()), k=2))

    def end_one(self) -> None:
        """Somebody stops or kills a leaf, in whatever state it is, for good."""
        if len(self.handles) > 1 and self.dice.random() < 0.1:
            name = self.dice.choice(list(self.handles))
            self.dice.choice([moo.stop, moo.kill])(self.handles.pop(name))
            self.leaves.remove(name)

    def at_rest(self) -> bool:
        rows = moo.actors()
        count = 1 + len(self.leaves) + len(self.supervisors)
        return len(rows) == count and {info.state for info in rows} == {"running"}


def check_story(events: list[moo.Event]) -> None:
    """Started, then a death and a restart in turns, and one end; each told once."""
    incarnation, alive = 0, False
    for event in events[:-1]:
        if isinstance(event, moo.Started | moo.Restarted):
            assert not alive and event.incarnation == incarnation
            alive = True
        else:
            assert isinstance(event, moo.Died) and event.incarnation == incarnation
            incarnation, alive = incarnation + 1, False
    assert isinstance(events[-1], moo.Stopped | moo.Died)


def expected(stays: bool, again: bool) -> tuple[type[Exception], ...]:
    """The errors that a call to a leaf may end with: one that stays is restarted, and a
    call that is made again may find its leaf stopping."""
    if stays:
        return (moo.ActorRestarted,)
    return (moo.ActorDied, moo.ActorUnavailable) if again else (moo.ActorDied,)


@pytest.mark.parametrize("seed", [*SEEDS[:1], *map(slow, SEEDS[1:])])
def test_a_tree_survives_random_kills_of_its_processes(
    session: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], seed: int
) -> None:
    dice = random.Random(seed)
    tree = Tree(dice, tmp_path / "log")
    tree.link_some()
    calls: list[tuple[str, moo.Ref[str], int]] = []
    for _ in range(ROUNDS):
        name = dice.choice(list(tree.handles))
        retries = dice.choice([0, 0, 10**4])
        ping = tree.handles[name].ping.options(retries=retries)
        calls.append((name, ping.remote(), retries))
        tree.kill_some()
        tree.end_one()
        if dice.random() < 0.3:  # otherwise the next ones die while they start
            calls[-1][1].exception(timeout=60)
    for name, call, retries in calls:
        error = call.exception(timeout=60)
        kinds = expected(name in tree.handles, bool(retries))
        assert error is None or isinstance(error, kinds), repr(error)
    for name, handle in tree.handles.items():
        assert moo.lookup(name) == handle
        assert handle.ping.options(retries=10**4)() == name
    assert eventually(tree.at_rest), moo.actors()
    moo.stop(tree.root)
    for monitor in tree.monitors:
        check_story(list(monitor))
    assert moo.actors() == []
    assert "Traceback" not in capfd.readouterr().err
