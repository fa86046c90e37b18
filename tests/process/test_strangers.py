# SPDX-License-Identifier: MIT
"""Messages reach a process over TCP, from strangers and from those with the key."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import zmq
import zmq.utils.monitor

from mooactor.control import curve, envelope, strangers
from mooactor.control.keys import new_process_id, new_session_key
from mooactor.process.current import current_runtime
from tests.conftest import eventually
from tests.control.test_fuzz import asks_to_stop, mutate, seeds
from tests.marks import soak
from tests.process.guest import Guest
from tests.process.hosts import Hosts

FRAMES = 3000
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(15 + 1 + 31)


@pytest.fixture
def guest(two: Hosts) -> Any:
    guest = two.start("b", Guest)
    guest.pid()
    return guest


def address_of(two: Hosts, guest: Any) -> str:
    place = two.agent.members[guest._actor_id].place
    assert place is not None
    return place.address


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return host, int(port)


def handshake_of(socket: zmq.Socket[bytes], address: str) -> int:
    """Connect, and return how that ended."""
    ends = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    ends |= zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    ends |= zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_DISCONNECTED
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RECONNECT_IVL, -1)
    with socket.get_monitor_socket(ends) as monitor:
        socket.connect(address)
        assert monitor.poll(20_000)
        event = zmq.utils.monitor.recv_monitor_message(monitor)["event"]
        socket.disable_monitor()
        return int(event)


def test_without_the_key_no_handshake_succeeds(two: Hosts, guest: Any) -> None:
    address = address_of(two, guest)

    def outcome(dealer: zmq.Socket[bytes]) -> int:
        with dealer:
            return handshake_of(dealer, address)

    with zmq.Context() as context:
        plain, foreign, own = (context.socket(zmq.DEALER) for _ in range(3))
        curve.make_client(foreign, new_session_key())
        # He knows the listeners' key, which is as secret as the session's.
        curve.make_client(own, two.key)
        public, private = zmq.curve_keypair()
        own.setsockopt(zmq.CURVE_PUBLICKEY, public)
        own.setsockopt(zmq.CURVE_SECRETKEY, private)
        outcomes = [outcome(dealer) for dealer in (plain, foreign, own)]
    assert zmq.EVENT_HANDSHAKE_SUCCEEDED not in outcomes
    assert eventually(lambda: guest.statistics()["strangers"] == 1)
    assert guest.add(1) == 1


def test_bytes_of_strangers_reach_no_parser_and_get_no_memory(
    two: Hosts, guest: Any
) -> None:
    rng = random.Random(3)
    where = host_and_port(address_of(two, guest))
    before = guest.statistics()["dropped"]
    for number in range(100):
        body = b"".join(mutate(rng, rng.choice(seeds())) for _ in range(4))
        with socket.create_connection(where, timeout=20) as line:
            try:
                line.sendall((GREETING if number % 2 else b"") + body)
            except OSError:
                pass  # it was hung up on
    huge = b"\x06" + (1 << 40).to_bytes(8, "big")  # a long command frame
    with contextlib.ExitStack() as stack:
        lines = [
            stack.enter_context(socket.create_connection(where, timeout=20))
            for _ in range(20)
        ]
        for line in lines:
            line.sendall(GREETING + huge)
        for line in lines:
            assert hung_up_on(line)
    assert guest.add(1) == 1
    assert guest.statistics()["dropped"] == before == 0


def hung_up_on(line: socket.socket) -> bool:
    try:
        while line.recv(1000):
            pass
    except ConnectionResetError:
        pass
    return True


# -- floods ----------------------------------------------------------------

FEW = 512  # descriptors


@contextlib.contextmanager
def connections(where: tuple[str, int], count: int) -> Iterator[None]:
    """Half-open ones of strangers; perhaps more than it can have."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            line = stack.enter_context(socket.socket())
            line.setblocking(False)
            line.connect_ex(where)
        yield


