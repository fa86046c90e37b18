# SPDX-License-Identifier: MIT
"""The reliability of channels as pure state: every message once and in order, however
connections break, and bounds for all that is kept."""

from __future__ import annotations

import random
from collections import deque

import pytest

from mooactor.control import reliable
from mooactor.control.reliable import (
    MAX_MESSAGE,
    MAX_QUEUED,
    PIECE_BYTES,
    WINDOW,
    Inflow,
    Outflow,
    Overflow,
    Violation,
)


def carry(out: Outflow, into: Inflow) -> list[bytes]:
    """Everything over a connection that never breaks."""
    messages = []
    while pieces := list(out.pieces()):
        for number, piece in pieces:
            into.arrive(number, bytes(piece))
        messages += fetched(into)
        out.acknowledge(into.taken)
    return messages


def fetched(into: Inflow) -> list[bytes]:
    """All messages that wait there."""
    return [into.fetch() for _ in range(len(into))]


def test_messages_arrive_as_they_were() -> None:
    rng = random.Random(1)
    for sizes in (
        [0],
        [5, 0, 5],
        [1] * 50_000,
        [PIECE_BYTES - 5, 1, 1],
        [PIECE_BYTES - 4] * 3,
        [PIECE_BYTES + n for n in range(-6, 6)],
        [1, 3 * PIECE_BYTES * WINDOW, 1],
    ):
        sent = [rng.randbytes(size) for size in sizes]
        out = Outflow()
        for message in sent:
            out.post(message)
        assert carry(out, Inflow()) == sent
        assert out.queued == 0 and out.all_sent


def test_small_messages_share_pieces() -> None:
    out = Outflow()
    for _ in range(1000):
        out.post(b"x" * 60)
    assert len(list(out.pieces())) == 1


def test_no_more_than_the_window_is_under_way() -> None:
    out, into = Outflow(), Inflow()
    out.post(bytes(PIECE_BYTES * (WINDOW + 10)))
    first = list(out.pieces())
    assert len(first) == WINDOW and list(out.pieces()) == []
    into.arrive(0, bytes(first[0][1]))
    out.acknowledge(into.taken)
    assert [number for number, _ in out.pieces()] == [WINDOW]


