# SPDX-License-Identifier: MIT
"""Every transport, with every size and layout, and with every kind of fault.

Values travel as the runtime sends them: large arrays beside the pickle. The two
processes of a transport stand through all tests here, so what one test breaks or
leaves behind, the next ones find.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mooactor import ActorDied, ActorUnavailable, InternalError
from mooactor.control import bodies
from mooactor.tensors import THRESHOLD
from tests.conftest import eventually
from tests.marks import slow
from tests.networks import Cable
from tests.transports.pairs import NETWORKS, Pair, over
from tests.transports.worker import Worker

MB = 1 << 20
#: The effect of faults is the same over both networks: `make test` has them over one.
FAULTY = ("tcp", slow("ofi"))

SIZES = [0, 1, THRESHOLD - 1, THRESHOLD, THRESHOLD + 1, MB, 64 * MB]


def move(pair: Pair, sender: Worker, receiver: Worker, *recipe: Any) -> list[bytes]:
    """Send a value and compare it; returns the descriptors of what was beside."""
    message = sender.call("offer", receiver.id, *recipe)
    receiver.call("take", message)
    assert receiver.call("check", *recipe) == ""
    return bodies.split_attached(message)[0]


# -- sizes and layouts -----------------------------------------------------


def test_any_size_arrives(pair):
    fetched = f"fetched_{pair.transport}"
    ways = ((pair.a, pair.b), (pair.b, pair.a))
    some = [(n, way) for n in SIZES for way in ways[: 2 if n <= MB else 1]]
    for nbytes, (sender, receiver) in some:
        before = receiver.call("statistics").get(fetched, 0)
        beside = move(pair, sender, receiver, "random", nbytes, nbytes)
        assert len(beside) == (nbytes >= THRESHOLD)
        after = receiver.call("statistics").get(fetched, 0)
        over_network = beside and pair.transport in NETWORKS
        assert after - before == (nbytes if over_network else 0)
    assert pair.settled()


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_nested_values_arrive_as_they_were_when_sent_and_are_the_receivers_own(
    pair, library
):
    if library == "torch":
        pytest.importorskip("torch")
    recipe = ("nested", library)
    assert len(move(pair, pair.a, pair.b, *recipe)) == 4
    pair.b.call("scribble", "received")
    assert pair.a.call("is_unchanged", *recipe) == ""
    message = pair.a.call("offer", pair.b.id, *recipe)
    pair.a.call("scribble", "sent")
    pair.b.call("take", message)
    assert pair.b.call("check", *recipe) == ""
    assert pair.settled()


# -- faults ----------------------------------------------------------------


class Witness:
    """Sees to it that a fault leaves a standing process as it was before."""

    def __init__(self, survivor: Worker) -> None:
        self.survivor = survivor
        self.links = survivor.call("statistics")["links"]
        self.files = survivor.call("files")

    def sees_nothing_left(self) -> bool:
        self.survivor.call("drop")
        return eventually(self._clean)

    def _clean(self) -> bool:
        stats = self.survivor.call("statistics")
        return (
            self.survivor.settled()
            and stats["links"] <= self.links
            and not self.survivor.call("files") - self.files
        )


def moves_again(pair: Pair, sender: Worker, receiver: Worker) -> None:
    """After a failure the next attempts are refused for a moment."""

    def moved() -> bool:
        try:
            move(pair, sender, receiver, "random", MB, 7)
        except (ActorDied, ActorUnavailable):
            return False
        except InternalError as error:  # the connection broke again before the fetch
            return "fetched or revoked before" not in str(error)
        return True

    assert eventually(moved)


@pytest.fixture
def met(pair: Pair) -> Pair:
    """A pair whose processes know each other: their connections are open. The test
    before may have cut them."""
    moves_again(pair, pair.a, pair.b)
    moves_again(pair, pair.b, pair.a)
    assert eventually(pair.settled)
    return pair


@pytest.fixture
def cable(pair: Pair) -> Cable:
    """The link between the two; skips the test where there is none."""
    return pair.cable


@pytest.fixture
def start(pair: Pair) -> Iterator[Callable[..., Worker]]:
    """``start("b")``: another process, gone when the test is over."""
    started: list[Worker] = []

    def new(host: str, **options: Any) -> Worker:
        started.append(pair.start(host, **options))
        return started[-1]

    yield new
    for worker in started:
        worker.process.close()


@contextlib.contextmanager
def under_way(
    pair: Pair, sender: Worker, receiver: Worker, nbytes: int
) -> Iterator[bytes]:
    """While this lasts, a part of a value has crossed the cable."""
    host = "a" if sender is pair.a else "b"
    with pair.cable.slow(3 if nbytes < 8 * MB else 160):
        message = sender.call("offer", receiver.id, "random", nbytes, 2)
        before = pair.cable.sent(host)
        receiver.tell("take", message)
        assert eventually(lambda: pair.cable.sent(host) - before > nbytes // 5)
        assert pair.cable.sent(host) - before < nbytes // 2
        yield message


def fails(receiver: Worker) -> None:
    """A `take` under way ends with an error that says why."""
    with pytest.raises((ActorDied, ActorUnavailable)):
        receiver.answer()


LARGE = 64 * MB


@pytest.mark.slow
@over(*FAULTY)
def test_a_sender_killed_in_mid_transfer_is_a_named_error(cable, met, start):
    witness, victim = Witness(met.a), start("b")
    with under_way(met, victim, met.a, LARGE):
        victim.kill()
        fails(met.a)
    assert witness.sees_nothing_left()
    move(met, met.b, met.a, "random", MB, 3)


@pytest.mark.slow
@over(*FAULTY)
def test_a_receiver_killed_in_mid_transfer_leaves_nothing(cable, met, start):
    witness, victim = Witness(met.a), start("b")
    with under_way(met, met.a, victim, LARGE):
        victim.kill()
        assert witness.sees_nothing_left()
    with pytest.raises((ActorDied, ActorUnavailable)):
        while True:
            met.a.call("offer", victim.id, "random", MB, 2)
    assert witness.sees_nothing_left()
    move(met, met.a, met.b, "random", MB, 3)


@over("shm", *FAULTY)
def test_a_receiver_killed_with_data_in_hand_and_on_its_way_leaves_nothing(met, start):
    witness, victim = Witness(met.a), start("b")
    move(met, met.a, victim, "random", MB, 4)
    met.a.call("offer_same", victim.id)
    victim.kill()
    assert witness.sees_nothing_left()
    met.a.call("peer_lost", victim.id)
    with pytest.raises(ActorDied):
        met.a.call("offer", victim.id, "random", MB, 2)
    assert witness.sees_nothing_left()


@over("shm", *FAULTY)
def test_what_a_killed_sender_gave_stays_and_the_rest_is_a_named_error(met, start):
    witness, victim = Witness(met.a), start("b")
    move(met, victim, met.a, "random", MB, 5)
    late = victim.call("offer", met.a.id, "random", MB, 6)
    victim.kill()
    met.a.call("peer_lost", victim.id)
    assert met.a.call("check", "random", MB, 5) == ""
    met.a.tell("take", late)
    try:
        met.a.answer()  # over shared memory it may still be had
    except (ActorDied, ActorUnavailable):
        pass
    else:
        assert met.transport == "shm"
        assert met.a.call("check", "random", MB, 6) == ""
    assert witness.sees_nothing_left()


@pytest.mark.slow
@over(*FAULTY)
@pytest.mark.parametrize("cut", ["pulled", "swallowing"])
def test_a_cut_link_is_a_named_error_and_is_mended(cable, met, cut):
    here, there = Witness(met.a), Witness(met.b)
    with under_way(met, met.b, met.a, LARGE):
        with getattr(cable, cut)():
            fails(met.a)
            assert here.sees_nothing_left() and there.sees_nothing_left()
    moves_again(met, met.a, met.b)
    moves_again(met, met.b, met.a)
    assert met.settled()


@pytest.mark.slow
@over(*FAULTY)
def test_a_link_cut_while_nothing_moves_takes_the_leases_with_it(cable, met):
    met.b.call("offer", met.a.id, "random", MB, 8)
    here, there = met.a, met.b
    assert there.call("statistics")["leases"] == 1
    with cable.pulled():
        assert eventually(lambda: not there.call("statistics")["links"])
        assert eventually(lambda: not here.call("statistics")["links"])
        assert eventually(there.settled)
    moves_again(met, there, here)
    moves_again(met, here, there)


# -- a slow reader ---------------------------------------------------------


@over("shm", *FAULTY)
def test_a_slow_reader_leaves_the_owners_memory_flat(met, start):
    """The owner goes on until its limit; then there is room as the reader reads."""
    room, reader = 6, met.b
    owner = start("a", memory_limit=room * MB)
    move(met, owner, reader, "random", MB, 1)
    reader.call("drop")
    owner.call("drop")
    assert eventually(owner.settled)
    reader.freeze()
    try:
        messages = owner.call("offer_until_full", reader.id, MB)
    finally:
        reader.thaw()
    full = owner.call("statistics")
    assert len(messages) == room and full["used"] == room * MB
    resident = owner.call("resident")
    for number in range(4 * room):
        reader.call("take", messages.pop(0))
        assert reader.call("first_byte") == number
        reader.call("drop")
        assert eventually(lambda: owner.call("statistics")["used"] < full["used"])
        messages += owner.call("offer_until_full", reader.id, MB)
        assert len(messages) == room
    after = owner.call("statistics")
    assert (after["used"], after["reserved"]) == (full["used"], full["reserved"])
    assert owner.call("resident") - resident < MB + 4 * MB
    assert met.settled()
