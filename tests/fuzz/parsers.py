# SPDX-License-Identifier: MIT
"""Parsers of bytes from the network, without a network.

Each target makes one case with a generator of random numbers; the case is taken or
refused, with an exception that says so, and nothing else happens.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

from mooactor.cluster import registry
from mooactor.control import addresses as own_addresses
from mooactor.control import bodies, envelope, fingerprints, frames
from mooactor.control.envelope import VERSION as WIRE
from mooactor.control.messages import Malformed, encode
from mooactor.control.reliable import Violation
from mooactor.host import addresses, members
from mooactor.host.members import Members, Row
from mooactor.host.protocol import GroupFrame, OverLine, Refused
from mooactor.process import parcel
from mooactor.process.environment import Place
from mooactor.process.exits import ExitRecord
from mooactor.process.protocol import Died, Spawn
from mooactor.process.supervision import Restart
from tests.control import test_channel_fuzz as channels
from tests.control.test_messages import DECODERS
from tests.fuzz import mutation as records
from tests.fuzz.mutation import changed, mutate

PAYLOADS: tuple[Callable[[bytes], Any], ...] = (
    bodies.split_attached,
    bodies.split_borrows,
    bodies.split_tokens,
    bodies.split_number,
    bodies.all_numbers,
    bodies.Probe.of,
    lambda payload: bodies.numbers(payload, 3),
)


class Parser:
    """A target: `step` makes a case."""

    def __init__(
        self, case: Callable[[random.Random], object], *refusals: type[Exception]
    ) -> None:
        self._case, self._refusals = case, refusals
        self.accepted = self.refused = 0

    def step(self, rng: random.Random) -> int:
        try:
            self._case(rng)
            self.accepted += 1
        except self._refusals:
            self.refused += 1
        return 1

    def check(self) -> None:
        """Both happen, so the cases are neither all right nor all nonsense."""
        assert min(self.accepted, self.refused) > 0, vars(self)


def envelopes(rng: random.Random) -> None:
    records.parse(mutate(rng, rng.choice(SEEDS)))


def payloads(rng: random.Random) -> None:
    data = mutate(rng, rng.choice(BODIES))
    found = rng.choice(PAYLOADS)(data)
    assert sys.getsizeof(found) < 1000 + 100 * len(data)


def channel_frames(rng: random.Random) -> None:
    channels.parse(mutate(rng, rng.choice(FRAMES)))


def fingerprint_datagrams(rng: random.Random) -> None:
    good = fingerprints.pack(b"moo-key?", b"n" * 8, "01234567")
    found = fingerprints.read(b"moo-key?", mutate(rng, good))
    if found is None:
        raise Refused("no question")
    nonce, fingerprint = found
    assert len(nonce) == 8 and len(bytes.fromhex(fingerprint)) == 4


def messages(rng: random.Random) -> None:
    """Of every union, each kind with all that it may have."""
    union = rng.choice(DECODERS)
    good = {"type": rng.choice(sorted(union.tags)), **changed(rng, FIELDS)}
    data = encode(changed(rng, good)) if rng.random() < 0.5 else rng.choice(WHOLE)
    found = union.decode(mutate(rng, data) if rng.random() < 0.5 else data)
    assert type(found) in union.kinds
    assert encode(union.decode(encode(found))) == encode(found)


def announcements(rng: random.Random) -> None:
    """Also as others get them, from the broker."""
    message = {"type": "Announce", "load": 1.5, "row": encode(changed(rng, ROW))}
    found = members.TO_BROKER.decode(encode(changed(rng, message)))
    if not isinstance(found, members.Announce):
        raise Refused("another message")
    told = registry.read(found)
    row = members.row_of(told.row)
    assert row is not None and row.name == told.name
    assert _is_load(told.load)


def broker_rows(rng: random.Random) -> None:
    """A row that a home gets is one that it can place actors by, or none."""
    row = members.row_of(mutate(rng, encode(changed(rng, ROW))))
    if row is None:
        raise Refused("no row")
    _check_row(row)


def answers(rng: random.Random) -> None:
    """A broker's answer as a command gets it: good rows, each with a load."""
    packed = [(encode(changed(rng, ROW)), load) for load in (1.5, None)]
    message = {"type": "Members", "rows": packed}
    answer = members.FROM_BROKER.decode(encode(changed(rng, message)))
    found = members.rows_of(answer) if isinstance(answer, Members) else []
    if not found:
        raise Refused("no row")
    for row, load in found:
        _check_row(row)
        assert _is_load(load)


