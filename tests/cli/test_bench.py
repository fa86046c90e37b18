# SPDX-License-Identifier: MIT
"""The bench: its arithmetic, its table, and one real run of its quickest group."""

import json
import signal
from collections.abc import Iterator

import pytest

from mooactor.cli import main
from mooactor.cli.bench import measure, report
from mooactor.cli.bench.report import Goal, Row, Skipped

FAST = Row(
    "call.x", "a call", "µs", 50.0, {"peer": 100.0}, Goal("at most", 0.75, "peer")
)
SLOW = Row(
    "rate.x", "calls", "calls/s", 90e3, {"peer": 77e3}, Goal("at least", 1.5, "peer")
)
PLAIN = Row("start.x", "a start", "s", 0.4, {}, Goal("at most", 0.5))


@pytest.mark.parametrize(("row", "met"), [(FAST, True), (SLOW, False), (PLAIN, True)])
def test_a_goal_is_met_by_ratio_or_by_value(row: Row, met: bool) -> None:
    assert row.as_json()["met"] is met


def test_the_table_shows_values_ratios_and_goals() -> None:
    lines = report.as_text([FAST, SLOW], [Skipped("atari", "absent")]).splitlines()
    assert [len(line) for line in lines[:4]] == [len(lines[0])] * 4
    cells = [cell.strip() for cell in lines[3].strip("|").split("|")]
    assert cells == ["calls", "90 k calls/s", "peer 77 k", "1.17", "≥ 1.5 × peer", "no"]
    assert lines[-1] == "atari: absent"


def test_works_take_turns_and_the_first_turn_is_thrown_away() -> None:
    order: list[str] = []

    def work(name: str, values: Iterator[float]) -> float:
        order.append(name)
        return next(values)

    a, b = iter([99.0, 1.0, 3.0, 2.0]), iter([99.0, 5.0, 5.0, 6.0])
    medians = measure.turn_about(3, lambda: work("a", a), lambda: work("b", b))
    assert medians == [2.0, 5.0]
    assert "".join(order) == "abababab"


def test_busy_cores_are_given_back() -> None:
    with measure.busy_loops(3) as loops:
        assert [loop.poll() for loop in loops] == [None] * 3
    assert [loop.returncode for loop in loops] == [-signal.SIGKILL] * 3


@pytest.mark.parametrize("name", ["hosts", "hosts.call", "net.tcp", "weights"])
def test_rows_of_a_checkout_are_named_with_the_place(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--only", name]) == 2
    assert f"`make bench-all ARGS='--only {name}'`" in capsys.readouterr().err


def test_a_group_that_fails_is_reported_and_no_table_lost() -> None:
    (found,) = report.measured("no.such.group", quick=True)
    assert found == Skipped("group", "failed with exit code 1")


@pytest.mark.slow
def test_calls_are_really_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--only", "call.idle", "--quick", "--json"]) == 0
    row, processor = json.loads(capsys.readouterr().out)["rows"]
    assert row["name"] == "call.idle.p50"
    assert processor["name"] == "call.idle.processor"
    assert 1 < row["ours"] < 100_000
    assert 1 < row["peers"]["raw pyzmq"] < 100_000
    assert row["ratios"]["raw pyzmq"] == row["ours"] / row["peers"]["raw pyzmq"]
