# SPDX-License-Identifier: MIT
"""While a process tries to reach another one, all else that it does goes on.

A process is "misdirected" here: told that another can be reached at an address where
somebody accepts, and says nothing. So its first contact takes as long as one behind a
wall, and comes to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.process.current import current_runtime
from tests.conftest import running_session
from tests.gates import wait_at
from tests.tensors.conftest import silence
from tests.tensors.endpoints import Endpoint

SIZE = 1 << 20

Address = tuple[str, int]


def process_id() -> int:
    return current_runtime().process_id


def misdirect(other: int, endpoint: bytes, address: Address) -> None:
    """Have this process look for another one there."""
    wrong = Endpoint.read(endpoint).changed(addresses=(address,))
    current_runtime().plane.introduce(other, wrong)


@moo.actor
class Party:
    """What the tests need of an actor."""

    def endpoint(self) -> tuple[int, bytes]:
        return process_id(), current_runtime().plane.endpoint()

    def misdirect(self, other: int, endpoint: bytes, address: Address) -> None:
        misdirect(other, endpoint, address)

    def ping(self) -> int:
        return 1

    def wait(self, gate: str) -> None:
        wait_at(gate)

    def make(self) -> Any:
        return np.ones(SIZE, np.uint8)

    def take(self, data: Any) -> int:
        return int(data[0])

    def take_inside(self, box: list[Any]) -> int:
        return int(box[0].get()[0])


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with running_session(transport="tcp") as running:
        yield running


@pytest.fixture
def address() -> Iterator[Address]:
    with silence() as address:
        yield address


@pytest.mark.slow
def test_an_actor_serves_others_while_it_looks_for_one_that_wants_its_result(
    spawn: Callable[..., Any], address: Address, tmp_path: Path
) -> None:
    owner, other, gate = spawn(Party), spawn(Party), tmp_path / "gate"
    owner.misdirect(*other.endpoint(), address)
    ping(owner)
    owner.wait.tell(str(gate))
    ref = other.take.remote(owner.make.remote())
    gate.touch()  # it was known who wants the result before there is one
    assert served(owner, ref)
    with pytest.raises(moo.ActorUnavailable):
        ref.get()
    ping(other)


@pytest.mark.slow
def test_so_does_a_driver_whose_values_are_wanted_by_it(
    spawn: Callable[..., Any], address: Address
) -> None:
    bystander, other = spawn(Party), spawn(Party)
    misdirect(*other.endpoint(), address)
    ping(bystander)
    value = moo.put(np.ones(SIZE, np.uint8))
    refs = other.take.remote(value), other.take_inside.remote([value])
    for ref in refs:
        assert served(bystander, ref) or ref is refs[1]
        with pytest.raises(moo.ActorUnavailable):
            ref.get()
    with pytest.raises(moo.ActorUnavailable, match="did not answer"):
        other.take(np.ones(SIZE, np.uint8))


def ping(actor: Any) -> None:
    assert actor.ping.remote().get(timeout=60) == 1


def served(actor: Any, pending: Any) -> bool:
    """Whether many calls ended before the pending one, which takes seconds. If it held
    them up, there would be one."""
    calls = 0
    while not pending.done():
        ping(actor)
        calls += 1
    return calls > 20
