# SPDX-License-Identifier: MIT
"""The processors that a container has: its quota of time counts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mooactor.host.resources import Resources
from mooactor.tensors import limits

ALLOWED = len(os.sched_getaffinity(0))


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A control group, in an outer one."""
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.setattr(limits, "_CGROUPS", tmp_path)
    monkeypatch.setattr(limits, "_cgroup_paths", lambda _: iter([inner]))
    return inner


@pytest.mark.parametrize(
    ("quota", "processors"), [(0.5, 1), (1.0, 1), (1.5, 2), (1e6, ALLOWED)]
)
def test_a_quota_counts_by_whole_processors(
    quota: float, processors: int, groups: Path
) -> None:
    (groups / "cpu.max").write_text("max 100000\n")
    (groups.parent / "cpu.max").write_text(f"{int(quota * 100000)} 100000\n")
    assert limits.cpu_quota() == quota
    assert limits.processors() == min(processors, ALLOWED)


def test_the_older_control_groups_say_it_in_two_files(groups: Path) -> None:
    (groups / "cpu.cfs_quota_us").write_text("50000\n")
    (groups / "cpu.cfs_period_us").write_text("100000\n")
    assert limits.cpu_quota() == 0.5
    (groups / "cpu.cfs_quota_us").write_text("-1\n")
    assert limits.cpu_quota() is None


def test_without_a_quota_all_count(groups: Path) -> None:
    assert limits.cpu_quota() is None
    assert limits.processors() == ALLOWED


def test_a_host_with_a_quota_offers_that_and_binds_nobody(groups: Path) -> None:
    (groups / "cpu.max").write_text("100000 100000\n")
    resources = Resources.of_this_host()
    assert resources.total.cpus == 1.0
    assert resources.cores.take("somebody", 1) == []