def _check_row(row: Row) -> None:
    assert all(type(text) is str for text in (row.name, row.id, row.address))
    assert all(type(text) is str for text in row.labels.values())
    for amount in (row.total, row.free, *row.reserved.values()):
        for held in (amount.cpus, amount.gpus, amount.memory):
            assert math.isfinite(held) and held >= 0


def _is_load(value: Any) -> bool:
    return value is None or (type(value) is float and 0 <= value <= 1e6)


def broker_addresses(rng: random.Random) -> None:
    text = _text(rng, ("tcp://10.0.0.5:4431", "[fd00::5]:4431", "a-b.c:80,*:1", "7-90"))
    readers = (
        addresses.parse,
        addresses.parse_list,
        addresses.parse_ports,
        own_addresses.parse,
    )
    rng.choice(readers)(text)


def parcels(rng: random.Random) -> None:
    """The layout of pickled values that agents hand on; unpickling comes after."""
    data = mutate(rng, PARCEL[:40]) + PARCEL[40:]
    pickled, buffers = parcel.split(memoryview(bytearray(data)))
    assert len(pickled) + sum(map(len, buffers)) <= len(data)


def _json(value: Any) -> bytes:
    return json.dumps(value, default=str).encode()


def _text(rng: random.Random, sources: tuple[str, ...]) -> str:
    return mutate(rng, rng.choice(sources).encode()).decode("utf-8", "surrogateescape")


SEEDS = records.seeds()
FRAMES = channels.good_frames()
BODIES = [
    bodies.pack_attached([b"d" * 48, b"e"], b"p"),
    bodies.pack_borrows(7, 5, [(1, 2), (3, 4)]) + b"p",
    bodies.pack_tokens([(1, 2), (3, 4)], b"p"),
    bodies.Probe(1, 2, 3, ["a", "b"]).packed(),
    bodies.pack_numbers(1, 2, 3),
    bytes(16),
]
ROW: dict[str, Any] = {
    "name": "a",
    "id": "00" * 8,
    "address": "tcp://10.0.0.5:4431",
    "kind": "host",
    "cpus": 4,
    "gpus": 1,
    "memory": 1 << 34,
    "labels": {"rack": "b2"},
    "free": {"cpus": 3.5, "gpus": 1, "memory": 1 << 33},
    "reserved": {"mark": {"cpus": 0.5, "gpus": 0, "memory": 0}},
    "versions": {
        "mooactor": "1",
        "python": "3.12",
        "torch": None,
        "wire": WIRE,
    },
    "sessions": ["mark"],
    "actors": 2,
}
FIELDS: dict[str, Any] = {"number": 1, "id": 1 << 16, "why": "", "note": "no"}
WHOLE = [
    encode(Spawn(1 << 16, "A", b"h", place=Place(b"/", [b"/a"]), policy=Restart())),
    encode(Died(1 << 16, 0, ExitRecord.follows("link", "b", ExitRecord("exit", 3)))),
    encode(OverLine(1, b"said", False, 7, [b"x"])),
    encode(GroupFrame(7, bytes(40))),
    encode(Members([(b"row", 1.5)])),
]
PARCEL = struct.pack("<QQQQ", 8, 2, 100, 7) + b"pickled." + bytes(300)

BYTES = (envelope.MalformedMessage,)
TARGETS: dict[str, Callable[[], contextlib.AbstractContextManager[Parser]]] = {}


def _target(
    name: str, case: Callable[[random.Random], object], *refusals: type[Exception]
) -> None:
    @contextlib.contextmanager
    def made() -> Iterator[Parser]:
        yield Parser(case, *refusals)

    TARGETS[name] = made


_target("envelopes", envelopes, *records.REFUSALS)
_target("payloads", payloads, *BYTES)
_target("frames", channel_frames, frames.Malformed, Violation)
_target("messages", messages, Malformed)
_target("fingerprints", fingerprint_datagrams, Refused)
_target("announcements", announcements, Refused, Malformed)
_target("rows", broker_rows, Refused)
_target("answers", answers, Refused, Malformed)
_target("addresses", broker_addresses, ValueError)
_target("parcels", parcels, ValueError)
