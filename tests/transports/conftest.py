# SPDX-License-Identifier: MIT
"""`pair`: two processes joined by a transport; `hosts`: two hosts, still empty."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.networks import Cable, why_not
from tests.transports.pairs import ALL, Hosts, Pair, why_no_fabric
from tests.transports.worker import Process


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests over the transports that `over` names, all of them by default."""
    if "pair" in metafunc.fixturenames:
        names = getattr(metafunc.function, "transports", ALL)
        metafunc.parametrize("pair", names, indirect=True, scope="module")


@pytest.fixture(scope="module")
def standing() -> Iterator[tuple[Hosts, tuple[Process, Process]]]:
    """A process on each of two hosts, for all transports."""
    hosts = Hosts(Cable() if why_not() is None else None)
    yield hosts, (hosts.process("a"), hosts.process("b"))
    hosts.close()


@pytest.fixture(scope="module")
def pair(request: Any, standing: Any) -> Iterator[Pair]:
    """The same two for all tests of a module."""
    if request.param == "ofi" and (why := why_no_fabric()):
        pytest.skip(why)
    made = Pair(request.param, *standing)
    yield made
    made.close()


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
