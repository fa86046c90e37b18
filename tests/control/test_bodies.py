# SPDX-License-Identifier: MIT
from __future__ import annotations

import pytest

from mooactor.control import bodies


def test_attachments_come_apart_as_they_were_put_together() -> None:
    descriptors = [b"one", b"", b"x" * 64]
    payload = bodies.pack_attached(descriptors, b"pickle")
    found, rest = bodies.split_attached(payload)
    assert found == descriptors
    assert bytes(rest) == b"pickle"


@pytest.mark.parametrize("payload", [b"", b"\x01", b"\x01\x00", b"\x02\x00\x01a\x09b"])
def test_attachments_that_do_not_fit_are_malformed(payload: bytes) -> None:
    with pytest.raises(bodies.MalformedMessage):
        bodies.split_attached(payload)


@pytest.mark.parametrize(
    "borrows", [[], [(1, 2)], [(1 << 63, i) for i in range(70_000)]]
)
def test_loans_come_apart_as_they_were_put_together(
    borrows: list[tuple[int, int]],
) -> None:
    payload = bodies.pack_borrows(99, borrows) + b"pickle"
    lender, found, rest = bodies.split_borrows(payload)
    assert (lender, found, bytes(rest)) == (99, borrows, b"pickle")


@pytest.mark.parametrize(
    "payload", [b"", bytes(11), bodies.pack_borrows(1, [(2, 3)])[:-1], b"\xff" * 40]
)
def test_loans_that_do_not_fit_are_malformed(payload: bytes) -> None:
    with pytest.raises(bodies.MalformedMessage):
        bodies.split_borrows(payload)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_tokens_come_apart_from_the_rest_of_a_payload(count: int) -> None:
    tokens = [(number, 1 << 63 | number) for number in range(count)]
    found, rest = bodies.split_tokens(bodies.pack_tokens(tokens, b"rest"))
    assert (found, bytes(rest)) == (tokens, b"rest")


def test_tokens_that_are_cut_short_are_malformed() -> None:
    payload = bodies.pack_tokens([(1, 2), (3, 4)], b"")
    for size in range(len(payload)):
        with pytest.raises(bodies.MalformedMessage):
            bodies.split_tokens(payload[:size])


def test_pairs_and_probes_come_apart_or_are_malformed() -> None:
    assert bodies.pair(bodies.pack_pair(5, 1 << 63)) == (5, 1 << 63)
    probe = bodies.Probe(1 << 63, 7, 2, ["1 a", "2 b\u00e9"])
    assert bodies.Probe.of(probe.packed()) == probe
    for size in range(20):
        with pytest.raises(bodies.MalformedMessage):
            bodies.Probe.of(probe.packed()[:size])
        if size != 16:
            with pytest.raises(bodies.MalformedMessage):
                bodies.pair(bytes(size))
