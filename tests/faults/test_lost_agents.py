# SPDX-License-Identifier: MIT
"""The agent is killed: all that is under way says so, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.host.session import current_session
from mooactor.process.current import current_runtime
from tests.conftest import eventually
from tests.faults.cast import Bystander, Scene, Victim
from tests.process import programs
from tests.processes import stop

ENDED = "the session has ended, because {}; moo.init() starts another one"


@moo.actor(max_pending=1)
class Full:
    def wait(self) -> None:
        threading.Event().wait()


def raised_by(act: Callable[[], object]) -> Callable[[], str]:
    """The exception of `act` in a thread of its own; the result waits for that."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except moo.ActorUnavailable as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return lambda: (thread.join(), str(errors[0]))[1]


@pytest.mark.parametrize(
    ("news", "why"),
    [
        ({"ev": "ended", "by": "mooactor stop"}, "mooactor stop ended it"),
        (None, "the host's agent died"),
    ],
)
def test_all_that_it_cuts_short_says_what_ended_the_session(
    no_session: None, tmp_path: Path, news: dict[str, Any] | None, why: str
) -> None:
    moo.init()
    session, runtime = current_session(), current_runtime()
    assert session is not None
    victim, full = moo.spawn(Victim), moo.spawn(Full)
    scene = Scene(victim, moo.spawn(Bystander), tmp_path)
    first = full.wait.remote()
    stop(session._agent.pid)  # it will not answer
    ways = {
        **scene.under_way,
        "room": full.wait,
        "spawn": lambda: moo.on(Victim, name="a").spawn(),
        "lookup": lambda: moo.lookup("a"),
        "list": moo.actors,
    }
    del ways["put"]  # it is there at once
    said = {name: raised_by(act) for name, act in ways.items()}
    assert eventually(lambda: len(runtime.agent._requests) == 3)
    if news is not None:
        runtime.agent._act_on(news, [])
    os.kill(session._agent.pid, signal.SIGKILL)
    ended = ENDED.format(why)
    assert {name: wait() for name, wait in said.items()} == dict.fromkeys(ways, ended)
    over = str(runtime.over("a call"))
    assert over.startswith(f"a call: its session has ended, because {why}; create it")
    with pytest.raises(moo.ActorUnavailable, match="the session has ended"):
        first.get()
    moo.init()
    assert len(moo.actors()) == 0


PROGRAM = """
    import os, signal, threading
    import mooactor as moo
    from mooactor.host.session import current_session

    class Worker:
        def wait(self):
            threading.Event().wait()

    def reap(*_, flags=os.WNOHANG):
        try:
            while os.waitpid(-1, flags)[0]:
                pass
        except ChildProcessError:
            return "alone"

    def lose(reaper):
        moo.init()
        ref = moo.spawn(Worker).wait.remote()
        session = current_session()
        agent = session._agent.pid
        if reaper == "ignored":
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        elif reaper == "handler":
            signal.signal(signal.SIGCHLD, reap)
        os.kill(agent, signal.SIGKILL)
        if reaper == "wait":
            try:
                os.waitpid(agent, 0)
            except ChildProcessError:
                pass  # mooactor was quicker
        try:
            ref.get()
        except moo.ActorUnavailable as error:
            print("ended")
        while not session.runtime.closed:
            pass
        if reaper == "none":
            return
        moo.shutdown()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with moo.init():
            assert not os.path.exists(session.directory)
        print(reap(flags=0))

    for reaper in ("ignored", "handler", "wait", "none"):
        lose(reaper)
"""


def test_a_session_ends_though_the_program_reaps_the_agent_itself_or_ends(
    tmp_path: Path,
) -> None:
    before = programs.sessions()
    done = programs.run(programs.write(tmp_path / "program.py", PROGRAM))
    assert done.stdout.split() == ["ended", "alone"] * 3 + ["ended"], done.stderr
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert eventually(lambda: programs.sessions() == before)
