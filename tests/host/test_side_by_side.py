# SPDX-License-Identifier: MIT
"""Two programs at a time on one `mooactor host`: what each of them gets of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mooactor as moo
from mooactor.host.devices import VARIABLE
from tests.clusters import Cluster, network
from tests.conftest import eventually
from tests.host.programs import Program
from tests.processes import Process

pytestmark = pytest.mark.slow

GIB = 1 << 30
OFFER = ("--num-cpus", "4", "--memory", "8GiB")
# It holds what its argument says, in one actor on the host.
HOLDER = """
import mooactor as moo
from tests.host.test_side_by_side import Holds

moo.init(local=False)
on = moo.on(Holds, host="b", **eval(sys.argv[1]))
handle = on.spawn()
handle.pid()
"""
# What one program has, what another one asks for, and what is free, in words.
HELD = [
    pytest.param({"num_cpus": 3}, {"num_cpus": 2}, "1 CPU", id="processors"),
    pytest.param({"num_gpus": 1}, {"num_gpus": 2}, "1 GPU", id="GPUs"),
    pytest.param({"memory": 6 * GIB}, {"memory": 3 * GIB}, "2 GiB", id="memory"),
]


class Holds:
    """Says what it has."""

    def pid(self) -> int:
        return os.getpid()

    def gpus(self) -> str | None:
        return os.environ.get(VARIABLE)

    def cores(self) -> set[int]:
        return os.sched_getaffinity(0)


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    """One host, with two GPUs as far as anybody can see."""
    with network("bd") as net, pytest.MonkeyPatch.context() as patch:
        made = Cluster(net, broker="d")
        try:
            made.start_broker()
            patch.setenv(VARIABLE, "GPU-4,GPU-7")
            made.start_host("b", *OFFER)
            patch.undo()
            yield made
        finally:
            made.close()


@pytest.fixture
def joined(made: Cluster, as_driver: Callable[..., Cluster]) -> Iterator[Cluster]:
    """This process is one of the programs."""
    with moo.init(as_driver(made).address, local=False):
        assert eventually(all_is_free), row()
        yield made


@pytest.fixture
def holder(joined: Cluster) -> Iterator[Callable[..., Program]]:
    """Starts the other program, with what it is to have."""
    started = []

    def start(**needs: Any) -> Program:
        started.append(Program(joined, HOLDER, repr(needs)))
        started[-1].await_ready()
        assert eventually(lambda: not all_is_free()), row()
        return started[-1]

    yield start
    for program in started:
        program.close()


def row() -> dict[str, Any]:
    (found,) = moo.hosts()
    return found


def all_is_free() -> bool:
    found = row()
    return all(found["free"][kind] == found[kind] for kind in found["free"])


def is_over(pid: int) -> bool:
    try:
        return not Process.of(pid).is_running()
    except ProcessLookupError:
        return True


@pytest.mark.parametrize("killed", [False, True], ids=["ends", "is killed"])
@pytest.mark.parametrize(("held", "asked", "free"), HELD)
def test_what_one_program_has_another_gets_once_that(
    holder: Callable[..., Program],
    held: dict[str, Any],
    asked: dict[str, Any],
    free: str,
    killed: bool,
) -> None:
    other = holder(**held)
    actor = int(other.ask("handle.pid()"))
    on = moo.on(Holds, **asked)
    with pytest.raises(moo.PlacementError, match=f"reserved now, free is b: {free};"):
        on.spawn()

    other.close() if killed else other.end()

    assert eventually(all_is_free), row()
    assert on.spawn().pid()
    assert eventually(lambda: is_over(actor))


def test_more_than_the_host_has_is_refused_with_all_that_it_has(
    holder: Callable[..., Program],
) -> None:
    holder(num_cpus=3, num_gpus=1, memory=6 * GIB)

    with pytest.raises(
        moo.PlacementError, match="never be had.* b with 4 CPUs, 2 GPUs, 8 GiB: ask"
    ):
        moo.on(Holds, num_cpus=5).spawn()


def test_no_device_and_no_core_is_given_to_both(holder: Callable[..., Program]) -> None:
    other = holder(num_cpus=1, num_gpus=1)
    mine = moo.on(Holds, num_cpus=1, num_gpus=1).spawn()

    assert {other.ask("handle.gpus()"), repr(mine.gpus())} == {"'GPU-4'", "'GPU-7'"}
    if len(os.sched_getaffinity(0)) > 1:
        cores = set(map(int, other.ask("sorted(handle.cores())")[1:-1].split(",")))
        assert len(cores) == len(mine.cores()) == 1
        assert cores.isdisjoint(mine.cores())


def test_of_programs_that_ask_at_the_same_time_one_gets_it(
    holder: Callable[..., Program],
) -> None:
    other = holder(memory=1 * GIB)
    for _ in range(10):
        other.say("moo.on(Holds, num_cpus=3).spawn().pid()")
        try:
            mine = str(moo.on(Holds, num_cpus=3).spawn().pid())
        except moo.PlacementError as error:
            mine = f"PlacementError: {error}"
        both = [mine, other.read()]

        refused = [said for said in both if said.startswith("PlacementError: ")]
        assert len(refused) == 1, both
        assert "free is b: 1 CPU" in refused[0]
        (winner,) = (int(said) for said in both if said not in refused)
        os.kill(winner, signal.SIGKILL)
        assert eventually(lambda: row()["free"]["cpus"] == row()["cpus"])
