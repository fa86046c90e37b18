# SPDX-License-Identifier: MIT
"""Addresses of nodes: their form, this host's own, and whether two are the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mooactor.control import addresses
from mooactor.control.node import Node
from tests.control.nodes import SECRET, Recorder, node, together
from tests.networks import Cable, inside, ip, why_not


def test_an_address_is_parsed_as_it_was_formed() -> None:
    for host in ("10.0.0.5", "broker-1.example", "fd99::1", "::1"):
        assert addresses.parse(addresses.form(host, 4431)) == (host, 4431)


def test_two_numeric_hosts_are_compared_as_numbers() -> None:
    for one, other in (("10.0.0.5", "::ffff:10.0.0.5"), ("fd99::1", "fd99:0::1")):
        assert addresses.is_same(one, other) and addresses.is_same(one, one)
    assert not addresses.is_same("10.0.0.5", "10.0.0.6")
    assert not addresses.is_same("broker", "broker")  # a name says nothing


@pytest.fixture
def cable() -> Iterator[Cable]:
    if why := why_not():
        pytest.skip(why)
    made = Cable()
    yield made
    made.close()


def test_a_host_without_a_route_to_others_tells_the_address_of_an_interface(
    cable: Cable,
) -> None:
    with inside(cable.namespace["a"]):
        assert addresses.own() == "10.99.1.1"
        ip("-n", cable.namespace["a"], "link", "set", "up0", "down")
        assert addresses.towards("10.99.1.2") is None


def test_a_node_on_all_addresses_tells_the_one_towards_the_first_other_host(
    cable: Cable,
) -> None:
    cable.add_link("up1", 2)
    with inside(cable.namespace["b"]):
        other = Node(SECRET, bind="10.99.2.2")
    try:
        with inside(cable.namespace["a"]), node(bind="*") as one:
            assert one.address == f"tcp://10.99.1.1:{one.port}"
            theirs = Recorder()
            other.accept = theirs.accept
            one.connect(other.address, Recorder())
            assert together((one, other), lambda: theirs.channels)
            assert theirs.channels[0].address == f"tcp://10.99.2.1:{one.port}"
            assert one.address == f"tcp://10.99.2.1:{one.port}"
    finally:
        other.close()


@pytest.mark.parametrize("has_ipv6", [False, True])
def test_a_node_listens_on_all_addresses_and_tells_a_reachable_one(
    monkeypatch: pytest.MonkeyPatch, has_ipv6: bool
) -> None:
    if not has_ipv6:
        monkeypatch.setattr(addresses, "has_ipv6", lambda: False)
    with node(bind="*") as one, node() as other:
        assert "*" not in one.address and "0.0.0.0" not in one.address
        theirs = Recorder()
        one.accept = theirs.accept
        other.connect(f"tcp://127.0.0.1:{one.port}", Recorder())
        assert together((one, other), lambda: theirs.channels)
