# SPDX-License-Identifier: MIT
"""Supervisors, and what else is known, when a session ends or its agent hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import mooactor as moo
from mooactor.process.system import children
from tests.actors.members import Member, notes
from tests.conftest import eventually

PROGRAM = """
import sys
from pathlib import Path
import mooactor as moo
from tests.actors.members import Member

log = Path(sys.argv[1])
moo.init()
inner = moo.child(moo.Supervisor, [moo.child(Member, str(i), log) for i in range(3)])
outer = moo.spawn(moo.Supervisor, [inner], strategy="one_for_all", max=1000)
handles = outer.child(inner).children()
print(*[handle.pid() for handle in handles], flush=True)
sys.stdin.read()
"""


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


def test_nothing_comes_back_when_the_program_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "log")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as program:
        assert program.stdout is not None
        pids = [int(pid) for pid in program.stdout.readline().split()]
        program.kill()
    for pid in pids:
        assert eventually(lambda pid=pid: not os.path.exists(f"/proc/{pid}"))
    assert notes(tmp_path / "log") == ["+0", "+1", "+2"]


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
