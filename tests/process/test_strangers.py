# SPDX-License-Identifier: MIT
"""Messages reach a process over TCP, from strangers and from those with the key."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import zmq
import zmq.utils.monitor

from mooactor.control import curve
from mooactor.control.keys import new_session_key
from mooactor.process.current import current_runtime
from tests.conftest import eventually
from tests.process.guest import Guest
from tests.process.hosts import Hosts


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


def hung_up_on(line: socket.socket) -> bool:
    try:
        while line.recv(1000):
            pass
    except ConnectionResetError:
        pass
    return True


# -- floods ----------------------------------------------------------------


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
