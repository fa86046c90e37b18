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
from tests.conftest import check_for_leaks, eventually, resources
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

    def cuda_counts(self, *, used: bool) -> dict[str, int]:
        """What `moo.stats` says of CUDA tensors, before and after the first."""
        if used:
            import mooactor.tensors.cuda.codec  # noqa: F401
        found: dict[str, int] = moo.stats()["cuda"]
        return found

    def in_its_place(self) -> str | None:
        """What an actor that this one starts gets."""
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
def test_each_actor_sees_its_own(two_gpus: None) -> None:
    group = moo.on(Sees, num_gpus=1).group(2)
    assert group.call(Sees.gpus).get() == ["4", "7"]
    (here,) = moo.hosts()
    assert [row["cuda_visible_devices"] for row in here["actors"]] == ["4", "7"]
    with pytest.raises(
        moo.PlacementError, match=r"1 GPU: all is reserved now.*: 0 GPUs; ask"
    ):
        moo.on(Sees, num_gpus=1).spawn()
    assert moo.spawn(Sees).gpus() == "4,7"


@pytest.mark.slow
def test_they_are_free_again_when_the_actor_is_over(two_gpus: None) -> None:
    for end in (moo.stop, moo.kill):
        both = moo.on(Sees, num_gpus=2).spawn()
        assert both.gpus() == "4,7"
        end(both)
    parts = moo.on(Sees, num_gpus=0.5, name="part").group(4)
    assert parts.call(Sees.gpus).get() == ["4", "4", "7", "7"]


@pytest.mark.slow
def test_a_restarted_actor_keeps_its_own(two_gpus: None) -> None:
    actor = moo.on(Sees, num_gpus=1, restart=moo.Restart(max=1)).spawn()
    before = actor.pid()
    os.kill(before, signal.SIGKILL)

    def is_back() -> bool:
        try:
            return bool(actor.pid() != before)
        except moo.ActorDied:
            return False

    assert eventually(is_back)
    assert actor.gpus() == "4"
    assert moo.on(Sees, num_gpus=1).spawn().gpus() == "7"


@pytest.mark.slow
def test_a_group_that_does_not_fit_leaves_nothing(two_gpus: None) -> None:
    with pytest.raises(moo.PlacementError):
        moo.on(Sees, num_gpus=1).group(3)
    assert moo.on(Sees, num_gpus=2).spawn().gpus() == "4,7"


@pytest.mark.slow
def test_an_actor_can_start_one_on_a_gpu_that_it_does_not_see(two_gpus: None) -> None:
    assert moo.on(Sees, num_gpus=1).spawn().in_its_place() == "7"


@pytest.mark.parametrize("count", [-1, 1.5])
def test_numbers_that_mean_nothing_are_refused(count: float) -> None:
    with pytest.raises(ValueError, match=rf"num_gpus={count}\b"):
        moo.on(Sees, num_gpus=count)


@pytest.mark.slow
def test_the_process_that_forks_actors_never_loads_the_driver(two_gpus: None) -> None:
    # CUDA that was initialised before a fork does not work behind it.
    pytest.importorskip("torch")
    assert "torch" in sys.modules  # and so is preloaded there
    maps = moo.spawn(Sees).zygotes_maps()
    assert "libtorch" in maps
    assert "libcuda.so" not in maps


@pytest.mark.slow
def test_what_went_which_way_is_counted_where_cuda_is_used(spawn: Any) -> None:
    assert spawn(Sees).cuda_counts(used=False) == {}
    pytest.importorskip("torch")
    ways = ("shared", "staged", "direct")
    counts = [f"{end}_{way}" for end in ("sent", "got") for way in ways]
    assert spawn(Sees).cuda_counts(used=True) == dict.fromkeys(counts, 0)
