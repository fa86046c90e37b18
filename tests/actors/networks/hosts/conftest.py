# SPDX-License-Identifier: MIT
"""A session on two hosts: this process is on "a", actors are on "b" unless told.

The hosts are network namespaces with one cable between them, so all data goes over it.
Calls themselves go by unix sockets, which both hosts share: what is cut is the way of
the data alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.actors.networks.conftest import warm_up
from tests.conftest import running_session
from tests.networks import Cable, inside, why_not

Place = Callable[[type, str], Any]


@pytest.fixture(scope="module")
def cable() -> Iterator[Cable]:
    if why := why_not():
        pytest.skip(why)
    made = Cable()
    yield made
    made.close()


@pytest.fixture(scope="module")
def allowed(transport: str) -> str:
    """What the session may use; modules that need more say so."""
    return transport


@pytest.fixture(scope="module")
def session(cable: Cable, allowed: str) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch, inside(cable.namespace["a"]):
        patch.setenv("MOOACTOR_BIND", "*")
        patch.setenv("MOOACTOR_NETNS", cable.namespace["b"])
        with running_session(transport=allowed) as running:
            warm_up(moo.on(Counter, env={"MOOACTOR_HOST_ID": "b"}))
            yield running


@pytest.fixture
def at(cable: Cable, spawn: Callable[..., Any]) -> Place:
    """``at(cls, "b")``: an actor on a host, whose name is that of the host, too."""

    def place(cls: type, host: str) -> Any:
        env = {"MOOACTOR_NETNS": cable.namespace[host], "MOOACTOR_HOST_ID": host}
        actor = spawn(moo.on(cls, env=env))
        actor.pid()  # it is there, and so is what it says of its host
        return actor

    return place
