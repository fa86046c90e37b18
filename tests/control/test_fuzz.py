# SPDX-License-Identifier: MIT
"""Mutated frames neither crash a process nor reach unpickling without the key."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

import mooactor as moo
from mooactor.control import bodies, envelope
from mooactor.errors import AuthError, VersionMismatch
from mooactor.process.current import current_runtime
from tests.actors.counter import Counter
from tests.conftest import eventually
from tests.control.test_envelope import KEY, call, call_with_deadline

REFUSALS = (envelope.MalformedMessage, AuthError, VersionMismatch)
ROUNDS = 1_000_000


def seeds() -> list[bytes]:
    head = envelope.prefix(KEY, 77)
    records = [
        call(),
        call(chain=envelope.pack_chain([1, 2, 3])),
        call_with_deadline(1.5)[1],
        envelope.pack_record(envelope.CANCEL, 9),
        envelope.pack_record(envelope.REPLY, 3, b"abc", envelope.ATTACHED),
        envelope.pack_record(
            envelope.VALUE, 4, bodies.pack_attached([b"d" * 48], b"p"), 1
        ),
        envelope.pack_record(
            envelope.REPLY, 5, bodies.pack_borrows(7, [(1, 2), (3, 4)]) + b"p", 128
        ),
        envelope.pack_record(envelope.FORWARD, 5, bytes(16)),
        envelope.pack_record(envelope.PROBE, 0, bytes(40)),
        envelope.pack_record(envelope.GOAWAY, 6),
        envelope.pack_record(envelope.LENT, 0, bodies.pack_attached([b"d" * 40], b"")),
    ]
    return [head + record for record in records] + [head + b"".join(records)]


def mutate(rng: random.Random, message: bytes) -> bytes:
    data = bytearray(message)
    for _ in range(rng.randint(1, 4)):
        choice = rng.random()
        at = rng.randrange(len(data)) if data else 0
        if choice < 0.5 and data:
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif choice < 0.7:
            del data[at : at + rng.randint(1, 8)]
        elif choice < 0.9:
            data[at:at] = rng.randbytes(rng.randint(1, 8))
        else:
            del data[at:]
    return bytes(data)


def parse(message: bytes) -> None:
    records: list[envelope.Record] = []
    try:
        envelope.read_records(message, KEY, records)
    finally:
        for record in records:
            parse_payload(record, len(message))


def parse_payload(record: envelope.Record, message_bytes: int) -> None:
    payload = record.payload
    if record.flags & envelope.BORROWS:
        _, borrows, payload = bodies.split_borrows(payload)
        assert len(borrows) <= message_bytes // 16
    if record.flags & envelope.ATTACHED:
        bodies.split_attached(payload)


def asks_to_stop(message: bytes, key: bytes) -> bool:
    """Whether an actor that gets this message rightly ends."""
    records: list[envelope.Record] = []
    try:
        envelope.read_records(message, key, records)
    except envelope.MalformedMessage:
        pass  # what came before that place is acted on
    return any(record.kind == envelope.STOP for record in records)


@pytest.mark.slow
def test_the_parser_refuses_or_accepts_and_does_nothing_else() -> None:
    rng = random.Random(0)
    sources = seeds()
    futures = {"accepted": 0, "refused": 0}
    for _ in range(ROUNDS):
        try:
            parse(mutate(rng, rng.choice(sources)))
            futures["accepted"] += 1
        except REFUSALS:
            futures["refused"] += 1
    assert min(futures.values()) > ROUNDS // 20


def test_a_message_without_the_key_never_reaches_a_record(
    monkeypatch: Any,
) -> None:
    rng = random.Random(1)
    sources = seeds()
    reached: list[envelope.Record] = []
    for _ in range(ROUNDS // 5):
        message = bytearray(mutate(rng, rng.choice(sources)))
        if len(message) > 20:
            message[rng.randrange(4, 20)] ^= 1 << rng.randrange(8)
        if bytes(message[4:20]) == KEY:
            continue
        try:
            envelope.read_records(bytes(message), KEY, reached)
        except REFUSALS:
            pass
    assert reached == []


def test_a_live_actor_survives_strangers_and_broken_peers(spawn: Any) -> None:
    zmq = pytest.importorskip("zmq")
    counter = spawn(Counter)
    counter.echo()
    runtime = current_runtime()
    address = inbox_of(counter)
    rng = random.Random(2)
    good = runtime.messenger._prefix
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 1000
        socket.connect(address)
        for i in range(3000):
            source = rng.choice(seeds())
            if i % 3 == 0:  # no key at all: must never get as far as a record
                frames = [mutate(rng, source) for _ in range(rng.randint(1, 3))]
            else:  # the right key, and nonsense behind it
                frames = [good + mutate(rng, source[28:])]
                if asks_to_stop(frames[0], runtime.key):
                    continue
            socket.send_multipart(frames)
    assert [counter.add(1) for _ in range(3)] == [1, 2, 3]
    assert isinstance(counter, moo.Handle)


@pytest.mark.parametrize(
    "record",
    [
        envelope.pack_record(envelope.CREDIT, 1, value=math.nan),
        envelope.pack_record(envelope.CREDIT, 1, value=math.inf),
        envelope.pack_record(envelope.COUNT, 1),
        envelope.pack_record(envelope.COUNTED, 1),
    ],
    ids=["a credit of nan", "an infinite credit", "no count", "nothing counted"],
)
def test_a_record_without_its_numbers_is_dropped_as_malformed(
    spawn: Any, capfd: Any, record: bytes
) -> None:
    zmq = pytest.importorskip("zmq")
    counter = spawn(Counter)
    counter.echo()
    said = ""

    def reported() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return "dropped" in said or "could not be handled" in said

    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 1000
        socket.connect(inbox_of(counter))
        socket.send(current_runtime().messenger._prefix + record)
        assert eventually(reported)
    assert "could not be handled" not in said
    assert counter.add(1) == 1


def inbox_of(actor: Any) -> str:
    process_id = actor._where()[1].process_id
    return f"ipc://{current_runtime().directory}/{process_id:016x}"
