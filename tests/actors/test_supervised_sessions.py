# SPDX-License-Identifier: MIT
"""A tree of supervisors when its session ends, and statistics if the agent hangs."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import mooactor as moo
from mooactor.process.system import children
from tests.actors.members import Member, notes


def test_the_end_of_the_session_stops_the_tree_in_order(
    tmp_path: Path, no_session: None
) -> None:
    log = tmp_path / "log"
    moo.init()
    inner = moo.child(
        moo.Supervisor, [moo.child(Member, str(i), log) for i in range(2)]
    )
    supervisor = moo.spawn(moo.Supervisor, [inner, moo.child(Member, "b", log)])
    with moo.monitor(supervisor) as events:
        assert isinstance(next(events), moo.Started)
    moo.shutdown(grace=60)
    assert notes(log) == ["+0", "+1", "+b", "-b", "-1", "-0"]


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def test_it_tells_the_rest_if_the_agent_hangs(no_session: None, tmp_path: Path) -> None:
    moo.init()
    moo.spawn(Member, "x", tmp_path / "log").ping()
    (pid,) = [pid for pid in children() if name_of(pid) == "moo-agent"]
    os.kill(pid, signal.SIGSTOP)
    try:
        stats = moo.stats()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert stats["session"] == {} and stats["links"] == 1
    assert str(stats).startswith("session  the agent does not answer")
