# SPDX-License-Identifier: MIT
"""Two nodes with different keys: the one that connects knows it."""

from __future__ import annotations

import socket
import threading

import pytest

from mooactor.control import addresses
from mooactor.control.secret import OTHER_KEY, TURNED_DOWN
from mooactor.testing import VirtualClock
from mooactor.times import CHANNEL_SILENCE_S
from tests.control.nodes import Recorder, node, together

OTHER = b"\1" * 32


def test_a_channel_to_a_holder_of_another_key_ends_soon_and_says_so() -> None:
    mine = Recorder()
    with node(OTHER) as one, node() as other:
        one.connect(other.address, mine)
        assert together((one, other), lambda: mine.closed)
    assert mine.closed == [f"{OTHER_KEY} than this side"]


def test_one_that_hangs_up_before_it_greets_may_have_any_key() -> None:
    """Such as an ssh tunnel to a broker that is not there yet."""
    clock, mine = VirtualClock(), Recorder()
    with socket.create_server(("127.0.0.1", 0)) as server, node(clock=clock) as one:

        def hang_up() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        tunnel = threading.Thread(target=hang_up)
        tunnel.start()
        try:
            channel = one.connect(f"tcp://127.0.0.1:{server.getsockname()[1]}", mine)
            assert together([one], lambda: channel._obstacle == TURNED_DOWN)
            clock.drive(one.due, one.serve)
            clock.advance(CHANNEL_SILENCE_S + 0.1)
        finally:
            server.shutdown(socket.SHUT_RDWR)
            tunnel.join()
    assert TURNED_DOWN in mine.closed[0] and "no answer from" in mine.closed[0]


def test_a_name_may_stand_for_hosts_of_which_only_one_has_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = ["127.0.0.1", "127.0.0.2"]
    monkeypatch.setattr(addresses, "look_up", lambda host, port, found: found(both))
    theirs = Recorder()
    with (
        node(OTHER) as one,
        node() as wrong,
        node(OTHER, bind="127.0.0.2", port=wrong.port) as right,
    ):
        right.accept = theirs.accept
        channel = one.connect(f"tcp://both:{wrong.port}", Recorder())
        nodes = (one, wrong, right)
        assert together(nodes, lambda: channel._hosts == ["127.0.0.2"])
        assert together(nodes, lambda: channel.peer == right.id)
    assert len(theirs.channels) == 1
