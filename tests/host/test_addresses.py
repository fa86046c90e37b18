# SPDX-License-Identifier: MIT
"""Addresses as users write them."""

import pytest

from mooactor.control import addresses
from mooactor.control.addresses import is_loopback
from mooactor.host.addresses import (
    Address,
    is_reachable,
    parse,
    parse_list,
    parse_ports,
)

WRITTEN = {
    "10.0.0.5": ("10.0.0.5", 4431),
    "10.0.0.5:77": ("10.0.0.5", 77),
    "tcp://10.0.0.5:77": ("10.0.0.5", 77),
    "broker-1.lab:5": ("broker-1.lab", 5),
    " broker_1 ": ("broker_1", 4431),
    "[::1]:5": ("::1", 5),
    "[::1]": ("::1", 4431),
    "fd00::5": ("fd00::5", 4431),
    "[fe80::1%br-lan]:5": ("fe80::1%br-lan", 5),
    ":5": ("*", 5),
    "*": ("*", 4431),
    "a:0": ("a", 0),
}
WRONG = [
    *("", ":", "a b", "a:b", "a:70000", "a:-1", "a:٣", "[::1", "[a]:5", "[::1]5"),
    *("[::1%é..b]:80", "[::1%]:80", "[fe80::1%a/b]:80", "[fe80::1%a%b]:80"),
    *("[fe80::1%name-of-17-chars]:80", "ipc://x", "a/b", "::g", "a;b", "tcp://", "ü"),
    *("x" * 300, "a:" + "1" * 5000),
]
# An address is refused where it comes in, and nowhere after that.
SOME = [
    *("tcp://a:5", "tcp://broker_1.lab:5", "tcp://[::1]:5", "tcp://[fe80::1%br-lan]:5"),
    *("tcp://[fe80::1%eth0.100]:5", "tcp://[::1%é..b]:80", "tcp://ü:5", "tcp://a;b:5"),
    *("tcp://a:05", "tcp://a:0", "tcp://*:5", "tcp://::1:5", "tcp://[a]:5"),
    "tcp://[[::1]]:5",
]


def test_an_address_may_be_written_in_many_ways() -> None:
    for text, (host, port) in WRITTEN.items():
        found = parse(text)
        assert found == Address(host, port)
        assert parse(str(found)) == found  # its text means the same


@pytest.mark.parametrize("text", WRONG)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no address: write ADDR:PORT"):
        parse(text)


def test_loopback_addresses_are_local() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("*", "10.0.0.5", "0.0.0.0", "b")))


def test_a_list_keeps_its_order_and_names_each_once() -> None:
    assert parse_list("a,b:5,tcp://a:4431") == [Address("a", 4431), Address("b", 5)]
    with pytest.raises(ValueError, match="'' is no address"):
        parse_list("a,")
    for text in ("*", "a,:4431", "a:0"):
        with pytest.raises(ValueError, match="listen but not connect"):
            parse_list(text)


def test_ports_are_a_range_with_both_ends() -> None:
    assert [*parse_ports("5-7")] == [5, 6, 7]
    assert [*parse_ports("65535")] == [65535]
    for text in ("", "-", "7-5", "0-5", "a-b", "1-70000", "1-2-3"):
        with pytest.raises(ValueError, match=f"{text}.*--ports or MOOACTOR_PORTS"):
            parse_ports(text)


def test_only_a_whole_address_is_reachable() -> None:
    assert is_reachable("tcp://a:5") and is_reachable("tcp://[::1]:5")
    for text in ("a:5", "tcp://a", "tcp://*:5", "tcp://a:0", "ipc://x", ""):
        assert not is_reachable(text)


@pytest.mark.parametrize("text", SOME)
def test_what_one_reader_of_addresses_takes_the_others_take(text: str) -> None:
    try:
        user = str(parse_list(text)[0]) == text
    except ValueError:
        user = False
    try:
        whole = addresses.form(*addresses.parse(text)) == text
    except ValueError:
        whole = False
    assert user == whole == is_reachable(text)
