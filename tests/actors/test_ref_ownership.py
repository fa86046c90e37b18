# SPDX-License-Identifier: MIT
"""Who holds a value can get it; when nobody does, nothing of it is left anywhere."""

from __future__ import annotations

import copy
import dataclasses
import os
import signal
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from tests.actors.keeper import Broken, Keeper, RefError, holdings, number_in, value
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


def test_a_nested_result_reaches_one_receiver_after_the_other(spawn: Any) -> None:
    maker, first, second = spawn(Keeper), spawn(Keeper), spawn(Keeper)
    ref = maker.make.remote(7)
    for receiver in (first, second, first):
        assert receiver.read_now([ref]) == 7
    assert number_in(ref.get()) == 7
    del ref
    all_is_given_back(maker, first, second)


def test_a_nested_result_outlives_the_callers_ref(spawn: Any) -> None:
    maker, reader = spawn(Keeper), spawn(Keeper)
    reader.keep(1, [maker.make.remote(5)])
    assert reader.read(1) == 5
    reader.drop(1)
    all_is_given_back(maker, reader)


def test_a_ref_comes_home_as_itself(keeper: Any) -> None:
    ref = keeper.make.remote(3)
    keeper.keep(1, {"deep": (ref,)})
    assert keeper.hand_out(1)["deep"][0] is ref
    keeper.drop(1)
    assert number_in(ref.get()) == 3
    del ref
    all_is_given_back(keeper)


def test_a_ref_goes_through_three_actors_and_lives_by_the_last(spawn: Any) -> None:
    actors = [spawn(Keeper) for _ in range(3)]
    ref = moo.put(value(9))
    actors[0].keep(0, [ref])
    del ref
    for here, there in pairwise(actors):
        here.send(there, 0, 0)
        here.drop(0)
    assert actors[2].read(0) == 9
    actors[2].drop(0)
    all_is_given_back(*actors)


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


def test_each_member_of_a_group_holds_what_it_was_given(group: Any) -> None:
    members = group(Keeper, 3)
    ref = moo.put(value(6))
    members.call(Keeper.keep, 0, [ref]).get()
    del ref
    for member in members:
        assert member.read(0) == 6
        member.drop(0)
    all_is_given_back(*members)


def test_a_forwarded_result_with_a_ref_in_it_is_held_by_its_receiver(
    spawn: Any,
) -> None:
    maker, reader = spawn(Keeper), spawn(Keeper)
    maker.sleep.tell(0.2)  # so that the result is forwarded while it is to come
    pending = maker.put.remote(8)
    reader.keep(0, pending)
    del pending
    assert reader.read(0) == 8
    reader.drop(0)
    all_is_given_back(maker, reader)


def test_refs_travel_in_exceptions_and_streams(keeper: Any) -> None:
    ref = moo.put(value(2))
    keeper.keep(0, ref := moo.put([ref]))
    keeper.keep(0, [ref])
    with pytest.raises(RefError) as caught:
        keeper.fail_with(0)
    assert number_in(caught.value.args[0][0].get()[0].get()) == 2
    numbers = [number_in(item[0].get()) for item in keeper.items(5)]
    assert numbers == [0, 1, 2, 3, 4]
    del ref, caught
    keeper.drop(0)
    all_is_given_back(keeper)


@dataclasses.dataclass
class Boxed:
    ref: Any
    call: Callable[[], Any]


def boxed(ref: Any) -> Boxed:
    return Boxed(ref, lambda: ref)


def test_refs_travel_in_dataclasses_and_closures(keeper: Any) -> None:
    ref = moo.put(value(11))
    keeper.keep(0, boxed(ref))
    del ref
    back = keeper.hand_out(0)
    assert back.ref is back.call()
    assert number_in(back.ref.get()) == 11
    del back
    keeper.drop(0)
    all_is_given_back(keeper)


def test_a_constructor_may_be_given_refs_also_for_a_restart(spawn: Any) -> None:
    ref, nested = moo.put(value(1)), moo.put(value(2))
    policy = moo.Restart(max=2, within=60)
    actor = spawn(moo.on(Keeper, restart=policy), [ref, {"a": nested}])
    actor.sleep(0)
    del ref, nested
    for _ in range(2):
        refs = actor.hand_out("given")
        numbers = [number_in(refs[0].get()), number_in(refs[1]["a"].get())]
        assert numbers == [1, 2]
        pid = actor.pid()
        os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: _pid_of(actor) not in (None, pid), 20)
    del refs
    moo.kill(actor)
    all_is_given_back()


def _pid_of(actor: Any) -> int | None:
    try:
        return int(actor.pid())
    except moo.MooError:
        return None


def test_a_ref_that_was_copied_is_the_same_ref(keeper: Any) -> None:
    ref = keeper.make.remote(1)
    assert copy.copy(ref) is ref
    assert copy.deepcopy({"a": [ref]})["a"][0] is ref
    ref.get()
    del ref
    all_is_given_back(keeper)


