# SPDX-License-Identifier: MIT
"""Processes of one session on different hosts: calls, values and data between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.control.keys import new_process_id
from mooactor.process.current import current_runtime
from mooactor.process.protocol import Locate, Watch
from tests.conftest import eventually
from tests.process.guest import Guest
from tests.process.hosts import Hosts, hosts

MB = 1 << 20


@pytest.fixture
def three() -> Iterator[Hosts]:
    with hosts("a", "b", "c") as made:
        yield made


@pytest.fixture
def on_b(three: Hosts) -> Any:
    return three.start("b", Guest)


@pytest.fixture
def on_c(three: Hosts) -> Any:
    return three.start("c", Guest)


def row_of(handle: Any) -> dict[str, Any]:
    process = f"{handle._where()[1].process_id:016x}"
    return next(
        row
        for row in current_runtime().statistics()["peers"]
        if row["process"] == process
    )


def test_every_form_of_a_call_and_data_of_any_size_reach_another_host(
    on_b: Any,
) -> None:
    assert on_b.add(1) == 1
    refs = [on_b.add.remote(number) for number in range(2, 500)]
    assert moo.get(refs, timeout=60) == list(range(2, 500))
    on_b.add.tell(500)
    assert on_b.all_seen() == list(range(1, 501))
    assert list(on_b.items(100)) == list(range(100))
    with pytest.raises(LookupError, match="not here"):
        on_b.fail()
    for nbytes in (1000, MB, 16 * MB):
        assert on_b.total(np.ones(nbytes, np.uint8)) == nbytes
        assert int(on_b.make(nbytes, 2).sum()) == 2 * nbytes
    assert row_of(on_b)["transport"] == "tcp"
    for nbytes in (200_000, 256 << 10, 5 * MB):  # in several parts: with the call
        assert on_b.length("x" * nbytes) == nbytes
        assert len(on_b.text(nbytes)) == nbytes


def test_results_and_stored_values_go_straight_to_a_third_host_and_are_taken_once(
    three: Hosts, on_b: Any, on_c: Any, monkeypatch: Any
) -> None:
    assert on_c.total(on_b.make.remote(3 * MB)) == 3 * MB
    assert on_c.look_in([on_b.make.remote(2 * MB)]) == 2 * MB
    stored = moo.put(np.ones(MB, np.uint8))
    assert [other.total(stored) for other in (on_b, on_c)] == [MB, MB]
    (theirs,) = on_b.put(MB)
    assert on_c.look_in([theirs]) == MB
    assert int(theirs.get(timeout=60).sum()) == MB
    assert on_b.hand_on(on_c, MB) == MB
    assert on_c.hand_on(on_b, 3 * MB) == 3 * MB
    del stored, theirs
    on_b.drop()

    # Two threads that find a Ref done at the same time may both send its value. Of two
    # actors of a host one keeps a stored value for the other.
    near = three.start("c", Guest)
    assert near.add(0) == 0
    handovers = current_runtime().handovers
    send = handovers.send

    def send_twice(ref: Any, target: int, token: int) -> int:
        send(ref, target, token)
        return send(ref, target, token)

    monkeypatch.setattr(handovers, "send", send_twice)
    ref = on_b.make.remote(MB, 3)
    assert ref.get().nbytes == MB
    for number in range(6):
        refs = [on_c.total.remote(ref) for _ in range(1 + number % 3)]
        assert moo.get(refs, timeout=20) == [3 * MB] * len(refs)
    stored = moo.put(np.ones(MB, np.uint8))
    for _ in range(5):
        uses = [actor.total.remote(stored) for actor in (near, on_c)]
        assert moo.get(uses, timeout=20) == [MB, MB]
    del ref, refs, stored, uses

    def kept() -> int:
        all_statistics = [actor.statistics() for actor in (near, on_c)]
        all_statistics.append(current_runtime().statistics())
        return sum(one["values_pending"] + one["relayed"] for one in all_statistics)

    assert eventually(lambda: kept() == 0)


def test_calls_wait_for_an_actor_that_does_not_exist_yet(three: Hosts) -> None:
    actor_id = new_process_id()
    later = three.handle(Guest, actor_id)
    refs = [later.add.remote(number) for number in range(100)]
    data = np.ones(2 * MB, np.uint8)
    sums = [later.total.remote(data), later.total.remote(moo.put(data))]
    data[...] = 0  # what was sent is what it was then
    assert not any(ref.done() for ref in (*refs, *sums))
    three.start("b", Guest, actor_id=actor_id)
    near_id = new_process_id()  # one that turns out to be on this host
    near = three.handle(Guest, near_id)
    ref = near.total.remote(np.ones(MB, np.uint8))
    three.start("a", Guest, actor_id=near_id)
    assert ref.get(timeout=60) == MB
    ways = current_runtime().messenger.ways
    assert ways is not None and ways.known(near_id) is None
    assert row_of(near)["transport"] == "shm"
    assert moo.get(refs, timeout=60) == list(range(100))
    assert moo.get(sums, timeout=60) == [2 * MB, 2 * MB]
    assert later.all_seen() == list(range(100))


def test_one_that_is_sought_connects_to_the_seeker_without_asking(three: Hosts) -> None:
    three.agent.introduces = True
    guest = three.start("b", Guest)
    assert guest.add(1) == 1
    asked = [what for who, what in three.agent.told if who == guest._actor_id]
    assert asked.count(Locate) == 0
    assert asked.count(Watch) == 1  # it holds a connection until that one's death


def test_a_death_ends_calls_and_refs_of_another_host_at_once(three: Hosts) -> None:
    doomed, bystander = three.start("c", Guest), three.start("b", Guest)
    (kept,) = doomed.put(MB)
    waiting = doomed.nap.remote(1000)
    doomed_id = doomed._where()[1].process_id
    of_it = bystander.look_in.remote([doomed.nap.remote(1000)])
    three.kill(doomed)
    three.agent.tell_of_death(doomed_id)
    unborn_id = new_process_id()  # one that was never found
    unborn = three.handle(Guest, unborn_id)
    never = [unborn.add.remote(1), unborn.total.remote(np.ones(MB, np.uint8))]
    three.agent.tell_of_death(unborn_id)
    for ref in (waiting, kept, of_it, doomed.add.remote(1), *never):
        with pytest.raises(moo.ActorDied, match="SIGKILL"):
            ref.get(timeout=20)


def test_one_that_comes_back_after_its_death_was_told_cannot_act(
    three: Hosts, on_b: Any, on_c: Any, tmp_path: Any
) -> None:
    """Its host was cut off for so long that it counted as lost."""
    assert on_b.hand_on(on_c, 1000) == 1000
    on_b.tell_once_told.remote(on_c, str(tmp_path / "now"))
    three.agent.tell_of_death(on_b._actor_id)
    assert eventually(lambda: is_told_dead(on_b))
    assert eventually(lambda: on_c.knows_dead(on_b))
    before = on_c.statistics()["dropped"]
    (tmp_path / "now").touch()
    assert eventually(lambda: on_c.statistics()["dropped"] > before)
    assert on_c.all_seen() == []


def is_told_dead(handle: Any) -> bool:
    return handle._where()[1].cause is not None


def test_an_actor_that_ends_has_sent_its_last_reply(three: Hosts) -> None:
    leaver = three.start("b", Leaver)
    assert leaver.last_words() == "bye"
    assert three.children[leaver._actor_id].wait(20) == 0


class Leaver:
    """Ends by its own wish, once it has answered a caller that it never met."""

    def last_words(self) -> str:
        current_runtime().server.stop_now()  # type: ignore[union-attr,attr-defined]
        return "bye"
