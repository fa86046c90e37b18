# SPDX-License-Identifier: MIT
"""What reaches a process over TCP, from strangers and from those with the key."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import select
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

import mooactor as moo
from mooactor.control import curve, envelope, strangers
from mooactor.control.keys import new_process_id, new_session_key
from mooactor.control.ways import ADMISSION_MS
from mooactor.process.current import current_runtime
from tests.conftest import eventually
from tests.control.test_fuzz import asks_to_stop, mutate, seeds
from tests.marks import slow, soak
from tests.pace import Pace
from tests.process.guest import Guest
from tests.process.hosts import Hosts

FRAMES = 3000


@pytest.fixture
def guest(two: Hosts) -> Any:
    guest = two.start("b", Guest)
    guest.pid()
    return guest


def address_of(two: Hosts, guest: Any) -> str:
    place = two.agent.members[guest._actor_id].place
    assert place is not None
    return str(place["address"])


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


def test_one_without_the_key_cannot_begin_a_handshake(two: Hosts, guest: Any) -> None:
    address = address_of(two, guest)
    foreign = new_session_key()
    with zmq.Context() as context:
        for key in (None, foreign):
            with context.socket(zmq.DEALER) as dealer:
                if key is not None:
                    curve.make_client(dealer, key)
                assert handshake_of(dealer, address) != zmq.EVENT_HANDSHAKE_SUCCEEDED
    assert guest.add(1) == 1


def test_a_key_pair_of_ones_own_is_refused_and_counted(two: Hosts, guest: Any) -> None:
    """He knows the listeners' key, which is as secret as the session's."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        curve.make_client(dealer, two.key)
        public, private = zmq.curve_keypair()
        dealer.setsockopt(zmq.CURVE_PUBLICKEY, public)
        dealer.setsockopt(zmq.CURVE_SECRETKEY, private)
        outcome = handshake_of(dealer, address_of(two, guest))
    assert outcome != zmq.EVENT_HANDSHAKE_SUCCEEDED
    assert eventually(lambda: guest.statistics()["strangers"] == 1)


def test_bytes_of_strangers_reach_no_parser(two: Hosts, guest: Any) -> None:
    rng = random.Random(3)
    where = host_and_port(address_of(two, guest))
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(15 + 1 + 31)
    before = guest.statistics()["dropped"]
    for number in range(300):
        body = b"".join(mutate(rng, rng.choice(seeds())) for _ in range(4))
        with socket.create_connection(where, timeout=20) as line:
            try:
                line.sendall((greeting if number % 2 else b"") + body)
            except OSError:
                pass  # it was hung up on
    assert guest.add(1) == 1
    assert guest.statistics()["dropped"] == before == 0


def test_a_stranger_who_claims_to_send_much_is_given_no_memory(
    two: Hosts, guest: Any
) -> None:
    where = host_and_port(address_of(two, guest))
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(15 + 1 + 31)
    huge = b"\x06" + (1 << 40).to_bytes(8, "big")  # a long command frame
    lines = [socket.create_connection(where, timeout=20) for _ in range(50)]
    try:
        for line in lines:
            line.sendall(greeting + huge)
        for line in lines:
            assert hung_up_on(line)
    finally:
        for line in lines:
            line.close()
    assert guest.add(1) == 1


def hung_up_on(line: socket.socket) -> bool:
    try:
        while line.recv(1000):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.slow
def test_half_open_connections_keep_nobody_out(two: Hosts, guest: Any) -> None:
    where = host_and_port(address_of(two, guest))
    lines = [socket.create_connection(where, timeout=20) for _ in range(200)]
    try:
        late = two.start("b", Guest)
        assert late.hand_on(guest, 1000) == 1000
        fresh = two.start("a", Guest)
        assert fresh.hand_on(guest, 1000) == 1000
    finally:
        for line in lines:
            line.close()


# -- floods ----------------------------------------------------------------

FEW = 512  # descriptors


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Connections of strangers, which end with the test."""
    with contextlib.ExitStack() as stack:
        yield Lines(stack)


class Lines(list[socket.socket]):
    """They may be more than whoever they lead to can have."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        super().__init__()
        self._stack = stack

    def open(self, where: tuple[str, int], count: int) -> None:
        for _ in range(count):
            line = self._stack.enter_context(socket.socket())
            line.setblocking(False)
            line.connect_ex(where)
            self.append(line)


