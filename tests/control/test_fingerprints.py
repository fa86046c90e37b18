# SPDX-License-Identifier: MIT
"""Two nodes with different keys: each side knows it, and which they are."""

from __future__ import annotations

import random
import socket
import threading

import pytest

from mooactor.control import addresses, fingerprints
from mooactor.control.addresses import has_ipv6
from mooactor.control.clock import REAL
from mooactor.control.fingerprints import Answers
from mooactor.control.node import Node
from mooactor.control.secret import TURNED_DOWN
from mooactor.testing import VirtualClock
from mooactor.times import CHANNEL_SILENCE_S
from tests.control.nodes import Recorder, node, together
from tests.fuzz.mutation import mutate

OTHER = b"\1" * 32
OWN, THEIRS = fingerprints.of(OTHER), fingerprints.of(bytes(range(32)))


def refused(one: Node, other: Node, address: str = "") -> str:
    """Why a channel from one node to another one has ended."""
    mine = Recorder()
    one.connect(address or other.address, mine)
    assert together((one, other), lambda: mine.closed)
    (why,) = mine.closed
    return why


def test_both_sides_know_both_fingerprints_and_the_listener_says_it_once() -> None:
    heard: list[tuple[str, str]] = []
    with node(OTHER) as one, node() as other:
        other.tell_fingerprint(lambda *news: heard.append(news))
        for _ in range(2):
            why = refused(one, other)
            assert why == f"it holds another key, {THEIRS}, and this side {OWN}"
        assert heard == [("127.0.0.1", OWN)]


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_a_node_on_all_addresses_answers_at_each(host: str) -> None:
    if ":" in host and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    heard: list[tuple[str, str]] = []
    with node(OTHER) as one, node(bind="*") as other:
        other.tell_fingerprint(lambda *news: heard.append(news))
        assert THEIRS in refused(one, other, f"tcp://{host}:{other.port}")
    assert heard[0][0] in ("127.0.0.1", "::1")


def test_where_nobody_answers_it_is_known_all_the_same_and_how_to_see_the_key() -> None:
    with node(OTHER) as one, node() as other:
        why = refused(one, other)
    assert why == (
        f"it holds another key than this side, which has {OWN}; `mooactor keygen "
        "--show` there says which"
    )


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


def test_a_holder_of_the_same_key_is_never_said_to_have_another_one() -> None:
    """Its handshakes may fail because it is flooded."""
    with node(OTHER) as one, node() as other:
        where = ("127.0.0.1", other.port)
        heard: list[str] = []
        answers = Answers(other._ready, REAL, OWN, where, lambda *_: heard.append(""))
        why = refused(one, other)
        answers.close()
    assert TURNED_DOWN in why and heard == []


def test_datagrams_that_make_no_sense_get_no_answer_and_no_answer_is_longer() -> None:
    rng = random.Random(3)
    good = fingerprints.pack(b"moo-key?", b"n" * 8, OWN)
    with node() as other, socket.socket(type=socket.SOCK_DGRAM) as asker:
        other.tell_fingerprint(lambda *news: None)
        asker.connect(("127.0.0.1", other.port))
        asker.setblocking(False)
        for _ in range(500):
            data = mutate(rng, good)
            asker.send(data)
            other.run_until(lambda: False, 0.0)
            answers = []
            while True:
                try:
                    answers.append(asker.recv(999))
                except BlockingIOError:
                    break
            sensible = len(data) == 20 and data[:8] == b"moo-key?"
            wanted = fingerprints.pack(b"moo-key!", data[8:16], THEIRS)
            assert answers == [wanted] * sensible
        answer = fingerprints.pack(b"moo-key!", b"n" * 8, OWN)
        asker.send(answer)  # two nodes never send each other one after the other
        asker.send(good)
        assert other.run_until(lambda: _received(asker), 20)


def _received(asker: socket.socket) -> bool:
    try:
        return asker.recv(999)[16:].hex() == THEIRS
    except BlockingIOError:
        return False


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
        wrong.tell_fingerprint(lambda *news: None)
        right.accept = theirs.accept
        channel = one.connect(f"tcp://both:{wrong.port}", Recorder())
        nodes = (one, wrong, right)
        assert together(nodes, lambda: channel._hosts == ["127.0.0.2"])
        assert together(nodes, lambda: channel.peer == right.id)
    assert len(theirs.channels) == 1
