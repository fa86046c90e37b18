# SPDX-License-Identifier: MIT
"""Messages as bytes: what comes back is of the declared types and within the bounds."""

from __future__ import annotations

import math
import os
import tracemalloc
from typing import Any

import msgspec
import pytest

from mooactor.control.messages import (
    Decoder,
    Head,
    Malformed,
    Message,
    Unsendable,
    encode,
    encode_in_parts,
    head_of,
    readable,
)
from mooactor.host import protocol as agents
from mooactor.host.members import FROM_BROKER, TO_BROKER
from mooactor.process import protocol
from mooactor.process.environment import Place
from mooactor.process.exits import ExitRecord

DECODERS: list[Decoder[Any]] = [
    protocol.REQUESTS,
    protocol.NEWS,
    agents.TO_GUEST,
    agents.TO_HOME,
    agents.TO_NEIGHBOR,
    agents.TO_DESK,
    agents.TO_COMMAND,
    TO_BROKER,
    FROM_BROKER,
]


def test_each_message_comes_back_equal() -> None:
    record = ExitRecord("exit", 3, stderr=("last", "words"))
    died = protocol.Died(1 << 16, 2, ExitRecord.follows("link", "a", record), 3)
    for message in (
        protocol.Kill((1 << 64) - 1, rid=7),
        protocol.Reply(1, [1, "b"]),
        protocol.Reply(2, {"deaths": 3}),
        protocol.Reply(3, b"handle"),
        died,
    ):
        union = DECODERS[isinstance(message, protocol.Reply | protocol.Died)]
        assert union.decode(encode(message)) == message
    place = Place(b"/\xff", [b"/a\xfe"])  # paths need not be UTF-8
    assert msgspec.msgpack.decode(encode(place), type=Place) == place
    assert os.fsdecode(place.cwd) == "/\udcff"


def test_what_cannot_be_sent_is_refused_where_it_is_encoded() -> None:
    for message in (protocol.Kill(1 << 64), protocol.LookUp("\udc80")):
        with pytest.raises(Unsendable, match=type(message).__name__):
            encode(message)
    assert encode(protocol.LookUp(readable("\udc80")))
    assert ExitRecord("host", note="\udc80" * 70_000).note == "?" * (1 << 16)


SPAWN = {"type": "Spawn", "id": 1, "label": "", "handle": b""}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, "type"),
        (7, "object"),
        ({"type": "Dance"}, "'Dance'"),
        ({"type": ["Kill"], "id": 1}, "type"),
        ({"type": "Kill"}, "`id`"),
        ({"type": "Kill", "id": "1"}, r"\$\.id"),
        ({"type": "Kill", "id": True}, r"\$\.id"),
        ({"type": "Kill", "id": -1}, r"\$\.id"),
        ({"type": "Kill", "id": 1, "more": 1}, "more"),
        ({"type": "LookUp", "name": "x" * 1001}, r"\$\.name"),
        ({"type": "LookUp", "name": "x", "timeout": math.nan}, r"\$\.timeout"),
        ({"type": "LookUp", "name": "x", "timeout": 1e10}, r"\$\.timeout"),
        ({**SPAWN, "policy": {"max": -1}}, "negative"),
        ({**SPAWN, "preload": ["x"] * 5000}, "length <= 4096"),
        ({**SPAWN, "place": {"cwd": b"a\0b", "path": []}}, "zero byte"),
        ({**SPAWN, "needs": {"amount": {"cpus": math.inf}}}, "cpus"),
    ],
)
def test_of_a_malformed_message_the_reason_names_the_field(said: Any, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        protocol.REQUESTS.decode(encode(said))


def test_the_sender_of_a_malformed_message_can_be_answered() -> None:
    data = encode({"type": "Kill", "rid": 7, "id": 3, "x": [{"y": None}]})
    assert head_of(data) == Head("Kill", 7, 3)
    for nonsense in (b"", b"\xc1", encode(1), encode({"rid": "x"}), data[:-1]):
        assert head_of(nonsense) == Head()


def test_depth_is_bounded() -> None:
    record: Any = {"kind": "exit"}
    for _ in range(4):
        record = {"kind": "link", "origin": record}
    died = {"type": "Died", "id": 1, "incarnation": 0, "record": record}
    assert protocol.NEWS.decode(encode(died))
    died["record"] = {"kind": "link", "origin": record}
    with pytest.raises(Malformed, match="origins"):
        protocol.NEWS.decode(encode(died))
    begin = encode({"type": "Died", "id": 1, "incarnation": 0, "record": None})[:-1]
    for nested in (b"\x81\xa6origin", b"\x91", b"\x81\xa1x"):
        for data in (begin + nested * 100_000 + b"\xc0", nested * 100_000):
            with pytest.raises(Malformed):
                protocol.NEWS.decode(data)
            assert head_of(data) is not None


def test_a_length_beyond_the_end_is_refused_before_anything_is_allocated() -> None:
    begin = encode({"type": "Reserve", "ids": None})[:-1]
    tracemalloc.start()
    try:
        for head in (b"\xdd", b"\xdf", b"\xc6", b"\xdb", b"\xc9"):
            for data in (begin + head + b"\xff" * 4, head + b"\xff" * 4):
                with pytest.raises(Malformed):
                    protocol.REQUESTS.decode(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_parcels_are_parts_of_their_own() -> None:
    blobs = [b"one", memoryview(b"two"), b""]
    line = agents.OverLine(1, b"said", False, None, [])
    parts = encode_in_parts(line, blobs)
    found = agents.TO_HOME.decode(b"".join(parts))
    assert found.parcels == [b"one", b"two", b""] and found.message == b"said"
    assert all(any(part is blob for part in parts) for blob in blobs)
    assert encode_in_parts(line, []) == [encode(line)]


def test_no_message_has_the_tag_of_another_one_of_its_union() -> None:
    for union in DECODERS:
        assert len(union.tags) == len(union.kinds)
        assert all(issubclass(kind, Message) for kind in union.kinds)
