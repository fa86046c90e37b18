# SPDX-License-Identifier: MIT
"""Sending to a ROUTER may swallow the sign that something has come to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq

from mooactor.control.incoming import Route
from mooactor.control.sockets import Socket
from tests.conftest import eventually

Pair = tuple[Socket, Socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A ROUTER that a message has come to, and its sender."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        port = router.bind_to_random_port("tcp://127.0.0.1")
        with context.socket(zmq.DEALER) as dealer:
            dealer.setsockopt(zmq.ROUTING_ID, b"peer")
            dealer.connect(f"tcp://127.0.0.1:{port}")
            dealer.send(b"news")
            assert router.poll(10_000)
            yield router, dealer
            dealer.close(0)
            router.close(0)


@pytest.mark.parametrize("identity", [b"peer", b"nobody"])
def test_after_a_send_that_may_fail_news_is_asked_for_once(
    pair: Pair, identity: bytes
) -> None:
    router, dealer = pair
    read: list[bool] = []
    route = Route(router, identity, -1, lambda: read.append(True))
    route.sent()
    assert read == []  # nothing was sent
    assert route.send(b"frame") == (identity == b"peer")
    route.sent()
    route.sent()
    assert read == [True]
    if identity == b"peer":
        assert eventually(lambda: dealer.poll(0))
