# SPDX-License-Identifier: MIT
"""The rows of ``make bench-all``: one table with those of ``mooactor bench``."""

from __future__ import annotations

import json

import pytest

from mooactor.cli.bench import report
from tests.bench.__main__ import GROUPS, main
from tests.marks import slow, soak

CALLS = [f"hosts.{name}" for name in ("call", "rate", "spawn", "local")]


def test_one_list_has_the_rows_of_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "list"]) == 0
    names = capsys.readouterr().out.split()
    assert len(names) == len(set(names))
    ours = report.names()
    assert names[: len(ours)] == ours
    assert all(name.startswith(report.ELSEWHERE) for name in names[len(ours) :])


def test_unknown_rows_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "nix"]) == 2
    assert "no row has a name that begins with 'nix'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("group", "names"),
    [
        slow("weights", ["weights.8"]),
        slow("broker", [f"broker.{name}" for name in ("beats", "joins", "memory")]),
        slow("hosts", CALLS),
        soak("hosts", []),  # all, which takes two minutes
        soak("net", []),
        soak("ring", []),
        soak("atari", []),
    ],
)
def test_rows_are_measured_with_real_programs(
    group: str, names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [word for name in names or [group] for word in ("--only", name)]
    assert main([*chosen, "--quick", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    if reason := " ".join(found["skipped"].values()):
        assert "failed" not in reason
        pytest.skip(reason)
    every = [name for name in report.names(GROUPS) if name.startswith(f"{group}.")]
    rows = {row["name"]: row for row in found["rows"]}
    assert list(rows) == (names or every)
    for name, row in rows.items():
        assert all(
            0 < value < 1e8 for value in (row["ours"], *row["peers"].values())
        ), name
