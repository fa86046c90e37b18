# SPDX-License-Identifier: MIT
"""Sending to a ROUTER may swallow the sign that something has come to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq

from mooactor.control.acceptor import Route, Router
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
    socket, dealer = pair
    router = Router(socket)
    route = Route(router, identity, -1)
    assert not router.has_missed()  # nothing was sent
    assert route.send(b"frame") == (identity == b"peer")
    assert router.has_missed()
    assert not router.has_missed()
    if identity == b"peer":
        assert eventually(lambda: dealer.poll(0))
        assert dealer.recv_multipart() == [b"frame"]
    assert router.receive()[0] == b"peer"
    assert route.send(b"frame") == (identity == b"peer")
    assert not router.has_missed()  # there is no news
