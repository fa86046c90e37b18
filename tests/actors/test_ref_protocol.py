# SPDX-License-Identifier: MIT
"""The ownership protocol under random histories, which a seed replays.

A model has the numbers of the values that each party holds. Every step moves a Ref
between the driver and actors in one of the ways that there are, or drops one, or kills
an actor. At any time a party must be able to read whatever it holds and the owner of
which lives.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

import mooactor as moo
from tests.actors.keeper import Keeper, find_ref, holdings, number_in, value
from tests.actors.test_ref_ownership import all_is_given_back
from tests.conftest import eventually
from tests.marks import slow

DRIVER = -1
SEEDS = [int(seed) for seed in os.environ.get("MOOACTOR_SEEDS", "1 2").split()]
MORE = slow(range(3, 13))


class Held:
    """One Ref of one party, as the model has it."""

    def __init__(self, key: int, number: int, owner: int) -> None:
        self.key = key  # what it is kept by
        self.number = number  # what its value is made of
        self.owner = owner  # the party whose process has the value


class World:
    """The driver and some actors, and what the model says that they hold."""

    def __init__(self, spawn: Any, seed: int, actors: int = 4) -> None:
        self.rng = random.Random(seed)
        self.spawn = spawn
        self.actors: dict[int, Any] = {i: spawn(Keeper) for i in range(actors)}
        self.next_actor = actors
        self.mine: dict[int, moo.Ref[Any]] = {}  # the driver's, by key
        self.held: dict[int, list[Held]] = {p: [] for p in (DRIVER, *self.actors)}
        self.keys = iter(range(1 << 30))

    def some(self) -> tuple[int, Held]:
        """A party and a Ref of it."""
        parties = [party for party, held in self.held.items() if held]
        party = self.rng.choice(parties)
        return party, self.rng.choice(self.held[party])

    def actor(self) -> int:
        return self.rng.choice(list(self.actors))

    def note(self, party: int, key: int, like: Held) -> None:
        self.held[party].append(Held(key, like.number, like.owner))

    def wrapped(self, ref: Any) -> Any:
        return self.rng.choice([[ref], {"a": (1, ref)}, ([[ref]], 2)])

    # -- steps -------------------------------------------------------------

    def put(self) -> None:
        key, number = next(self.keys), self.rng.randrange(251)
        self.mine[key] = moo.put(value(number))
        self.held[DRIVER].append(Held(key, number, DRIVER))

    def make(self) -> None:
        """The result of a call belongs to its caller."""
        key, number = next(self.keys), self.rng.randrange(251)
        self.mine[key] = self.actors[self.actor()].make.remote(number)
        self.held[DRIVER].append(Held(key, number, DRIVER))

    def put_by_an_actor(self) -> None:
        key, number, owner = next(self.keys), self.rng.randrange(251), self.actor()
        self.mine[key] = find_ref(self.actors[owner].put(number))
        self.held[DRIVER].append(Held(key, number, owner))

    def pass_on(self) -> None:
        party, what = self.some()
        target, key = self.actor(), next(self.keys)
        if party == target:
            return
        if party == DRIVER:
            self.actors[target].keep(key, self.wrapped(self.mine[what.key]))
        else:
            self.actors[party].send(self.actors[target], what.key, key)
        self.note(target, key, what)

    def take_back(self) -> None:
        party, what = self.some()
        if party == DRIVER:
            return
        key = next(self.keys)
        self.mine[key] = find_ref(self.actors[party].hand_out(what.key))
        self.note(DRIVER, key, what)

    def read(self) -> None:
        self.check(*self.some())

    def check(self, party: int, what: Held) -> None:
        if what.owner != DRIVER and what.owner not in self.actors:
            return  # its value has died with its owner
        if party == DRIVER:
            got = number_in(self.mine[what.key].get(timeout=20))
        else:
            got = self.actors[party].read(what.key)
        assert got == what.number

    def drop(self) -> None:
        party, what = self.some()
        self.held[party].remove(what)
        if party == DRIVER:
            del self.mine[what.key]
        else:
            self.actors[party].drop.tell(what.key)

    def waste(self) -> None:
        """A message with Refs in it that nobody reads."""
        if not self.mine:
            return
        ref = self.rng.choice(list(self.mine.values()))
        actor = self.actors[self.actor()]
        self.rng.choice(
            [
                lambda: actor.ignore.remote([ref]).cancel(),
                lambda: actor.ignore.options(timeout=1e-4).remote([ref]),
                lambda: actor.put.remote(1),
                lambda: actor.ignore.tell([ref], ref),
            ]
        )()

    def kill(self) -> None:
        if self.mine:  # the driver does not hold a result that did not come to be
            moo.wait(list(self.mine.values()), num_returns=len(self.mine), timeout=20)
        victim = self.actor()
        moo.kill(self.actors.pop(victim))
        del self.held[victim]
        self.actors[self.next_actor] = self.spawn(Keeper)
        self.held[self.next_actor] = []
        self.next_actor += 1

    def step(self) -> None:
        steps = [self.put, self.make, self.put_by_an_actor]
        if any(self.held.values()):
            steps += [self.take_back, self.pass_on, self.pass_on, self.read]
            steps += [self.drop, self.drop, self.waste]
        self.rng.choice(steps)()

    def check_all(self) -> None:
        for party, held in self.held.items():
            for what in held:
                self.check(party, what)

    def drop_all(self) -> None:
        while any(self.held.values()):
            self.drop()


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("seeds", [SEEDS, MORE], ids=len)
def test_every_holder_can_read_and_nothing_is_left_when_all_is_dropped(
    spawn: Any, seeds: list[int], kills: bool
) -> None:
    for seed in seeds:
        world = World(spawn, seed)
        for number in range(150):
            world.step()
            if kills and number % 30 == 29:
                world.kill()
        world.check_all()
        world.drop_all()
        all_is_given_back(*world.actors.values())
        for actor in world.actors.values():
            moo.kill(actor)


@pytest.mark.parametrize("seeds", [SEEDS, MORE], ids=len)
def test_a_process_that_is_killed_while_values_are_under_way_leaves_nothing(
    spawn: Any, seeds: list[int]
) -> None:
    witness = spawn(Keeper)
    for seed in seeds:
        victim = spawn(Keeper)
        refs = [moo.put(value(i)) for i in range(10)]
        refs += [witness.make.remote(i) for i in range(10)]
        calls = []
        for ref in refs:
            calls.append(victim.keep.remote(0, [ref, ref]))
            calls.append(victim.ignore.remote(ref))
            calls.append(victim.send.remote(witness, 0, 0))
            calls.append(victim.hand_out.remote(0))
        enough = random.Random(seed).randrange(1, len(calls))
        moo.wait(calls, num_returns=enough, timeout=20)
        moo.kill(victim)
        moo.wait(calls, num_returns=len(calls), timeout=20)
        assert all(call.done() for call in calls)
        del refs, ref, calls
        witness.drop_all()
        assert eventually(lambda: holdings()["objects"] == 0, 10)
    all_is_given_back(witness)
