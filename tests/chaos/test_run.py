# SPDX-License-Identifier: MIT
"""Short chaos runs, and schedules that come again."""

from __future__ import annotations

import pytest

from tests.chaos.checker import report
from tests.chaos.run import last_words, stage
from tests.chaos.schedule import ACT_S, BETWEEN_HOSTS, HERE, acts
from tests.marks import soak
from tests.networks import why_not


def test_a_seed_gives_the_same_faults_each_time_and_another_one_others() -> None:
    """So an act has the same faults when it is played alone."""
    for hosts in ([], list("abc")):
        assert acts(5, 300, hosts) == acts(5, 300, hosts)
    assert [act.number for act in acts(7, 100, [])] == list(range(5))
    assert len({str(acts(seed, 20, [])) for seed in range(20)}) == 20


@pytest.mark.parametrize("hosts", [[], list("abc")])
def test_in_ten_minutes_every_kind_of_fault_comes(hosts: list[str]) -> None:
    faults = [fault for act in acts(1, 600, hosts) for fault in act.faults]
    kinds = {**HERE, **(BETWEEN_HOSTS if hosts else {})}
    assert {fault.kind for fault in faults} == set(kinds)
    assert all(fault.at <= ACT_S for fault in faults)  # rounded


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hosts", "end"),
    [
        ("", "finish"),
        ("", "kill-agent"),
        ("abc", "kill-driver"),
        soak("", "kill-driver"),
        soak("abc", "finish"),
        soak("abc", "kill-agent"),
    ],
)
def test_an_act_breaks_no_promise(hosts: str, end: str) -> None:
    if hosts and (why := why_not()):
        pytest.skip(why)
    (act,) = acts(11, 5, list(hosts))
    with stage(list(hosts)) as where:
        result = where.play(act._replace(end=end))
        said = f"{report(result.violations)}\n{last_words(result.directory)}"
    assert not result.violations, said
