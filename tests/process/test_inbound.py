# SPDX-License-Identifier: MIT
"""How much is fetched at a time, and in which order."""

from __future__ import annotations

import gc
import tempfile
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from mooactor.errors import ActorUnavailable, Cancelled, OutOfMemory
from mooactor.process.objects.future import AttachedReply
from mooactor.process.objects.inbound import InboundTransfers, Transfer
from mooactor.tensors import DataPlane
from mooactor.tensors.network import Network
from tests.conftest import eventually

MB = 1 << 20
KEY = b"a key for these tests"
# Lanes of 16 MiB for large data, and of 4 for small, of results and arguments each.
LIMIT = 128 * MB


class Desk:
    """A process that sends, one that receives, and what has come so far."""

    def __init__(self, directory: str) -> None:
        self.sender = DataPlane(directory, 1 << 16, KEY, Network(("tcp",)))
        self.receiver = DataPlane(
            directory, 2 << 16, KEY, Network(("tcp",)), memory_limit=LIMIT
        )
        self.stuck = False
        self.inbound = InboundTransfers(self.receiver, lambda: self.stuck)
        self.came: list[int] = []

    def send(self, *sizes: int, **options: Any) -> Transfer:
        to = self.receiver.process_id
        descriptors = [self.sender.export(bytes(size), to) for size in sizes]
        reply = AttachedReply(b"", descriptors, False, self.receiver)
        return self.inbound.begin(
            reply, lambda: self.came.append(sum(sizes)), **options
        )

    def wait(self, count: int) -> list[int]:
        """Look until so many have come, or failed."""

        def enough() -> bool:
            self.inbound.look()
            return len(self.came) >= count

        assert eventually(enough, 20)
        return self.came

    def under_way(self) -> int:
        return sum(lane.flying for lane in self.inbound._lanes)

    def waiting(self) -> int:
        return len(self.inbound) - self.under_way()

    def is_empty(self) -> bool:
        self.inbound.look()
        lanes = self.inbound._lanes
        return not (len(self.inbound) or any(lane.taken for lane in lanes))


@pytest.fixture
def desk() -> Iterator[Desk]:
    with tempfile.TemporaryDirectory(prefix="moo-plane-") as directory:
        desk = Desk(directory)
        yield desk
        desk.inbound.close()
        desk.sender.close()
        desk.receiver.close()


def test_what_exceeds_the_bound_waits_and_comes_in_order(desk: Desk) -> None:
    sizes = [6 * MB, 5 * MB, 4 * MB, 3 * MB, 2 * MB]
    inbound = [desk.send(size) for size in sizes]
    assert (desk.under_way(), desk.waiting()) == (3, 2)
    assert desk.inbound.restless
    desk.wait(5)
    assert sorted(desk.came) == sorted(sizes)
    assert [len(a.reply.buffers[0]) for a in inbound] == sizes
    assert desk.is_empty()
    assert not desk.inbound.busy


def test_small_data_does_not_wait_behind_large_and_there_is_room_beside_the_largest(
    desk: Desk,
) -> None:
    desk.send(60 * MB)
    for _ in range(3):
        desk.send(8 * MB)
    assert (desk.under_way(), desk.waiting()) == (2, 2)
    desk.send(1000)
    assert desk.waiting() == 2
    desk.wait(5)
    assert desk.is_empty()


def test_a_record_with_many_parts_is_whole_or_not_there(desk: Desk) -> None:
    sizes = [1000, 3 * MB, 7, 2 * MB]
    transfer = desk.send(*sizes)
    assert not transfer.done
    assert desk.wait(1) == [sum(sizes)]
    assert [len(part) for part in transfer.reply.buffers] == sizes


def test_arguments_count_until_they_are_released(desk: Desk) -> None:
    held = [desk.send(8 * MB, argument=True) for _ in range(3)]
    desk.wait(2)
    assert (desk.under_way(), desk.waiting()) == (0, 1)
    desk.send(8 * MB)  # a result has a lane of its own
    desk.wait(3)
    assert desk.waiting() == 1
    desk.inbound.release(held[0])
    desk.wait(4)
    for transfer in held[1:]:
        desk.inbound.release(transfer)
    assert desk.is_empty()


def test_if_nothing_can_run_one_more_argument_is_let_in(desk: Desk) -> None:
    held = [desk.send(8 * MB, argument=True) for _ in range(3)]
    desk.wait(2)
    assert not desk.inbound.look() and desk.waiting() == 1
    desk.stuck = True
    desk.wait(3)
    for transfer in held:
        desk.inbound.release(transfer)
    assert desk.is_empty()


def test_what_is_cancelled_ends_whether_under_way_or_waiting(desk: Desk) -> None:
    inbound = [desk.send(8 * MB) for _ in range(5)]
    for which in (0, 4):
        for _ in range(2):
            desk.inbound.cancel(inbound[which])
        assert isinstance(inbound[which].error, Cancelled)
    desk.wait(5)
    assert [a.error is None for a in inbound] == [False, True, True, True, False]
    assert desk.is_empty()
    inbound.clear()
    assert eventually(lambda: not desk.sender.statistics()["leases"])


def test_without_room_one_fails_and_the_others_come(desk: Desk) -> None:
    kept = desk.receiver.empty_buffer(LIMIT - 16 * MB)
    too_large, other = desk.send(40 * MB), desk.send(2 * MB)
    desk.wait(2)
    assert isinstance(too_large.error, OutOfMemory)
    assert other.error is None
    assert desk.is_empty()
    del kept


def test_room_that_others_give_back_in_time_is_used(desk: Desk) -> None:
    kept = desk.receiver.empty_buffer(LIMIT - 16 * MB)
    first = desk.send(8 * MB, argument=True)
    desk.wait(1)
    second = desk.send(24 * MB)
    assert not desk.inbound.look() and not second.done
    del kept
    desk.wait(2)
    assert second.error is None
    desk.inbound.release(first)
    assert desk.is_empty()


def test_what_is_under_way_or_waits_ends_with_an_error_of_its_own(desk: Desk) -> None:
    transfers = [desk.send(8 * MB) for _ in range(4)]
    assert (desk.under_way(), desk.waiting()) == (2, 2)
    desk.inbound.close(lambda: ActorUnavailable("so it ended"))
    ended = [transfer.error for transfer in transfers]
    assert [str(error) for error in ended] == ["so it ended"] * 4
    assert len(set(map(id, ended))) == 4
    assert desk.came == []


def test_who_was_called_back_is_let_go_with_all_that_it_holds(desk: Desk) -> None:
    """Among it the transfer, perhaps, and so the data, which waits for no collector."""
    gc.disable()
    try:
        for cancels in (False, True):
            data = [desk.sender.export(bytes(MB), desk.receiver.process_id)]
            reply = AttachedReply(b"", data, False, desk.receiver)
            memo, came = dict[str, Any](), list[object]()
            then = partial(lambda came, memo: came.append(len(memo)), came, memo)
            transfer = desk.inbound.begin(reply, then, memo=memo)
            lives = weakref.ref(reply)
            if cancels:
                desk.inbound.cancel(transfer)
            assert eventually(lambda came=came: (desk.inbound.look(), came)[1], 20)  # type: ignore[misc]
            del reply, memo, then, transfer
            assert lives() is None
    finally:
        gc.enable()
