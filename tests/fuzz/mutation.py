# SPDX-License-Identifier: MIT
"""Messages that are nearly right: of bytes, of records, and of what MessagePack has."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator
from typing import Any

from mooactor.control import bodies, envelope
from mooactor.errors import AuthError, VersionMismatch
from tests.control.test_envelope import KEY, call, call_with_deadline

_LEAST, _MOST = -(1 << 63), (1 << 64) - 1  # that MessagePack has
_NUMBERS = (
    0,
    -1,
    1,
    255,
    1 << 16,
    1 << 31,
    1 << 63,
    _MOST,
    _LEAST,
)
_QUANTITIES = (0.5, -1.0, math.inf, -math.inf, math.nan, 1e300)
_TEXTS = ("", "x", "\0", "é" * 400, "tcp://", "../..", "a\nb", "x" * 5000)
_REST = (None, True, False, b"", b"\0" * 300, [], {}, [[]], {"": {}}, {"x": [None]})


def odd(rng: random.Random) -> Any:
    """A plain value where another one was expected."""
    return copy.deepcopy(rng.choice(rng.choice((_NUMBERS, _QUANTITIES, _TEXTS, _REST))))


def changed(rng: random.Random, message: dict[str, Any]) -> dict[str, Any]:
    """A copy with one to three differences, at any depth; sometimes with none."""
    found = copy.deepcopy(message)
    for _ in range(rng.randrange(4)):
        _change(rng, rng.choice(list(_containers(found))))
    return found


def _containers(value: Any) -> Iterator[Any]:
    """The dicts and lists in it, outermost first."""
    if type(value) is dict or type(value) is list:
        yield value
        for item in value.values() if type(value) is dict else value:
            yield from _containers(item)


def _change(rng: random.Random, container: Any) -> None:
    keys = list(container) if type(container) is dict else list(range(len(container)))
    key = rng.choice(keys) if keys else None
    choice = rng.random()
    if key is None or choice < 0.1:
        _add(rng, container)
    elif choice < 0.3:
        del container[key]
    elif choice < 0.5 and type(container[key]) in (bytes, str):
        container[key] = _mutated(rng, container[key])
    elif choice < 0.6 and type(container[key]) is int:
        more = container[key] + rng.choice((-1, 1, 1 << 32))
        container[key] = min(_MOST, max(_LEAST, more))
    else:
        container[key] = odd(rng)


def _add(rng: random.Random, container: Any) -> None:
    if type(container) is list:
        container.insert(rng.randrange(len(container) + 1), odd(rng))
    else:
        container[rng.choice(("x", "", "id", "number", "why"))] = odd(rng)


def _mutated(rng: random.Random, value: Any) -> Any:
    if type(value) is bytes:
        return mutate(rng, value)
    return mutate(rng, value.encode()).decode("utf-8", "replace")


# -- records of the envelope -------------------------------------------------------

REFUSALS = (envelope.MalformedMessage, AuthError, VersionMismatch)


def seeds() -> list[bytes]:
    head = envelope.prefix(KEY, 77)
    records = [
        call(),
        call(chain=bodies.pack_numbers(1, 2, 3)),
        call_with_deadline(1.5)[1],
        envelope.pack_record(envelope.CANCEL, 9),
        envelope.pack_record(envelope.REPLY, 3, b"abc", envelope.ATTACHED),
        envelope.pack_record(
            envelope.VALUE, 4, bodies.pack_attached([b"d" * 48], b"p"), 1
        ),
        envelope.pack_record(
            envelope.REPLY, 5, bodies.pack_borrows(7, 5, [(1, 2), (3, 4)]) + b"p", 128
        ),
        envelope.pack_record(envelope.FORWARD, 5, bytes(16)),
        envelope.pack_record(envelope.PROBE, 0, bytes(40)),
        envelope.pack_record(envelope.GOAWAY, 6),
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
        _, _, borrows, payload = bodies.split_borrows(payload)
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