@contextlib.contextmanager
def limit(descriptors: int) -> Iterator[None]:
    """A process that is started meanwhile can have so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def descriptors_of(guest: Any) -> int:
    return len(os.listdir(f"/proc/{guest.pid()}/fd"))


@pytest.mark.slow
def test_a_flood_of_half_open_connections_leaves_a_process_its_descriptors(
    two: Hosts,
) -> None:
    with limit(FEW):
        guest = two.start("b", Guest)
    assert guest.add(1) == 1
    with connections(host_and_port(address_of(two, guest)), 2 * FEW):
        assert guest.add(1) == 1
        assert eventually(lambda: guest.statistics()["strangers"] > FEW)
        assert eventually(lambda: descriptors_of(guest) < FEW - FEW // 4)
        late = two.start("a", Guest)  # it is let in, and called
        assert late.hand_on(guest, 1000) == guest.hand_on(late, 1000) == 1000
        assert guest.breaks() == late.breaks() == 0


def test_near_the_limit_one_goes_for_each_that_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A holder of the other descriptors."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        found = strangers.Strangers()
        found.port = address[1]
        with contextlib.ExitStack() as stack:
            for turned_away in (0, 0, 0, 1, 2, 3):
                stack.enter_context(socket.create_connection(address))
                end = stack.enter_context(server.accept()[0])
                few = end.fileno() + 1 if turned_away else 4 * end.fileno()
                monkeypatch.setattr(strangers, "_descriptors", lambda n=few: n)
                found.add(end.fileno())
                assert found.turned_away == turned_away


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [FRAMES, soak(200_000)])
def test_mutated_frames_over_tcp_do_no_harm(two: Hosts, guest: Any, count: int) -> None:
    """Frames of one who has the transport's keys, with and without the envelope's."""
    rng = random.Random(4)
    good = envelope.prefix(two.key, new_process_id(), 1)
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 5000)
        curve.make_client(dealer, two.key)
        dealer.connect(address_of(two, guest))
        for number in range(2 * count):
            source = rng.choice(seeds())
            if number % 2:
                frames = [good + mutate(rng, source[28:])]
                if asks_to_stop(frames[0], two.key):
                    continue
            else:
                frames = [mutate(rng, source) for _ in range(rng.randint(1, 3))]
            dealer.send_multipart(frames)
    assert [guest.add(number) for number in range(3)] == [0, 1, 2]
    assert eventually(lambda: guest.statistics()["dropped"] > count // 50)


def test_a_message_of_another_session_is_dropped_and_counted(
    two: Hosts, guest: Any
) -> None:
    """Even of one who got through the handshake."""
    foreign = envelope.prefix(new_session_key(), new_process_id(), 1)
    stop = foreign + envelope.pack_record(envelope.STOP, 0)
    before = guest.statistics()["dropped"]
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 5000)
        curve.make_client(dealer, two.key)
        dealer.connect(address_of(two, guest))
        dealer.send(stop)
    assert eventually(lambda: guest.statistics()["dropped"] == before + 1)
    assert guest.add(1) == 1


def test_what_goes_over_the_wire_shows_nothing_and_cannot_be_replayed(
    two: Hosts,
) -> None:
    guest = two.start("b", Guest)
    proxy = two.proxy_to(guest._actor_id)
    proxy.record = bytearray()
    assert guest.length("secret words") == 12
    assert guest.add(1) == 1
    sent = bytes(proxy.record)
    assert len(sent) > 200
    for clear in (two.key, b"secret words", b"length"):
        assert clear not in sent
    for _ in range(5):
        with socket.create_connection(host_and_port(address_of(two, guest))) as line:
            try:
                line.sendall(sent)
                line.settimeout(20)
                hung_up_on(line)
            except OSError:
                pass
    assert guest.all_seen() == [1]
    assert current_runtime().messenger.strangers == 0
