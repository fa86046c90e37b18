# SPDX-License-Identifier: MIT
"""Mutated messages for the fuzzers (tests/fuzz), and what reaches a process without the
key."""

from __future__ import annotations

import random
from typing import Any

from mooactor.control import bodies, envelope
from mooactor.errors import AuthError, VersionMismatch
from tests.control.test_envelope import KEY, call, call_with_deadline

REFUSALS = (envelope.MalformedMessage, AuthError, VersionMismatch)
ROUNDS = 40_000


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


def test_a_message_without_the_key_never_reaches_a_record(
    monkeypatch: Any,
) -> None:
    rng = random.Random(1)
    sources = seeds()
    reached: list[envelope.Record] = []
    for _ in range(ROUNDS):
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