@contextlib.contextmanager
def limit(descriptors: int) -> Iterator[None]:
    """What is started meanwhile can have so many."""
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
    two: Hosts, lines: Lines
) -> None:
    with limit(FEW):
        guest = two.start("b", Guest)
    assert guest.add(1) == 1
    where = host_and_port(address_of(two, guest))
    for _ in range(4):
        lines.open(where, FEW // 2)
        assert guest.add(1) == 1
    assert eventually(lambda: guest.statistics()["strangers"] > FEW)
    assert eventually(lambda: descriptors_of(guest) < FEW - FEW // 4)
    late = two.start("a", Guest)  # it is let in, and called
    assert late.hand_on(guest, 1000) == guest.hand_on(late, 1000) == 1000
    assert guest.breaks() == late.breaks() == 0


@pytest.mark.slow
def test_connections_that_stand_are_not_turned_away_in_a_flood(
    two: Hosts, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strangers, "MOST", 8)
    runtime = current_runtime()
    messenger = runtime.messenger
    guests = [two.start("b", Guest) for _ in range(4)]
    assert [guest.add(1) for guest in guests] == [1] * 4  # each has one to us
    assert messenger.address is not None
    where = host_and_port(messenger.address)
    for turned_away in (92, 192):
        lines.open(where, 100)
        assert eventually(lambda n=turned_away: messenger.strangers >= n)
        assert [guest.add(2) for guest in guests] == [2] * 4
    late = two.start("b", Guest)
    assert late.add(1) == 1
    assert [guest.breaks() for guest in [*guests, late]] == [0] * 5
    assert messenger.strangers <= len(lines)  # nobody else was refused


def test_near_the_limit_one_goes_for_each_that_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever has the other descriptors."""
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


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_handshake_that_drips_is_given_up_like_one_that_stands_still(
    two: Hosts, guest: Any, lines: Lines
) -> None:
    """A byte now and then: of the signature, the greeting, and the first command."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(15 + 1 + 31)
    hello = b"\x04\xc8\x05HELLO\x01\x00" + bytes(72) + bytes(120)
    whole = greeting + hello
    before = descriptors_of(guest)
    lines.open(host_and_port(address_of(two, guest)), 30)
    begun = [0, 8, 12, 40, 63, len(greeting), len(greeting) + 9, len(whole) - 40]
    sent = {line: begun[number % len(begun)] for number, line in enumerate(lines)}
    for line, count in sent.items():
        select.select([], [line], [], 20)
        line.sendall(whole[:count])
    assert eventually(lambda: descriptors_of(guest) == before + len(lines))
    with Pace() as pace:
        while sent and pace.seconds() < 2 * ADMISSION_MS / 1000:
            for line, count in list(sent.items()):
                sent[line] = count + 1
                try:
                    line.send(whole[count : count + 1] or b"x")
                except OSError:
                    del sent[line]
            guest.add(1)
            threading.Event().wait(0.25)
        assert not sent
        assert pace.seconds() < ADMISSION_MS / 1000 + 2
    assert descriptors_of(guest) == before


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [FRAMES, slow(60_000), soak(200_000)])
@pytest.mark.parametrize("authentic", [False, True], ids=["no key", "the key"])
def test_mutated_frames_over_tcp_do_no_harm(
    two: Hosts, guest: Any, authentic: bool, count: int
) -> None:
    """Frames of one who has the transport's keys, with or without the envelope's."""
    rng = random.Random(4 + authentic)
    good = envelope.prefix(two.key, new_process_id(), 1)
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 5000)
        curve.make_client(dealer, two.key)
        dealer.connect(address_of(two, guest))
        for _ in range(count):
            source = rng.choice(seeds())
            if authentic:
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


def test_the_session_key_is_not_in_what_goes_over_the_wire(two: Hosts) -> None:
    guest = two.start("b", Guest)
    assert eventually(lambda: two.agent.members[guest._actor_id].place)
    proxy = two.agent.proxy(guest._actor_id)
    proxy.record = bytearray()
    assert guest.length("secret words") == 12
    assert len(proxy.record) > 200
    for clear in (two.key, b"secret words", b"length"):
        assert clear not in proxy.record
    assert isinstance(guest, moo.Handle)


def test_a_recorded_connection_cannot_be_replayed(two: Hosts) -> None:
    guest = two.start("b", Guest)
    assert eventually(lambda: two.agent.members[guest._actor_id].place)
    proxy = two.agent.proxy(guest._actor_id)
    proxy.record = bytearray()
    assert guest.add(1) == 1
    sent = bytes(proxy.record)
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
