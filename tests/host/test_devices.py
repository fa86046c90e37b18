# SPDX-License-Identifier: MIT
"""Which actor gets which GPU of a host. Names of GPUs are all it takes."""

from __future__ import annotations

import pytest

from mooactor.host.resources import VARIABLE, Devices, set_for, visible


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


def test_what_a_program_sees_is_what_the_variable_says() -> None:
    for setting, seen in (
        ("0,1", ["0", "1"]),
        (" 3 , 1", ["3", "1"]),
        ("", []),
        ("0,-1,2", ["0"]),
        ("GPU-8f2c,MIG-77", ["GPU-8f2c", "MIG-77"]),
    ):
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
