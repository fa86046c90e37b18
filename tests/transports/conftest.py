# SPDX-License-Identifier: MIT
"""`pair`: two processes joined by a transport; `hosts`: two hosts, still empty."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.networks import Cable, why_not
from tests.transports.pairs import ALL, NETWORKS, Hosts, Pair, why_no_fabric


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests over the transports that `over` names, all of them by default."""
    if "pair" in metafunc.fixturenames:
        names = getattr(metafunc.function, "transports", ALL)
        metafunc.parametrize("pair", names, indirect=True, scope="module")


@pytest.fixture(scope="module")
def pair(request: Any) -> Iterator[Pair]:
    """The same two for all tests of a module."""
    if request.param == "ofi" and (why := why_no_fabric()):
        pytest.skip(why)
    networked = request.param in NETWORKS and why_not() is None
    hosts = Hosts(Cable() if networked else None)
    yield Pair(request.param, hosts)
    hosts.close()


@pytest.fixture
def families() -> tuple[int, ...]:
    """Of addresses that `hosts` have; to be parametrized."""
    return (4,)


@pytest.fixture
def hosts(families: tuple[int, ...]) -> Iterator[Hosts]:
    if why := why_not():
        pytest.skip(why)
    made = Hosts(Cable(families))
    yield made
    made.close()
