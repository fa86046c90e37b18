# SPDX-License-Identifier: MIT
"""A holder of a value can get it; without holders nothing of it is left."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from tests.actors.keeper import (
    Broken,
    Keeper,
    RefError,
    find_ref,
    holdings,
    number_in,
    value,
)
from tests.conftest import eventually

COUNT = 20
NOTHING = dict.fromkeys(("objects", "values", "used", "imported"), 0)


def all_is_given_back(*actors: Any) -> None:
    """Whether the driver and the actors come back to nothing held."""

    def left() -> dict[str, dict[str, int]]:
        all_holdings = {"driver": holdings()}
        for i, actor in enumerate(actors):
            all_holdings[f"actor {i}"] = actor.holdings()
        return {who: has for who, has in all_holdings.items() if has != NOTHING}

    assert eventually(lambda: not left()), left()


@pytest.fixture
def keeper(spawn: Any) -> Any:
    return spawn(Keeper)


# -- who holds a value can get it ------------------------------------------


def test_a_nested_result_outlives_the_callers_ref(spawn: Any) -> None:
    maker, first, second = spawn(Keeper), spawn(Keeper), spawn(Keeper)
    ref = maker.make.remote(7)
    for receiver in (first, second, first):
        assert receiver.read_now([ref]) == 7
    assert number_in(ref.get()) == 7
    first.keep(1, [ref])
    del ref
    assert first.read(1) == 7
    first.drop(1)
    all_is_given_back(maker, first, second)


def test_a_ref_comes_home_as_itself(keeper: Any) -> None:
    ref = keeper.make.remote(3)
    keeper.keep(1, {"deep": (ref,)})
    assert keeper.hand_out(1)["deep"][0] is ref
    assert copy.copy(ref) is ref
    assert copy.deepcopy({"a": [ref]})["a"][0] is ref
    keeper.drop(1)
    assert number_in(ref.get()) == 3
    del ref
    all_is_given_back(keeper)


def test_a_ref_inside_a_stored_value_lives_by_that(spawn: Any) -> None:
    first, second = spawn(Keeper), spawn(Keeper)
    outer = moo.put({"inner": moo.put(value(4))})
    assert number_in(outer.get()["inner"].get()) == 4
    for receiver in (first, second):
        receiver.keep(0, outer)  # the value of it, with the Ref inside
    del outer
    assert [first.read(0), second.read(0)] == [4, 4]
    first.drop(0)
    assert second.read(0) == 4
    second.drop(0)
    all_is_given_back(first, second)


def test_a_result_that_is_to_come_is_held_by_its_receivers(
    group: Any, spawn: Any, tmp_path: Path
) -> None:
    maker, members, gate = spawn(Keeper), group(Keeper, 3), tmp_path / "gate"
    maker.until.tell(gate)
    pending = maker.put.remote(8)
    kept = members.call(Keeper.keep, 0, pending)
    del pending
    gate.touch()
    kept.get()
    for member in members:
        assert member.read(0) == 8
        member.drop(0)
    all_is_given_back(maker, *members)


@dataclasses.dataclass
class Boxed:
    ref: Any
    call: Callable[[], Any]


def boxed(ref: Any) -> Boxed:
    return Boxed(ref, lambda: ref)


def test_refs_travel_in_exceptions_streams_dataclasses_and_closures(
    keeper: Any,
) -> None:
    keeper.keep(0, [moo.put([moo.put(value(2))])])
    with pytest.raises(RefError) as caught:
        keeper.fail_with(0)
    assert number_in(caught.value.args[0][0].get()[0].get()) == 2
    del caught
    numbers = [number_in(item[0].get()) for item in keeper.items(5)]
    assert numbers == [0, 1, 2, 3, 4]
    keeper.keep(0, boxed(moo.put(value(11))))
    back = keeper.hand_out(0)
    assert back.ref is back.call()
    assert number_in(back.ref.get()) == 11
    del back
    keeper.drop(0)
    all_is_given_back(keeper)


def test_one_pickled_by_hand_can_be_read_several_times(keeper: Any) -> None:
    """So its value stays as long as its owner does."""
    owner = keeper.put(12)
    pickled = pickle.dumps(owner)
    del owner
    for _ in range(3):
        keeper.keep(0, pickle.loads(pickled))
        assert number_in(find_ref(pickle.loads(pickled)).get()) == 12
        keeper.drop(0)


def _reborn(actor: Any) -> bool:
    pid = actor.pid()
    os.kill(pid, signal.SIGKILL)
    again = actor.pid.options(retries=10)
    return eventually(lambda: again() != pid)


def test_a_constructor_may_be_given_refs_also_for_a_restart(spawn: Any) -> None:
    ref, nested = moo.put(value(1)), moo.put(value(2))
    actor = spawn(moo.on(Keeper, restart=moo.Restart(max=2)), [ref, {"a": nested}])
    actor.pid()
    del ref, nested
    for _ in range(2):
        refs = actor.hand_out("given")
        assert [number_in(refs[0].get()), number_in(refs[1]["a"].get())] == [1, 2]
        assert _reborn(actor)
    del refs
    moo.kill(actor)
    all_is_given_back()


def test_snapshots_hold_the_values_of_their_latest_refs(spawn: Any) -> None:
    @moo.actor
    class Remembers(Keeper):
        def __snapshot__(self) -> Any:
            return self.kept

        def __restore__(self, state: Any) -> None:
            self.kept = state

    policy = moo.Restart(max=3, within=60, snapshot_every=1)
    actor = spawn(moo.on(Remembers, restart=policy))
    for number in range(5):
        actor.keep("a", [moo.put(value(number))])
    assert eventually(lambda: holdings()["objects"] <= 1)
    assert _reborn(actor)
    assert actor.read("a") == 4
    moo.kill(actor)
    all_is_given_back()


def test_a_ref_whose_owner_died_says_so_however_it_is_used(spawn: Any) -> None:
    owner, reader = spawn(Keeper), spawn(Keeper)
    (ref,) = owner.put(1)
    reader.keep(0, [ref])
    moo.kill(owner)
    with pytest.raises(moo.MooError, match="dead"):
        ref.get(timeout=20)
    (again,) = reader.hand_out(0)
    for actor in (reader, spawn(Keeper)):
        with pytest.raises(moo.MooError, match="dead"):
            actor.ignore.options(timeout=20).remote(again).get()


# -- what nobody holds is gone ---------------------------------------------


def cancelled(keeper: Any, refs: list[Any], gate: Path) -> None:
    keeper.until.tell(gate)
    calls = [keeper.ignore.remote([ref]) for ref in refs]
    for call in calls:
        call.cancel()
    gate.touch()


def not_picklable(keeper: Any, refs: list[Any], gate: Path) -> None:
    for ref in refs:
        with pytest.raises(TypeError, match="cannot be pickled"):
            keeper.ignore([ref], ref, (i for i in ()))


def not_unpicklable(keeper: Any, refs: list[Any], gate: Path) -> None:
    for ref in refs:
        with pytest.raises(RuntimeError, match="cannot be unpickled"):
            keeper.ignore([ref], Broken(), [ref], ref)


def too_late(keeper: Any, refs: list[Any], gate: Path) -> None:
    held = keeper.until.remote(gate)
    hasty = keeper.ignore.options(timeout=0.05)
    calls = [hasty.remote([ref], ref) for ref in refs]
    for call in calls:
        with pytest.raises(moo.CallTimeout):
            call.get()
    gate.touch()
    held.get()


def unread_results(keeper: Any, refs: list[Any], gate: Path) -> None:
    keeper.keep(0, [refs])
    results = [keeper.hand_out.remote(0) for _ in range(5)]
    moo.wait(results, num_returns=5)
    keeper.hand_out.tell(0)
    for _ in range(5):
        keeper.hand_out.remote(0).cancel()
    keeper.drop(0)


def unread_items(keeper: Any, refs: list[Any], gate: Path) -> None:
    with keeper.items(COUNT) as stream:
        next(stream)
    keeper.pid()


WAYS = [
    cancelled,
    not_picklable,
    not_unpicklable,
    too_late,
    unread_results,
    unread_items,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_is_lent_with_a_message_that_nobody_reads_is_given_back(
    keeper: Any, way: Callable[[Any, list[Any], Path], None], tmp_path: Path
) -> None:
    refs = [moo.put(value(i)) for i in range(COUNT)]
    refs += [keeper.make.remote(i) for i in range(COUNT)]
    way(keeper, refs, tmp_path / "gate")
    del refs
    all_is_given_back(keeper)


# -- deaths ----------------------------------------------------------------


def test_what_was_sent_to_a_dead_actor_is_given_back(
    spawn: Any, tmp_path: Path
) -> None:
    victim, witness = spawn(Keeper), spawn(Keeper)
    refs = [moo.put(value(i)) for i in range(COUNT)]
    pid = victim.pid()
    victim.until.tell(tmp_path / "gate")
    calls = [victim.ignore.remote([ref], ref) for ref in refs]
    os.kill(pid, signal.SIGKILL)
    for call in calls:
        with pytest.raises(moo.ActorDied):
            call.get()
    del refs, calls, call
    all_is_given_back(witness)
