# SPDX-License-Identifier: MIT
"""Which actor gets which GPU of a host. Names of GPUs are all it takes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mooactor as moo
from mooactor.host.devices import VARIABLE, Devices, set_for, visible
from tests.clusters import Cluster, cluster, network


def test_whole_ones_are_had_alone() -> None:
    devices = Devices(["0", "1", "2"])
    assert devices.take(1, 2) == {VARIABLE: "0,1"}
    assert devices.take(2, 2) is None
    assert devices.take(3, 1) == {VARIABLE: "2"}
    assert devices.take(4, 0.5) is None
    devices.give_back(1)
    assert devices.take(2, 2) == {VARIABLE: "0,1"}


def test_parts_gather_on_one_so_that_others_stay_whole() -> None:
    devices = Devices(["0", "1"])
    for holder in range(3):
        assert devices.take(holder, 1 / 3) == {VARIABLE: "0"}
    assert str(devices) == "2 GPUs, of which 1 are free"
    assert devices.take(3, 1) == {VARIABLE: "1"}
    assert devices.take(4, 0.1) is None
    for holder in range(3):
        devices.give_back(holder)
    assert devices.take(4, 1.0) == {VARIABLE: "0"}


def test_who_asks_for_none_sees_all() -> None:
    devices = Devices([])
    assert devices.take(1, 0) == {}
    assert devices.take(1, 1) is None
    devices.give_back(1)


@pytest.mark.parametrize(
    ("setting", "seen"),
    [
        ("0,1", ["0", "1"]),
        (" 3 , 1", ["3", "1"]),
        ("", []),
        ("0,-1,2", ["0"]),
        ("GPU-8f2c,MIG-77", ["GPU-8f2c", "MIG-77"]),
    ],
)
def test_what_a_program_sees_is_what_the_variable_says(
    setting: str, seen: list[str]
) -> None:
    assert visible({VARIABLE: setting}) == seen


def test_an_actor_without_any_of_its_own_has_the_hosts_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "4,7")
    assert set_for({}) == "4,7"
    assert set_for({VARIABLE: ""}) == ""
    monkeypatch.delenv(VARIABLE)
    assert set_for({}) is None
    assert set_for({VARIABLE: "7"}) == "7"


class Sees:
    """Says what it could use."""

    def devices(self) -> str | None:
        return os.environ.get(VARIABLE)


@pytest.fixture
def cluster_with_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Each host of it, and that of the driver, has two, as far as anybody can see."""
    monkeypatch.setenv(VARIABLE, "GPU-4,GPU-7")
    with cluster("b") as made:
        yield made


@pytest.mark.slow
def test_hosts_shows_the_devices_of_each_actor_on_every_host(
    cluster_with_gpus: Cluster, as_driver: Callable[..., Cluster]
) -> None:
    as_driver(cluster_with_gpus)
    with moo.init():
        started: list[Any] = []
        for host in ("b", "d"):
            started += [moo.on(Sees, host=host, num_gpus=1).spawn() for _ in range(2)]
            started += [moo.on(Sees, host=host).spawn()]
            odd = "x" * 5000  # more than another host's agent tells
            for value in ("", odd):
                started += [moo.on(Sees, host=host, env={VARIABLE: value}).spawn()]
        seen = [handle.devices() for handle in started]

        shown = [
            actor["cuda_visible_devices"]
            for host in sorted(moo.hosts(), key=lambda row: str(row["name"]))
            for actor in host["actors"]
        ]

        of_each_host = ["GPU-4", "GPU-7", "GPU-4,GPU-7", ""]
        assert seen == [*of_each_host, odd, *of_each_host, odd]
        assert shown == [*of_each_host, odd[:4096], *of_each_host, odd]


@pytest.mark.slow
def test_an_actor_goes_where_one_gpu_has_room_for_its_part(
    monkeypatch: pytest.MonkeyPatch, as_driver: Callable[..., Cluster]
) -> None:
    monkeypatch.setenv(VARIABLE, "0,1")
    with network("abd") as net, contextlib.closing(Cluster(net)) as made:
        made.start_broker()
        made.start_host("a", "--num-cpus", "4")
        made.start_host("b", "--num-cpus", "2")
        as_driver(made)
        with moo.init(local=False):
            parts = [moo.on(Sees, host="a", num_gpus=0.6).spawn() for _ in range(2)]
            assert [part.devices() for part in parts] == ["0", "1"]
            group = moo.on(Sees, num_gpus=0.7).group(2)
            assert group.call(Sees.devices).get() == ["0", "1"]
            assert {row["name"]: len(row["actors"]) for row in moo.hosts()} == {
                "a": 2,
                "b": 2,
            }

            def refused() -> str:
                with pytest.raises(moo.PlacementError) as caught:
                    moo.on(Sees, num_gpus=0.4 + 0.1).spawn()
                return str(caught.value)

            assert "a: 0.8 GPUs in parts of at most 0.4" in refused()
            moo.kill(parts[0])
            assert moo.on(Sees, num_gpus=0.7).spawn().devices() == "0"
