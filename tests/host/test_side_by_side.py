# SPDX-License-Identifier: MIT
"""Two programs at a time on one `mooactor host`: what each of them gets of it."""

from __future__ import annotations

import os
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.host.resources import VARIABLE
from mooactor.tensors.limits import cpu_quota
from tests.cluster.launched import ROOT
from tests.clusters import Cluster
from tests.conftest import eventually
from tests.host.programs import Program
from tests.processes import Process

pytestmark = pytest.mark.slow

OFFER = ("--num-cpus", "4", "--memory", "8GiB")
# It holds what its argument says, in one actor on the host.
HOLDER = """
import mooactor as moo
from tests.host.test_side_by_side import Holds, row

moo.init(local=False)
on = moo.on(Holds, host="b", **eval(sys.argv[1]))
handle = on.spawn()
handle.pid()
"""


class Holds:
    """Says what it has."""

    def pid(self) -> int:
        return os.getpid()

    def gpus(self) -> str | None:
        return os.environ.get(VARIABLE)

    def cores(self) -> set[int]:
        return os.sched_getaffinity(0)


@pytest.fixture(scope="module")
def made(lasting_cluster: Cluster) -> Iterator[Cluster]:
    """One host, with two GPUs as far as anybody can see; its broker is not that of the
    other hosts on the network."""
    made = Cluster(lasting_cluster.network, broker="d", port=4441)
    with pytest.MonkeyPatch.context() as patch:
        try:
            made.start_broker()
            patch.setenv(VARIABLE, "GPU-4,GPU-7")
            made.start_host("b", *OFFER)
            patch.undo()
            yield made
        finally:
            made.close()


@pytest.fixture
def program(made: Cluster, as_driver: Callable[..., Cluster]) -> Iterator[Cluster]:
    """This process is one of the programs."""
    with moo.init(as_driver(made).address, local=False):
        assert eventually(all_is_free), row()
        yield made


@pytest.fixture
def holder(program: Cluster) -> Iterator[Callable[..., Program]]:
    """Starts the other program, with what it is to have."""
    started = []

    def start(**needs: Any) -> Program:
        started.append(Program(program, HOLDER, repr(needs)))
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


def test_no_device_and_no_core_is_given_to_both(holder: Callable[..., Program]) -> None:
    other = holder(num_cpus=1, num_gpus=1)
    mine = moo.on(Holds, num_cpus=1, num_gpus=1).spawn()

    assert {other.ask("handle.gpus()"), repr(mine.gpus())} == {"'GPU-4'", "'GPU-7'"}
    if len(os.sched_getaffinity(0)) > 1 and cpu_quota() is None:
        cores = set(map(int, other.ask("sorted(handle.cores())")[1:-1].split(",")))
        assert len(cores) == len(mine.cores()) == 1
        assert cores.isdisjoint(mine.cores())
    with pytest.raises(
        moo.PlacementError, match="never be had.* b with 4 CPUs, 2 GPUs, 8 GiB: ask"
    ):
        moo.on(Holds, num_cpus=5).spawn()


def test_hosts_shows_the_devices_of_each_actor(program: Cluster) -> None:
    odd = "x" * 5000  # more than another host's agent tells
    started = [moo.on(Holds, host="b", num_gpus=1).spawn() for _ in range(2)]
    for env in ({}, {VARIABLE: ""}, {VARIABLE: odd}):
        started.append(moo.on(Holds, host="b", env=env).spawn())
    seen = [handle.gpus() for handle in started]
    shown = [actor["cuda_visible_devices"] for actor in row()["actors"]]
    assert seen == ["GPU-4", "GPU-7", "GPU-4,GPU-7", "", odd]
    assert shown == [*seen[:-1], odd[:4096]]


# -- their interpreters and directories ------------------------------------------

PLACED = """
import mooactor as moo
from tests.host.test_side_by_side import Placed

moo.init({address!r}, local=False)
on = moo.on(Placed, host="b")
kept = moo.on(Placed, host="b", restart=moo.Restart())
"""


class Placed:
    """Says where it runs, and what it finds there."""

    def pid(self) -> int:
        return os.getpid()

    def place(self) -> tuple[str, str, str, str]:
        import only_here  # of the virtual environment

        with open("mine") as file:  # of the working directory
            return sys.executable, os.getcwd(), only_here.NAME, file.read()


def environment(folder: Path) -> Path:
    """The interpreter of a virtual environment that has what this one has, and a module
    of its own."""
    venv.create(folder, symlinks=True)
    paths = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", "venv", paths))
    ours = (ROOT, sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    (packages / "ours.pth").write_text("\n".join(map(str, ours)))
    (packages / "only_here.py").write_text(f"NAME = {folder.name!r}\n")
    return folder / "bin" / "python"


@pytest.fixture
def placed(made: Cluster, tmp_path: Path) -> Iterator[Callable[[str], Program]]:
    """Starts a program with an interpreter, and in a directory, of its own."""
    started = []

    def start(name: str) -> Program:
        python, cwd = environment(tmp_path / name), tmp_path / f"in {name}"
        cwd.mkdir()
        (cwd / "mine").write_text(f"of {name}")
        text = PLACED.format(address=made.address)
        started.append(Program(made, text, python=str(python), cwd=cwd))
        return started[-1].await_ready()

    yield start
    for program in started:
        program.close()


def place(folder: Path, name: str) -> str:
    """The words of an actor of such a program on its place."""
    python, cwd = folder / name / "bin" / "python", folder / f"in {name}"
    return repr((str(python), str(cwd), name, f"of {name}"))


def kill_zygotes(made: Cluster) -> None:
    """Also what they have forked for the next actor."""
    for process in Process.of(made.members["b"].pid).descendants():
        if process.name() in ("moo-zygote", "moo-spare"):
            process.kill()


def test_each_program_has_its_own_interpreter_and_directory(
    made: Cluster, placed: Callable[[str], Program], tmp_path: Path
) -> None:
    programs = {name: placed(name) for name in ("one", "two")}
    for name, program in programs.items():
        assert program.ask("(handle := kept.spawn()).place()") == place(tmp_path, name)

    # The same after the death of all: other zygotes have other actors then.
    kill_zygotes(made)
    for name, program in programs.items():
        Process.of(int(program.ask("handle.pid()"))).kill()
        again = program.ask("handle.place.options(retries=9)()")
        assert again == place(tmp_path, name)

    # One whose directory is gone meanwhile keeps the actors that it has.
    one, two = programs.values()
    pid = one.ask("handle.pid()")
    (tmp_path / "in one").rename(tmp_path / "elsewhere")
    kill_zygotes(made)
    answer = one.ask("on.spawn().place()")
    assert answer.startswith("ActorDied: ")
    assert "on host b: the zygote died, and no other one can be started" in answer
    assert str(tmp_path / "in one") in answer
    assert one.ask("handle.pid()") == pid
    assert two.ask("on.spawn().place()") == place(tmp_path, "two")
