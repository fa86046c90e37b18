# SPDX-License-Identifier: MIT
"""Lifelines: frames with descriptors, and what happens to nonsense."""

from __future__ import annotations

import array
import os
import random
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mooactor.control.lifeline import Lifeline, LifelineClosed, Received
from mooactor.control.messages import Unsendable, encode
from mooactor.process.protocol import ListActors, LookUp

GOOD = encode(ListActors())


@pytest.fixture
def pair() -> Iterator[tuple[Lifeline, Lifeline]]:
    ours, theirs = map(Lifeline, socket.socketpair())
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture
def raw() -> Iterator[tuple[socket.socket, Lifeline]]:
    """One end is a bare socket."""
    ours, theirs = socket.socketpair()
    line = Lifeline(theirs)
    yield ours, line
    ours.close()
    line.close()


def everything(line: Lifeline) -> list[Received]:
    received = []
    while more := line.receive_nowait():
        received += more
    return received


def frame(body: bytes, descriptors: int = 0) -> bytes:
    return len(body).to_bytes(4, "little") + bytes((descriptors,)) + body


def test_each_frame_arrives_with_its_own_descriptors(
    pair: tuple[Lifeline, Lifeline], tmp_path: Path
) -> None:
    ours, theirs = pair
    for number in range(50):
        fds = []
        for part in range(number % 4):
            path = tmp_path / f"{number}-{part}"
            path.write_text(path.name)
            fds.append(os.open(path, os.O_RDONLY))
        ours.post(encode({"number": number}), fds)
        for fd in fds:
            os.close(fd)
    for number, (data, fds) in enumerate(everything(theirs)):
        assert data == encode({"number": number})
        names = [os.read(fd, 99).decode() for fd in fds]
        assert names == [f"{number}-{part}" for part in range(number % 4)]
        for fd in fds:
            os.close(fd)


def test_what_does_not_fit_is_kept_with_its_descriptors(
    pair: tuple[Lifeline, Lifeline],
) -> None:
    ours, theirs = pair
    read, write = os.pipe()
    sent = 0
    while not ours.post(encode({"data": bytes(100_000), "number": sent}), [write]):
        sent += 1
    ours.post(b"last", [read])
    os.close(read)
    os.close(write)
    received: list[Received] = []
    while not received or received[-1][0] != b"last":
        received += theirs.receive_nowait()
        ours.flush()
    assert [len(fds) for _, fds in received] == [1] * (sent + 2)
    os.write(received[0][1][0], b"through")
    assert os.read(received[-1][1][0], 99) == b"through"
    for _, (fd,) in received:
        os.close(fd)


def test_each_body_arrives_as_it_came(raw: tuple[socket.socket, Lifeline]) -> None:
    sender, line = raw
    bodies = [b"", b"N", b"\x80\x05K\x01.", GOOD[:-1], GOOD]
    for body in bodies:
        sender.send(frame(body))
    assert everything(line) == [(body, []) for body in bodies]


def test_a_head_that_makes_no_sense_ends_the_line(
    raw: tuple[socket.socket, Lifeline],
) -> None:
    sender, line = raw
    head = b"\xff\xff\xff\xff\0"
    sender.send(frame(GOOD) + head)
    assert line.receive_nowait() == [(GOOD, [])]
    assert select.select([line], [], [], 5.0)[0]  # though nothing more has come
    with pytest.raises(LifelineClosed):
        line.receive_nowait()


def test_descriptors_that_no_frame_claims_are_closed_with_the_line(
    raw: tuple[socket.socket, Lifeline],
) -> None:
    sender, line = raw
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 8))
    for _ in range(5):
        sender.sendmsg([frame(GOOD)], [rights])
    before = len(os.listdir("/proc/self/fd"))
    line.receive_nowait()
    with pytest.raises(LifelineClosed):
        line.receive_nowait()
    line.close()
    assert len(os.listdir("/proc/self/fd")) < before


def test_random_bytes_never_do_more_than_end_the_line() -> None:
    rng = random.Random(7)
    for _ in range(300):
        ours, theirs = socket.socketpair()
        line = Lifeline(theirs)
        ours.send(frame(encode({"op": rng.randbytes(9)}))[rng.randrange(3) :])
        ours.send(rng.randbytes(rng.randrange(200)))
        ours.close()
        try:
            while True:
                for data, fds in line.receive_nowait():
                    assert type(data) is bytes and fds == []
        except LifelineClosed:
            line.close()


def test_a_message_that_is_too_large_is_refused_where_it_is_sent(
    pair: tuple[Lifeline, Lifeline],
) -> None:
    with pytest.raises(Unsendable, match="takes"):
        pair[0].send(bytes((1 << 24) + 1))
    with pytest.raises(Unsendable, match="LookUp"):
        pair[0].send(LookUp("\udc80"))
    pair[0].send(ListActors())
    assert pair[1].receive_nowait() == [(GOOD, [])]