def test_a_ref_whose_owner_died_says_so_however_it_is_used(spawn: Any) -> None:
    owner, reader = spawn(Keeper), spawn(Keeper)
    (ref,) = owner.put(1)
    reader.keep(0, [ref])
    moo.kill(owner)
    with pytest.raises(moo.MooError, match="dead"):
        ref.get(timeout=20)
    (again,) = reader.hand_out(0)
    with pytest.raises(moo.MooError, match="dead"):
        reader.ignore.options(timeout=20).remote(again).get()
    with pytest.raises(moo.MooError, match="dead"):
        spawn(Keeper).ignore.options(timeout=20).remote(again).get()


# -- what nobody holds is gone ---------------------------------------------


def cancelled(keeper: Any, refs: list[Any]) -> None:
    keeper.sleep.tell(0.3)
    calls = [keeper.ignore.remote([ref]) for ref in refs]
    for call in calls:
        call.cancel()


def not_picklable(keeper: Any, refs: list[Any]) -> None:
    for ref in refs:
        with pytest.raises(TypeError, match="cannot be pickled"):
            keeper.ignore([ref], ref, (i for i in ()))


def not_unpicklable(keeper: Any, refs: list[Any]) -> None:
    for ref in refs:
        with pytest.raises(RuntimeError, match="cannot be unpickled"):
            keeper.ignore([ref], Broken(), [ref], ref)


def too_late(keeper: Any, refs: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        gate = Path(folder, "gate")
        held = keeper.until.remote(gate)
        hasty = keeper.ignore.options(timeout=0.05)
        calls = [hasty.remote([ref], ref) for ref in refs]
        for call in calls:
            with pytest.raises(moo.CallTimeout):
                call.get()
        gate.touch()
        held.get()


def unread_results(keeper: Any, refs: list[Any]) -> None:
    keeper.keep(0, [refs])
    results = [keeper.hand_out.remote(0) for _ in range(5)]
    moo.wait(results, num_returns=5)
    keeper.hand_out.tell(0)
    keeper.drop(0)


def unread_items(keeper: Any, refs: list[Any]) -> None:
    with keeper.items(COUNT) as stream:
        next(stream)
    keeper.sleep(0)


def cancelled_results(keeper: Any, refs: list[Any]) -> None:
    keeper.keep(0, refs)
    for _ in range(5):
        keeper.hand_out.remote(0).cancel()
    keeper.drop(0)


WAYS = [
    cancelled,
    not_picklable,
    not_unpicklable,
    too_late,
    unread_results,
    unread_items,
    cancelled_results,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_is_lent_with_a_message_that_nobody_reads_is_given_back(
    keeper: Any, way: Callable[[Any, list[Any]], None]
) -> None:
    refs = [moo.put(value(i)) for i in range(COUNT)]
    refs += [keeper.make.remote(i) for i in range(COUNT)]
    way(keeper, refs)
    del refs
    all_is_given_back(keeper)


def test_a_call_that_is_refused_gives_its_refs_back(spawn: Any) -> None:
    @moo.actor(max_pending=1, overflow="raise")
    class Small(Keeper):
        pass

    @moo.actor
    class Asks:
        def ask(self, small: Any, refs: list[Any]) -> int:
            """More than there is room for, by a caller that knows no bound."""
            _, link = small._where()
            link.limit = 1000
            small.sleep.tell(0.3)
            calls = [small.ignore.remote([ref], ref) for ref in refs]
            return sum(isinstance(c.exception(), moo.Overloaded) for c in calls)

    small, asks = spawn(Small), spawn(Asks)
    refs = [moo.put(value(i)) for i in range(COUNT)]
    assert asks.ask(small, refs) > 0
    del refs
    all_is_given_back(small)


def test_what_was_sent_to_a_dead_actor_is_given_back(spawn: Any) -> None:
    victim, witness = spawn(Keeper), spawn(Keeper)
    refs = [moo.put(value(i)) for i in range(COUNT)]
    pid = victim.pid()
    victim.sleep.tell(30)
    calls = [victim.ignore.remote([ref], ref) for ref in refs]
    os.kill(pid, signal.SIGKILL)
    for call in calls:
        with pytest.raises(moo.ActorDied):
            call.get()
    del refs, calls, call
    all_is_given_back(witness)


def test_what_an_actor_lent_to_one_that_died_is_given_back(spawn: Any) -> None:
    # The owner has nothing to do with the one that dies: it must be told all the same.
    lender, victim = spawn(Keeper), spawn(Keeper)
    lender.keep(0, [moo.put(value(1))])
    lender.send(victim, 0, 0)
    assert victim.read(0) == 1
    os.kill(victim.pid(), signal.SIGKILL)
    lender.drop(0)
    all_is_given_back(lender)


def test_what_the_dead_lender_of_a_ref_had_is_given_back(spawn: Any) -> None:
    lender, holder = spawn(Keeper), spawn(Keeper)
    lender.keep(0, [moo.put(value(1))])
    lender.send(holder, 0, 0)
    moo.kill(lender)
    assert holder.read(0) == 1
    holder.drop(0)
    all_is_given_back(holder)


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
    pid = actor.pid()
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: _pid_of(actor) not in (None, pid), 20)
    assert actor.read("a") == 4
    moo.kill(actor)
    all_is_given_back()
