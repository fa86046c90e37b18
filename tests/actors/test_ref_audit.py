# SPDX-License-Identifier: MIT
"""A lender that dies between its note to the owner and its message to the receiver."""

from __future__ import annotations

from typing import Any

import mooactor as moo
from mooactor.process.current import current_runtime
from tests.actors.keeper import Keeper, find_ref, holdings, value
from tests.actors.test_ref_ownership import all_is_given_back
from tests.conftest import eventually


@moo.actor
class Careless(Keeper):
    """Lends by halves."""

    def tell_the_owner_only(self, other: Any, key: Any) -> None:
        hold = find_ref(self.kept[key]).home
        assert hold is not None
        current_runtime().borrows.lend(hold, other._where()[1].process_id)

    def tell_the_receiver_only(self, other: Any, key: Any, their_key: Any) -> None:
        borrows: Any = current_runtime().borrows
        borrows.lend = lambda *args: None
        try:
            other.keep(their_key, self.kept[key])
        finally:
            del borrows.lend


def counts(number: int) -> dict[int, int]:
    """How often each process holds a value that the driver owns."""
    entry = current_runtime().objects.entry(number)
    assert entry is not None
    return {holder: count for (holder, _), count in list(entry.counts.items())}


def held_by(actor: Any, count: int) -> dict[int, int]:
    """By the driver once, and by an actor so often; by nobody else."""
    return {current_runtime().process_id: 1, actor._where()[1].process_id: count}


def test_a_borrow_of_which_only_the_owner_was_told_ends_with_its_lender(
    spawn: Any,
) -> None:
    lender, receiver = spawn(Careless), spawn(Keeper)
    lender.keep(0, [moo.put(value(1))])
    lender.tell_the_owner_only(receiver, 0)
    assert holdings()["objects"] == 1
    moo.kill(lender)
    all_is_given_back(receiver)


def test_so_it_does_if_the_owner_itself_was_to_receive_it(spawn: Any) -> None:
    lender, owner = spawn(Careless), spawn(Keeper)
    lender.keep(0, owner.put(1))
    lender.tell_the_owner_only(owner, 0)
    assert owner.holdings()["objects"] == 1
    moo.kill(lender)
    all_is_given_back(owner)


def test_a_borrow_of_which_only_the_receiver_was_told_counts(spawn: Any) -> None:
    lender, receiver = spawn(Careless), spawn(Keeper)
    ref = moo.put(value(5))
    number = ref.home.object_id
    lender.keep(0, [ref])
    lender.tell_the_receiver_only(receiver, 0, 0)
    moo.kill(lender)
    assert eventually(lambda: counts(number) == held_by(receiver, 1))
    del ref
    assert receiver.read(0) == 5
    receiver.drop(0)
    all_is_given_back(receiver)


def test_what_arrived_of_a_dead_lender_stays_counted(spawn: Any) -> None:
    lender, receiver = spawn(Careless), spawn(Keeper)
    ref = moo.put(value(6))
    number = ref.home.object_id
    lender.keep(0, [ref])
    for key in range(3):
        lender.send(receiver, 0, key)
    lender.tell_the_owner_only(receiver, 0)  # and one that does not arrive
    receiver.drop(0)
    moo.kill(lender)
    assert eventually(lambda: counts(number) == held_by(receiver, 2))
    del ref
    receiver.drop(1)
    assert receiver.read(2) == 6
    receiver.drop(2)
    all_is_given_back(receiver)
