# SPDX-License-Identifier: MIT
"""The format of frames: it carries plain values, and nothing but plain values."""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from enum import IntEnum, StrEnum
from typing import Any

import pytest

from mooactor.control import plain

SEED = 20261122


class Colour(StrEnum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


class Text(str):
    pass


def value(rng: random.Random, depth: int = 4) -> Any:
    """A random plain value."""
    kinds = "nbifsyld" if depth else "nbifsy"
    match rng.choice(kinds):
        case "n":
            return None
        case "b":
            return rng.random() < 0.5
        case "i":
            return rng.choice((-1, 1)) * rng.getrandbits(
                rng.choice((1, 8, 63, 64, 120))
            )
        case "f":
            return rng.choice((0.0, -0.0, math.inf, rng.gauss(0, 1e9)))
        case "s":
            return "".join(map(chr, rng.choices((0, 65, 0xDC80, 0x20AC, 0x1F600), k=5)))
        case "y":
            return rng.randbytes(rng.choice((0, 1, 300)))
        case "l":
            return [value(rng, depth - 1) for _ in range(rng.randrange(5))]
        case _:
            count = range(rng.randrange(5))
            return {str(rng.random()): value(rng, depth - 1) for _ in count}


def mutated(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out)) if out else 0
        match rng.randrange(4):
            case 0 if out:
                out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, *b"NTFifsbld"))
            case 1:
                del out[at : at + rng.randint(1, 8)]
            case 2:
                out[at:at] = rng.randbytes(rng.randint(1, 8))
            case _:
                del out[at:]
    return bytes(out)


def is_plain(found: Any) -> bool:
    if type(found) is list:
        return all(map(is_plain, found))
    if type(found) is dict:
        return all(type(k) is str and is_plain(v) for k, v in found.items())
    return found is None or type(found) in (bool, int, float, str, bytes)


def test_every_plain_value_comes_back_equal_and_of_the_same_types() -> None:
    rng = random.Random(SEED)
    for _ in range(2000):
        before = value(rng)
        after = plain.unpack(plain.pack(before))
        assert after == before
        assert repr(after) == repr(before)
    assert math.isnan(plain.unpack(plain.pack(math.nan)))


def test_what_is_not_plain_is_refused_where_it_is_packed() -> None:
    odd: list[Any] = [Colour.RED, Number.ONE, Text("x"), (1, 2), {1: 2}]
    odd += [{Colour.RED: 2}, OrderedDict(a=1), bytearray(b"x"), memoryview(b"x")]
    for value in (*odd, 1j, object(), 1 << 127, -(1 << 127) - 1):
        with pytest.raises(plain.NotPlain):
            plain.pack({"value": [value]})


def test_depth_is_bounded_at_both_ends() -> None:
    deepest: Any = None
    for _ in range(plain.MAX_DEPTH):
        deepest = [deepest]
    assert plain.unpack(plain.pack(deepest)) == deepest
    with pytest.raises(plain.NotPlain, match="inside each other"):
        plain.pack([deepest])
    with pytest.raises(plain.Malformed, match="inside each other"):
        plain.unpack(b"l\1\0\0\0" * 1000 + b"N")


@pytest.mark.parametrize(("encoded", "value"), [(b"d\0\0\0\0", {}), (b"N", None)])
def test_the_number_of_values_is_bounded_at_both_ends(
    monkeypatch: pytest.MonkeyPatch, encoded: bytes, value: Any
) -> None:
    monkeypatch.setattr(plain, "MAX_VALUES", 1000)
    for most, within in ((999, []), (997, [{"x": 1}])):  # with the lists around them
        fits, too_many = [*within, *[value] * most], [*within, *[value] * (most + 1)]
        assert plain.unpack(plain.pack(fits)) == fits
        with pytest.raises(plain.NotPlain, match="values in one message"):
            plain.pack(too_many)
        begin = plain.pack(within)[5:]
        data = b"l" + len(too_many).to_bytes(4, "little") + begin + encoded * (most + 1)
        with pytest.raises(plain.Malformed, match="values in one message"):
            plain.unpack(data)


def test_a_few_large_values_are_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "MAX_VALUES", 10)
    value = {"a": bytes(5000), "b": ["x" * 5000, 1 << 100, 0.5], "c": {"d": {}}}
    assert plain.unpack(plain.pack(value)) == value


def test_a_length_beyond_the_end_is_refused_before_anything_is_allocated() -> None:
    for tag in (b"s", b"b", b"l", b"d"):
        with pytest.raises(plain.Malformed):
            plain.unpack(tag + b"\xff\xff\xff\xff")


def test_bytes_after_the_value_and_repeated_keys_are_refused() -> None:
    with pytest.raises(plain.Malformed, match="after the value"):
        plain.unpack(plain.pack(1) + b"N")
    key = b"\1\0\0\0aN"
    with pytest.raises(plain.Malformed, match="twice"):
        plain.unpack(b"d\2\0\0\0" + key + key)


def test_blobs_are_parts_of_their_own() -> None:
    head, blobs = {"a": 1, "z": [b"x"]}, [b"one", memoryview(b"two"), b""]
    parts = plain.pack_in_parts(head, "blobs", blobs)
    assert plain.unpack(b"".join(parts)) == {**head, "blobs": [b"one", b"two", b""]}
    assert all(any(part is blob for part in parts) for blob in blobs)
    with pytest.raises(plain.NotPlain):
        plain.pack_in_parts({"a": object()}, "blobs", blobs)
