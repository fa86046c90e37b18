# SPDX-License-Identifier: MIT
"""The bench: its arithmetic, its table, and one real run of its quickest group."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mooactor.cli import main
from mooactor.cli.bench import groups, measure, ray, report
from mooactor.cli.bench.row import Goal, Row, Skipped, short
from tests.marks import slow, soak

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


def test_a_row_survives_json() -> None:
    for row in (FAST, SLOW, PLAIN):
        assert report.parsed(json.loads(json.dumps(row.as_json()))) == row
    skipped = {"name": "atari", "reason": "ale-py is not installed"}
    assert report.parsed(skipped) == Skipped(**skipped)


def test_elsewhere_than_on_linux_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert main(["bench"]) == 1
    said = capsys.readouterr().err
    assert said == "mooactor bench: it measures on Linux only: run it there\n"


def test_the_table_shows_values_ratios_and_goals() -> None:
    lines = report.as_text([FAST, SLOW], [Skipped("atari", "absent")]).splitlines()
    assert [len(line) for line in lines[:4]] == [len(lines[0])] * 4
    cells = [cell.strip() for cell in lines[3].strip("|").split("|")]
    assert cells == ["calls", "90 k calls/s", "peer 77 k", "1.17", "≥ 1.5 × peer", "no"]
    assert lines[-1] == "atari: absent"


@pytest.mark.parametrize(
    ("value", "text"),
    [(77_123, "77.1 k"), (612.3, "612"), (12.44, "12.4"), (0.0333, "0.0333")],
)
def test_three_digits_are_shown(value: float, text: str) -> None:
    assert short(value) == text


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


def test_the_processor_time_of_both_ends_is_counted() -> None:
    with measure.busy_loops(1) as (loop,):
        anywhere = measure.ANYWHERE
        spell = measure.calls(lambda: time.sleep(0.002), 99, loop.pid, anywhere)
    assert 0.002 <= spell.p50 <= spell.p99 and spell.p50 * 0.5 < spell.mean
    assert spell.processor > 1e-5  # of the loop's: this side has slept


def test_both_ends_of_a_call_stay_where_they_are_put_and_go_back() -> None:
    before = os.sched_getaffinity(0)
    seen: list[list[set[int]]] = []
    with measure.busy_loops(1) as (loop,):

        def look() -> None:
            seen.append([os.sched_getaffinity(pid) for pid in (0, loop.pid)])

        for place in (places := measure.placements()):
            measure.calls(look, 1, loop.pid, place)
        look()
    assert seen == [*map(list, places), [before, before]]
    assert places[0][0] == places[0][1] and len(places) == min(2, len(before))


def test_unknown_rows_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--only", "call", "--only", "nix", "--json"]) == 2
    out, err = capsys.readouterr()
    why = json.loads(out)["error"]
    assert why.startswith("no row has a name that begins with 'nix': ")
    assert "`mooactor bench --only list`" in why
    assert err == f"mooactor bench: {why}\n"


def test_only_picks_the_groups_that_are_needed() -> None:
    assert groups.groups_with(["call.rate", "start"]) == ["calls", "startup"]
    assert groups.groups_with(None) == list(groups.GROUPS)


def test_list_names_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--only", "list"]) == 0
    assert capsys.readouterr().out.split() == groups.names()
    assert main(["bench", "--only", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"rows": [{"name": name} for name in groups.names()]}


def test_a_group_that_fails_is_reported_and_no_table_lost() -> None:
    (found,) = report.measured("no-such-group", quick=True)
    assert found == Skipped("no-such-group", "failed with exit code 1")


def test_rows_stay_as_they_are_where_ray_is_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray.importlib.util, "find_spec", lambda _: None)
    assert ray.beside([FAST]) == [FAST]


def test_rays_figures_join_the_rows_of_the_same_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray.importlib.util, "find_spec", lambda _: True)
    monkeypatch.setattr(ray, "_measured", lambda: {"a call": 610.0})
    first, second = ray.beside([FAST, SLOW])
    assert first.peers == {"peer": 100.0, "Ray": 610.0}
    assert second == SLOW


@pytest.mark.slow
def test_calls_are_really_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--only", "call.idle", "--quick", "--json"]) == 0
    row, processor = json.loads(capsys.readouterr().out)["rows"]
    assert row["name"] == "call.idle.p50"
    assert processor["name"] == "call.idle.processor"
    assert 1 < row["ours"] < 100_000
    assert 1 < row["peers"]["raw pyzmq"] < 100_000
    assert row["ratios"]["raw pyzmq"] == row["ours"] / row["peers"]["raw pyzmq"]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_reads_over_a_fabric_are_measured_or_said_to_be_impossible(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["bench", "--only", "net.fabric", "--quick", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    if reason := found["skipped"].get("net.fabric"):
        pytest.skip(reason)
    (row,) = (row for row in found["rows"] if row["name"] == "net.fabric")
    assert 0.01 < row["ours"] < 1000
    assert 0.01 < row["peers"]["libfabric"] < 1000


#: Of each row, the least and the most that its unit allows for on any machine.
OF_THE_BROKER = {
    "broker.beats": (0.001, 1000),
    "broker.joins": (1, 1e6),
    "broker.memory": (10, 1e6),
}
OF_CALLS = {
    "hosts.call": (1, 1e6),
    "hosts.rate": (10, 1e8),
    "hosts.spawn": (1, 1e5),
    "hosts.local": (1, 1e6),
}
OF_HOSTS = {
    **OF_CALLS,
    "hosts.handshake": (10, 1e7),
    "hosts.first": (0.1, 1e4),
    "hosts.descriptors.caller": (1, 100),
    "hosts.descriptors.callee": (1, 100),
    "hosts.memory.caller": (1, 1e5),
    "hosts.memory.callee": (1, 1e5),
    "hosts.killed.here": (0.1, 1e4),
    "hosts.killed.far": (0.1, 1e4),
    "hosts.cut": (0.1, 60),
    "hosts.swallowed.calls": (0.1, 60),
    "hosts.swallowed.answers": (0.1, 60),
    "hosts.cut.full": (0.01, 60),
}


@pytest.mark.parametrize(
    ("names", "bounds"),
    [
        slow("broker", OF_THE_BROKER),
        slow(",".join(OF_CALLS), OF_CALLS),
        soak("hosts", OF_HOSTS),  # two minutes
    ],
)
def test_brokers_and_hosts_are_measured_with_real_programs(
    names: str, bounds: dict[str, tuple[float, float]], capsys: Any
) -> None:
    chosen = [word for name in names.split(",") for word in ("--only", name)]
    assert main(["bench", *chosen, "--quick", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    if reason := found["skipped"].get(names.partition(".")[0]):
        assert "failed" not in reason
        pytest.skip(reason)
    rows = {row["name"]: row for row in found["rows"]}
    assert list(rows) == list(bounds)
    for name, (least, most) in bounds.items():
        assert least < rows[name]["ours"] < most, name
        assert all(least < peer < most for peer in rows[name]["peers"].values()), name