def test_a_piece_is_taken_once_its_messages_are_fetched() -> None:
    out, into = Outflow(), Inflow()
    small, large = b"x" * (PIECE_BYTES // 2 - 4), bytes(2 * PIECE_BYTES - 4)
    for message in (small, small, small, large):  # four pieces, the last one is half
        out.post(message)
    pieces = [bytes(piece) for _, piece in out.pieces()]
    for number, piece in enumerate(pieces):
        into.arrive(number, piece)
    taken = []
    while into:
        taken.append(into.taken)
        into.fetch()
    assert (taken, into.taken) == ([0, 0, 1, 3], 4)

    sizes = [len(small) + 4] * 3 + [len(large) + 4]
    assert out.posted == sum(sizes) and out.taken == 0
    out.acknowledge(3)
    assert out.taken == 3 * PIECE_BYTES
    out.acknowledge(4)
    assert out.taken == out.posted


def test_of_a_message_that_is_incomplete_all_pieces_are_taken() -> None:
    """Else one that is larger than the window would never come."""
    out, into = Outflow(), Inflow()
    out.post(bytes(10))
    out.post(bytes(2 * WINDOW * PIECE_BYTES))
    for number, piece in out.pieces():
        into.arrive(number, bytes(piece))
    assert into.taken == 0
    into.fetch()
    assert into.taken == WINDOW


def test_a_receiver_keeps_no_more_than_the_window() -> None:
    into, message = Inflow(), (PIECE_BYTES - 4).to_bytes(4, "little")
    piece = message + bytes(PIECE_BYTES - 4)
    for number in range(WINDOW):
        into.arrive(number, piece)
    with pytest.raises(Violation, match="when 0 were taken"):
        into.arrive(WINDOW, piece)
    into.fetch()
    into.arrive(WINDOW, piece)


def test_a_message_in_parts_is_one_message() -> None:
    out, into = Outflow(), Inflow()
    out.post(b"a", b"", b"b")
    out.post(b"c", bytes(2 * PIECE_BYTES), b"", memoryview(b"d"))
    out.post()
    assert carry(out, into) == [b"ab", b"c" + bytes(2 * PIECE_BYTES) + b"d", b""]


def test_one_message_waits_beside_the_bound_and_none_is_refused_below_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = Outflow()
    out.post(bytes(MAX_QUEUED + 1))  # the real bound
    out.post(b"small")  # the large one does not count against it
    with pytest.raises(Overflow, match="wait to be read"):
        out.post(bytes(MAX_QUEUED))
    monkeypatch.setattr(reliable, "MAX_QUEUED", 5 * PIECE_BYTES)
    rng, out, refused, largest = random.Random(3), Outflow(), 0, 12 * PIECE_BYTES
    taken = 0
    for _ in range(5000):
        before = out.queued
        try:
            out.post(bytes(rng.choice((1, 1000, PIECE_BYTES, rng.randrange(largest)))))
        except Overflow:
            refused += 1
            assert before > 5 * PIECE_BYTES
        assert out.queued <= 5 * PIECE_BYTES + largest + 4
        if rng.random() < 0.1:
            taken += len(list(out.pieces()))
            out.acknowledge(taken)
    assert refused


def test_patient_messages_do_not_count_as_those_that_wait() -> None:
    rng, out, into, sent = random.Random(4), Outflow(), Inflow(), []
    half = MAX_QUEUED // 2
    for size in (half, half, half, 3):
        sent.append(bytes(size))
        out.post(sent[-1], patient=True)
    for size in (half - 9, half - 9, 1, half):  # the last one waits beside these
        sent.append(bytes(size))
        out.post(sent[-1])
    with pytest.raises(Overflow):
        out.post(bytes(half))
    got: list[bytes] = []
    while len(got) < len(sent):
        for number, piece in list(out.pieces()):
            into.arrive(number, bytes(piece))
            while into:
                got.append(into.fetch())
            if rng.random() < 0.001:
                out.post(b"", patient=True)
                sent.append(b"")
        out.acknowledge(into.taken)
    assert got == sent
    assert out._patient_waiting() == out.queued == 0


def test_messages_beyond_the_limit_are_refused_at_both_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    into = Inflow()
    with pytest.raises(Violation, match="announced"):
        into.arrive(0, (MAX_MESSAGE + 1).to_bytes(4, "little"))
    with pytest.raises(Violation, match="101 bytes; 100 are taken"):
        Inflow(100).arrive(0, (101).to_bytes(4, "little"))
    monkeypatch.setattr(reliable, "MAX_MESSAGE", 100)
    with pytest.raises(ValueError, match="101 bytes"):
        Outflow().post(bytes(101))


def test_an_announced_message_takes_no_memory_before_it_comes() -> None:
    into = Inflow()
    into.arrive(0, MAX_MESSAGE.to_bytes(4, "little") + b"abc")
    assert len(into._incoming) == 7


def test_invalid_pieces_and_acknowledgements_are_violations() -> None:
    for number, data in ((1, b"x"), (0, b""), (0, bytes(PIECE_BYTES + 1))):
        with pytest.raises(Violation):
            Inflow().arrive(number, data)
    out = Outflow()
    out.post(b"x")
    list(out.pieces())
    with pytest.raises(Violation, match="of 1"):
        out.acknowledge(2)
    out.acknowledge(1)
    out.acknowledge(0)  # an old one, over the same connection
    with pytest.raises(Violation, match="before"):
        out.resume(0)


class Side:
    """One side of a channel, with the connection as it sees it."""

    def __init__(self) -> None:
        self.out = Outflow()
        self.into = Inflow()
        self.received: list[bytes] = []
        self.posted: list[bytes] = []


Wire = deque[tuple[int, bytes, int]]  # number, piece (or none) and count


class Simulation:
    """Two sides, and connections that break at any time: of each direction a prefix
    has arrived. Frames that were on their way can still come until the next
    connection begins, as ZeroMQ may have them in a queue."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.sides = Side(), Side()
        self.wires: tuple[Wire, Wire] = deque(), deque()
        self.stands = [False, False]  # as each side sees it

    def post(self) -> None:
        side = self.rng.choice(self.sides)
        size = self.rng.choice((0, 1, 30, 1000, PIECE_BYTES, 3 * PIECE_BYTES))
        message = self.rng.randbytes(size)
        side.posted.append(message)
        side.out.post(message)

    def flush(self) -> None:
        index = self.rng.randrange(2)
        if not self.stands[index]:
            return
        side, wire = self.sides[index], self.wires[index]
        for number, piece in side.out.pieces():
            wire.append((number, bytes(piece), side.into.taken))
            if self.rng.random() < 0.2:
                return  # `pieces` may be left at any place
        wire.append((-1, b"", side.into.taken))

    def arrive(self) -> None:
        index = self.rng.randrange(2)
        wire, side = self.wires[index], self.sides[1 - index]
        for _ in range(self.rng.randrange(1, 5)):
            if wire:
                number, piece, taken = wire.popleft()
                side.out.acknowledge(taken)
                if number >= 0:
                    side.into.arrive(number, piece)

    def handle(self) -> None:
        side = self.rng.choice(self.sides)
        for _ in range(self.rng.randrange(1, 5)):
            if side.into:
                side.received.append(side.into.fetch())

    def break_off(self) -> None:
        self.stands = [False, False]
        for wire in self.wires:
            for _ in range(self.rng.randrange(len(wire) + 1)):
                wire.pop()

    def connect(self) -> None:
        for wire in self.wires:
            wire.clear()
        one, other = self.sides
        self.stands = [True, True]
        one.out.resume(other.into.taken)
        other.out.resume(one.into.taken)

    def run(self, steps: int) -> None:
        actions = [self.post, self.flush, self.flush, self.arrive, self.arrive]
        actions += [self.handle, self.handle]
        for _ in range(steps):
            self.rng.choice(actions)()
            if self.rng.random() < 0.05:
                self.break_off()
            if self.rng.random() < 0.1:
                self.connect()

    def settle(self) -> None:
        self.connect()
        for _ in range(10_000):
            self.flush()
            self.arrive()
            self.handle()
            if all(
                len(self.sides[i].posted) == len(self.sides[1 - i].received)
                for i in range(2)
            ):
                return


def test_every_schedule_of_breaks_delivers_all_once_and_in_order() -> None:
    for seed in range(30):
        simulation = Simulation(seed)
        simulation.run(600)
        simulation.settle()
        one, other = simulation.sides
        assert one.received == other.posted, seed
        assert other.received == one.posted, seed
        assert one.posted and other.posted
