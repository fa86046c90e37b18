# SPDX-License-Identifier: MIT
from __future__ import annotations

import pytest

from mooactor.control import bodies


def test_bodies_come_apart_as_they_were_put_together() -> None:
    descriptors = [b"one", b"", b"x" * 64]
    found, rest = bodies.split_attached(bodies.pack_attached(descriptors, b"pickle"))
    assert (found, bytes(rest)) == (descriptors, b"pickle")

    for borrows in ([], [(1, 2)], [(1 << 63, i) for i in range(70_000)]):
        payload = bodies.pack_borrows(99, 7, borrows) + b"pickle"
        lender, number, loans, rest = bodies.split_borrows(payload)
        assert (lender, number, loans, bytes(rest)) == (99, 7, borrows, b"pickle")

    for count in (0, 1, 3):
        tokens = [(number, 1 << 63 | number) for number in range(count)]
        tokens_found, rest = bodies.split_tokens(bodies.pack_tokens(tokens, b"rest"))
        assert (tokens_found, bytes(rest)) == (tokens, b"rest")

    assert bodies.numbers(bodies.pack_numbers(5, 1 << 63), 2) == (5, 1 << 63)
    probe = bodies.Probe(1 << 63, 7, 2, ["1 a", "2 b\u00e9"])
    assert bodies.Probe.of(probe.packed()) == probe


CUT_SHORT = [
    *[(bodies.split_attached, x) for x in (b"", b"\1", b"\1\0", b"\2\0\1a\x09b")],
    *[(bodies.split_borrows, x) for x in (b"", bytes(19), b"\xff" * 40)],
    (bodies.split_borrows, bodies.pack_borrows(1, 4, [(2, 3)])[:-1]),
    *[(bodies.split_tokens, bodies.pack_tokens([(1, 2)], b"")[:n]) for n in range(9)],
    *[(lambda x: bodies.numbers(x, 2), bytes(n)) for n in range(20) if n != 16],
    *[(bodies.Probe.of, bodies.Probe(1, 7, 2, ["x"]).packed()[:n]) for n in range(20)],
]


def test_bodies_that_are_cut_short_are_malformed() -> None:
    for split, payload in CUT_SHORT:
        with pytest.raises(bodies.MalformedMessage):
            split(payload)
