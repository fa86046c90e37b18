# SPDX-License-Identifier: MIT
"""Interfaces of this host as addresses to listen on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mooactor.tensors import interfaces
from tests.networks import Cable, inside, ip, why_not


def test_what_is_no_name_stands_for_itself_and_an_interface_for_its_address() -> None:
    for text in ("*", "0.0.0.0", "10.0.0.5", "::", "fd00::5"):
        assert interfaces.listen_address(text, "--bind") == text
    assert interfaces.listen_address("lo", "--bind") == "127.0.0.1"


@pytest.mark.parametrize(
    "text", ["nowhere0", "a b", "10.0.0.5.6", "x" * 300, "lo\0", ""]
)
def test_anything_else_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="no interface of this host; give") as why:
        interfaces.listen_address(text, "--bind")
    assert str(why.value).startswith("--bind=") and "lo (127.0.0.1)" in str(why.value)


@pytest.fixture
def cable(request: pytest.FixtureRequest) -> Iterator[Cable]:
    if why := why_not():
        pytest.skip(why)
    made = Cable(request.param)
    yield made
    made.close()


@pytest.mark.parametrize("cable", [(4, 6)], indirect=True)
def test_the_first_address_counts_and_ipv4_comes_first(cable: Cable) -> None:
    namespace = cable.namespace["a"]
    ip("-n", namespace, "addr", "add", "10.99.7.1/24", "dev", "up0")
    with inside(namespace):
        assert interfaces.addresses() == {"lo": "127.0.0.1", "up0": "10.99.1.1"}
    with inside(cable.namespace["b"]):
        assert interfaces.listen_address("up0", "--bind") == "10.99.1.2"


@pytest.mark.parametrize("cable", [(6,)], indirect=True)
def test_an_interface_with_ipv6_alone_has_that_address(cable: Cable) -> None:
    """The lowest; not the one that needs the name of the interface beside it."""
    for more in ("fd99:2::1/64", "fd99:3::1/64"):
        ip("-n", cable.namespace["a"], "addr", "add", more, "dev", "up0", "nodad")
    with inside(cable.namespace["a"]):
        assert interfaces.listen_address("up0", "--bind") == "fd99:1::1"


@pytest.mark.parametrize("cable", [()], indirect=True)
def test_an_interface_without_an_address_is_said_to_have_none(cable: Cable) -> None:
    with inside(cable.namespace["a"]):
        with pytest.raises(
            ValueError, match="--bind='up0': this interface has no address"
        ) as why:
            interfaces.listen_address("up0", "--bind")
    assert str(why.value).endswith(": lo (127.0.0.1)")
