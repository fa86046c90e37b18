# SPDX-License-Identifier: MIT
"""`num_gpus`: which GPUs an actor sees. Their names are enough; there need be none."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import mooactor as moo
from tests.conftest import check_for_leaks, resources
from tests.processes import Process


@moo.actor
class Sees:
    """Says what it could use."""

    def gpus(self) -> str | None:
        return os.environ.get("CUDA_VISIBLE_DEVICES")

    def pid(self) -> int:
        return os.getpid()

    def zygotes_maps(self) -> str:
        with open(f"/proc/{Process.of(os.getppid()).zygote().pid}/maps") as maps:
            return maps.read()

    def in_its_place(self) -> str | None:
        """The devices of an actor that this one starts."""
        other: Any = moo.on(Sees, num_gpus=1).spawn()
        found: str | None = other.gpus()
        moo.kill(other)
        return found


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A session on a host that has two, as far as anybody can see."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    before = resources()
    with moo.init():
        yield
    check_for_leaks(before, "the session")


@pytest.mark.slow
def test_each_actor_sees_its_own_until_it_is_over(two_gpus: None) -> None:
    group = moo.on(Sees, num_gpus=1, restart=moo.Restart(max=1)).group(2)
    assert group.call(Sees.gpus).get() == ["4", "7"]
    (here,) = moo.hosts()
    assert [row["cuda_visible_devices"] for row in here["actors"]] == ["4", "7"]
    with pytest.raises(
        moo.PlacementError, match=r"1 GPU: all is reserved now.*: 0 GPUs; ask"
    ):
        moo.on(Sees, num_gpus=1).spawn()
    assert moo.spawn(Sees).gpus() == "4,7"
    os.kill(group[0].pid(), signal.SIGKILL)
    assert group[0].gpus.options(retries=10)() == "4"  # also in its next life
    moo.kill(group[1])
    assert group[0].in_its_place() == "7"
    moo.stop(group[0])
    with pytest.raises(moo.PlacementError):
        moo.on(Sees, num_gpus=1).group(3)  # of which none is left
    parts = moo.on(Sees, num_gpus=0.5, name="part").group(4)
    assert parts.call(Sees.gpus).get() == ["4", "4", "7", "7"]


@pytest.mark.slow
def test_the_process_that_forks_actors_never_loads_the_driver(two_gpus: None) -> None:
    # CUDA that was initialised before a fork does not work behind it.
    pytest.importorskip("torch")
    assert "torch" in sys.modules  # and so is preloaded there
    maps = moo.spawn(Sees).zygotes_maps()
    assert "libtorch" in maps
    assert "libcuda.so" not in maps
