# SPDX-License-Identifier: MIT
from __future__ import annotations

import itertools
import time

import pytest

from mooactor.control import bodies, envelope
from mooactor.errors import AuthError, VersionMismatch

KEY = bytes(range(16))


def call(
    name: bytes = b"\x04ping", payload: bytes = b"xyz", chain: bytes = b""
) -> bytes:
    body = name + chain + payload
    head = envelope.pack_head(envelope.CALL, 0, -3, len(chain) // 8, len(body), 9, 0.0)
    return head + body


def call_with_deadline(timeout: float) -> tuple[float, bytes]:
    deadline, packed, left = envelope.pack_deadline(timeout)
    body = b"\x04ping" + bodies.pack_numbers(5) + packed + b"xyz"
    head = envelope.pack_head(envelope.CALL, 0, 0, 1, len(body), 9, left)
    return deadline, head + body


def records_of(message: bytes) -> list[envelope.Record]:
    records: list[envelope.Record] = []
    envelope.read_records(message, KEY, records)
    return records


def test_a_message_comes_apart_as_it_was_put_together() -> None:
    chain = bodies.pack_numbers(5, 1 << 63)
    reply = envelope.pack_record(envelope.REPLY, 7, b"value", envelope.ERROR)
    message = envelope.prefix(KEY, 42) + call(chain=chain) + reply
    assert envelope.open_envelope(message, KEY) == (42, 0)
    first, second = records_of(message)
    assert first.sender == second.sender == 42
    assert first.kind == envelope.CALL
    assert (first.name, first.chain, first.priority) == (b"ping", (5, 1 << 63), -3)
    assert (first.call_id, first.value, bytes(first.payload)) == (9, 0.0, b"xyz")
    assert (second.kind, second.call_id, bytes(second.payload)) == (2, 7, b"value")


def test_caller_and_callee_of_a_host_have_one_deadline() -> None:
    for timeout in (1e-300, 1.5, 1e300):
        deadline, record = call_with_deadline(timeout)
        (read,) = records_of(envelope.prefix(KEY, 42) + record)
        assert read.value == deadline
        assert (read.chain, bytes(read.payload)) == ((5,), b"xyz")


def test_another_host_counts_the_seconds_left_from_receipt() -> None:
    _, record = call_with_deadline(1.5)
    before = time.perf_counter()
    (read,) = records_of(envelope.prefix(KEY, 42, epoch=1) + record)
    assert before + 1.5 <= read.value <= time.perf_counter() + 1.5
    assert (read.chain, bytes(read.payload)) == ((5,), b"xyz")


def test_a_deadline_cut_short_is_malformed() -> None:
    body = b"\x04ping" + bytes(7)
    head = envelope.pack_head(envelope.CALL, 0, 0, 0, len(body), 9, 1.5)
    with pytest.raises(envelope.MalformedMessage, match="deadline"):
        records_of(envelope.prefix(KEY, 42) + head + body)


def test_another_key_is_refused_before_anything_else() -> None:
    message = envelope.prefix(bytes(16), 1) + call()
    with pytest.raises(AuthError):
        envelope.open_envelope(message, KEY)


def test_another_version_is_named() -> None:
    message = bytearray(envelope.prefix(KEY, 1) + call())
    message[2] = 99
    with pytest.raises(VersionMismatch, match="protocol 99"):
        envelope.open_envelope(bytes(message), KEY)


def test_records_before_one_that_is_cut_short_are_there() -> None:
    record = envelope.pack_record(envelope.REPLY, 7, b"value")
    message = envelope.prefix(KEY, 1) + 2 * record
    records: list[envelope.Record] = []
    with pytest.raises(envelope.MalformedMessage):
        envelope.read_records(message[:-1], KEY, records)
    assert [bytes(read.payload) for read in records] == [b"value"]


def test_a_payload_is_whole_whether_it_is_copied_or_viewed() -> None:
    payload = bytes(range(256)) * 20
    for size in (0, 1, 256, 257, 5000):
        record = envelope.pack_record(envelope.REPLY, 7, payload[:size])
        message = envelope.prefix(KEY, 1) + record + record
        for read in records_of(message):
            assert bytes(read.payload) == payload[:size]


def test_a_message_cut_short_is_malformed() -> None:
    with pytest.raises(envelope.MalformedMessage):
        envelope.open_envelope(b"", KEY)
    for cut in range(1, 24):
        with pytest.raises(envelope.MalformedMessage):
            records_of((envelope.prefix(KEY, 1) + call())[:-cut])


def test_the_table_has_each_kind_once_and_in_order() -> None:
    lines = (envelope.__doc__ or "").splitlines()
    first = lines.index(next(line for line in lines if line.startswith("kind")))
    table = itertools.takewhile(lambda line: line[:2] != "==", lines[first + 2 :])
    named = [line.split()[0] for line in table if line[0] != " "]
    kinds = [getattr(envelope, name) for name in named]
    assert kinds == list(range(envelope.CALL, envelope.KNOWS + 1))
