# SPDX-License-Identifier: MIT
"""The checker of chaos runs accepts what keeps the promises, and nothing else."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.chaos import history
from tests.chaos.breaks import BREAKS, Break
from tests.chaos.checker import RULES, check, report
from tests.chaos.edited import Edited, Unsuitable
from tests.chaos.history import Event, History, digest
from tests.chaos.simulator import correct_history
from tests.chaos.story import Story, merged
from tests.conftest import eventually
from tests.marks import slow

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", range(10))
def test_a_correct_history_has_no_violation(seed: int) -> None:
    violations = check(correct_history(seed, steps=1000))
    assert not violations, report(violations)


@pytest.mark.parametrize("seed", [slow(seed) for seed in range(100, 110)])
def test_nor_has_a_long_one(seed: int) -> None:
    violations = check(correct_history(seed, steps=20_000))
    assert not violations, report(violations)


@pytest.mark.parametrize(
    ("rule", "broken"), [pytest.param(*one, id=one[1].__name__) for one in BREAKS]
)
def test_a_broken_promise_is_found(rule: str, broken: Break) -> None:
    tried = 0
    for seed in range(60):
        it = Edited(seed)
        try:
            broken(it)
        except Unsuitable:
            continue
        found = {violation.rule for violation in check(it.events)}
        assert rule in found, f"seed {seed}: the checker found only {found}"
        tried += 1
        if tried == 5:
            return
    assert tried, "no history can be broken so"


def test_every_rule_is_tested_by_a_history_that_breaks_it() -> None:
    assert {rule for rule, _ in BREAKS} == set(RULES)


def test_a_report_names_the_rule_and_shows_the_events() -> None:
    it = Edited(1)
    it.after(it.pick("ended"), "left", text="a socket")
    text = report(check(it.events))
    assert "[leftovers] left behind: a socket" in text
    assert " driver left text='a socket'" in text


WRITER = """
import sys
from tests.chaos.history import History
history, n = History(sys.argv[1], "writer"), 0
while True:
    history.note("made", ref=n, value="x" * 200)
    n += 1
"""


def test_a_killed_writer_loses_no_event(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(words, cwd=ROOT) as writer:
        path = tmp_path / "writer.history"
        assert eventually(lambda: path.exists() and path.stat().st_size > 100_000)
        writer.send_signal(signal.SIGKILL)
    events = history.read(tmp_path)
    assert len(events) > 300
    assert [event.ref for event in events] == list(range(len(events)))


def test_an_unfinished_line_is_passed_over(tmp_path: Path) -> None:
    made = History(str(tmp_path), "one")
    made.note("over")
    made.close()
    with open(tmp_path / "one.history", "ab") as file:
        file.write(b'[1.5,"ran",{"call')
    assert [event.what for event in history.read(tmp_path)] == ["over"]


def test_histories_are_merged_in_the_order_of_time(tmp_path: Path) -> None:
    made = [History(str(tmp_path), who) for who in "ab"]
    for n in range(20):
        made[n % 2].note("made", ref=n, value=n)
    for one in made:
        one.close()
    assert [event.ref for event in history.read(tmp_path)] == list(range(20))


def test_events_survive_being_written_again(tmp_path: Path) -> None:
    events = correct_history(3, steps=50)
    history.write(tmp_path, events)
    assert history.read(tmp_path) == events


def test_the_checker_is_a_command(tmp_path: Path) -> None:
    events = correct_history(4, steps=50)
    history.write(tmp_path, events)
    words = [sys.executable, "-m", "tests.chaos.checker", str(tmp_path)]
    good = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert good.returncode == 0 and "no violation" in good.stdout
    late = Event(events[-1].t + 1, "runner-2", "left", {"text": "a file"})
    history.write(tmp_path, [late])
    bad = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert bad.returncode == 1 and "left behind: a file" in bad.stdout


def test_arrays_differ_in_their_digests() -> None:
    ones = np.ones(4, np.float32)
    assert digest(ones) == digest(np.ones(4, np.float32))
    others = [np.ones(4), np.ones((2, 2), np.float32), np.ones(3, np.float32), -ones]
    assert len({digest(one) for one in [ones, *others]}) == 5
    assert digest([1, (ones,)]) == [1, [digest(ones)]]


def test_silences_without_time_to_recover_between_them_are_one() -> None:
    assert merged([(5.0, 6.0), (0.0, 1.0), (1.5, 3.5)]) == [(0.0, 3.5), (5.0, 6.0)]
    assert merged([(0.0, 7.0), (1.0, 2.0)]) == [(0.0, 7.0)]
    assert merged([]) == []


@pytest.mark.parametrize(
    ("seconds", "loses", "is_lost"),
    [(2.0, "", False), (2.0, "b", False), (2.0, "a", True), (1.5, "a", False)],
)
def test_a_host_may_be_lost_that_loses_packets_after_a_long_silence(
    seconds: float, loses: str, is_lost: bool
) -> None:
    born = {"role": "actor", "actor": "1", "incarnation": 0, "pid": 7, "host": "a"}
    events = [
        Event(0.0, "one.1.0", "born", born),
        Event(1.0, "runner", "fault", {"kind": "loss", "target": loses, "until": 9.0}),
        Event(
            2.0,
            "runner",
            "fault",
            {"kind": "stop", "target": "agent", "until": 2.0 + seconds},
        ),
    ]
    assert bool(Story(events).hosts_lost.get("a")) == is_lost
