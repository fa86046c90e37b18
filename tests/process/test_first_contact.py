# SPDX-License-Identifier: MIT
"""While a process tries to reach another one, all else that it does goes on.

A process is "misdirected" here: told that another can be reached at an address where
somebody accepts, and says nothing. So its first contact takes as long as one behind a
wall, and comes to nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.process.current import current_runtime
from tests.conftest import running_session
from tests.pace import Pace
from tests.tensors.conftest import silence
from tests.tensors.endpoints import Endpoint

SIZE = 1 << 20
#: In seconds: less than a first contact takes, for a call that does without it.
SOON_S = 2.0

Address = tuple[str, int]


def process_id() -> int:
    return current_runtime().process_id


def misdirect(other: int, endpoint: bytes, address: Address) -> None:
    """Have this process look for another one there."""
    wrong = Endpoint.read(endpoint).changed(addresses=(address,))
    current_runtime().plane.introduce(other, wrong)


@moo.actor
class Party:
    """What the tests need of an actor of either kind."""

    def endpoint(self) -> tuple[int, bytes]:
        return process_id(), current_runtime().plane.endpoint()

    def misdirect(self, other: int, endpoint: bytes, address: Address) -> None:
        misdirect(other, endpoint, address)

    def ping(self) -> int:
        return 1

    def nap(self) -> None:
        time.sleep(0.2)

    def make(self) -> Any:
        return np.ones(SIZE, np.uint8)

    def take(self, data: Any) -> int:
        return int(data[0])

    def take_inside(self, box: list[Any]) -> int:
        return int(box[0].get()[0])

    def call_make(self, other: Any) -> int:
        return int(other.make()[0])


@moo.actor
class Loop:
    """One whose methods share an event loop."""

    def misdirect(self, other: int, endpoint: bytes, address: Address) -> None:
        misdirect(other, endpoint, address)

    async def ping(self) -> int:
        return 1

    async def call_take(self, other: Any) -> int:
        return int(await other.take.remote(np.ones(SIZE, np.uint8)))


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with running_session(transport="tcp") as running:
        yield running


@pytest.fixture
def address() -> Iterator[Address]:
    with silence() as address:
        yield address


def result_asked_for_by_it(owner: Any, other: Any) -> Any:
    return other.call_make.remote(owner)


def result_passed_on_to_it(owner: Any, other: Any) -> Any:
    owner.nap.tell()  # so that it is known who wants the result before there is one
    return other.take.remote(owner.make.remote())


def argument_sent_from_a_loop(owner: Any, other: Any) -> Any:
    return owner.call_take.remote(other)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "start"),
    [
        (Party, result_asked_for_by_it),
        (Party, result_passed_on_to_it),
        (Loop, argument_sent_from_a_loop),
    ],
)
def test_an_actor_serves_others_while_it_looks_for_one(
    spawn: Callable[..., Any],
    address: Address,
    kind: type,
    start: Callable[[Any, Any], Any],
) -> None:
    owner, other = spawn(kind), spawn(Party)
    owner.misdirect(*other.endpoint(), address)
    call(owner.ping)
    ref = start(owner, other)
    assert serves(owner.ping, while_pending=ref)
    with pytest.raises(moo.ActorUnavailable):
        ref.get()
    with Pace() as pace:
        call(other.ping)
        assert pace.seconds() < SOON_S


@pytest.mark.slow
@pytest.mark.parametrize("method", ["take", "take_inside"])
def test_so_does_a_driver_whose_values_are_wanted_by_it(
    spawn: Callable[..., Any], address: Address, method: str
) -> None:
    bystander, other = spawn(Party), spawn(Party)
    misdirect(*other.endpoint(), address)
    call(bystander.ping)
    value = moo.put(np.ones(SIZE, np.uint8))
    with Pace() as pace:
        if method == "take":
            ref = other.take.remote(value)
        else:
            ref = other.take_inside.remote([value])
        assert pace.seconds() < SOON_S
    assert serves(bystander.ping, while_pending=ref)
    with pytest.raises(moo.ActorUnavailable):
        ref.get()


@pytest.mark.slow
def test_a_plain_program_is_told_at_once_what_was_tried(
    spawn: Callable[..., Any], address: Address
) -> None:
    other = spawn(Party)
    misdirect(*other.endpoint(), address)
    with pytest.raises(moo.ActorUnavailable, match="did not answer"):
        other.take(np.ones(SIZE, np.uint8))


def call(ping: Any) -> float:
    """The seconds that a call takes."""
    began = time.monotonic()
    assert ping.remote().get(timeout=60) == 1
    return time.monotonic() - began


def serves(ping: Any, *, while_pending: Any) -> bool:
    """Whether each of many calls, made until the other one has ended, takes less than
    half of that time."""
    began, slowest = time.monotonic(), 0.0
    while not while_pending.done():
        slowest = max(slowest, call(ping))
        time.sleep(0.02)
    took = time.monotonic() - began
    assert took > 2, "there was nothing to wait for"
    return slowest < took / 2
