# SPDX-License-Identifier: MIT
"""Faults on one host × what is under way: how each ends. See `cast` for the columns."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.host.session import current_session
from tests.actors.counter import Counter
from tests.conftest import eventually
from tests.faults.cast import WAIT_S, Bystander, Scene, Victim, end_of, lines_of
from tests.processes import Process, stop

# fmt: off
TABLE = """
fault              | error                 | runs | queued | retried | later | stream | there | handed | put | group | news
SIGKILL            | ActorDied signal      | ?    | no     | no      | no    | ?      | ran   | ?      | ?   | no    | SD
SIGKILL, restarts  | ActorRestarted signal | ?    | no     | ok      | ok    | ?      | ran   | ?      | ?   | no    | SDRX
crash              | ActorDied signal      | ?    | no     | no      | no    | ?      | ran   | ?      | ?   | no    | SD
exit               | ActorDied exit        | ?    | no     | no      | no    | ?      | ran   | ?      | ?   | no    | SD
leave              | ActorDied exit        | ?    | no     | no      | no    | ?      | ran   | ?      | ?   | no    | SD
link               | ActorDied link        | ?    | no     | no      | no    | ?      | ran   | ?      | ?   | no    | SD
link, restarts     | ActorRestarted link   | ?    | no     | ok      | ok    | ?      | ran   | ?      | ?   | no    | SDRX
moo.kill           | ActorDied killed      | ?    | no     | no      | no    | ?      | ran   | ?      | ?   | no    | SX
moo.stop           | ActorDied stopped     | ok   | ok     | ok      | no    | ok     | ok    | ok     | ?   | ok    | SX
moo.stop, restarts | ActorDied stopped     | ok   | ok     | ok      | no    | ok     | ok    | ok     | ?   | ok    | SX
SIGSTOP            |                       | ok   | ok     | ok      | ok    | ok     | ok    | ok     | ok  | ok    | SX
"""  # noqa: E501
# fmt: on
LINES = lines_of(TABLE)


def strike(name: str, scene: Scene, partner: Any) -> None:
    """The fault, and what was held up goes on."""
    pid = scene.process.pid
    stopping = threading.Thread(target=moo.stop, args=(scene.victim,))
    if name == "SIGKILL":
        os.kill(pid, signal.SIGKILL)
    elif name == "link":
        moo.link(partner, scene.victim)
        partner.crash.tell()
    elif name == "moo.kill":
        moo.kill(scene.victim)
    elif name == "moo.stop":
        stopping.start()
        scene.go_on()
        stopping.join()
    elif name == "SIGSTOP":
        stop(pid)
        assert end_of(partial(scene.runs.get, timeout=0.2)) == "CallTimeout ?"
        os.kill(pid, signal.SIGCONT)
        scene.go_on()
    else:
        scene.order(name)
    scene.known()


@pytest.mark.parametrize("line", LINES)
def test_how_it_ends(spawn: Callable[..., Any], tmp_path: Path, line: str) -> None:
    name, _, restarts = line.partition(", ")
    restart = moo.Restart(max=1) if restarts else None
    victim = spawn(moo.on(Victim, restart=restart))
    scene = Scene(victim, spawn(Bystander), tmp_path)
    strike(name, scene, spawn(Victim))
    assert scene.ends() == LINES[line]


def test_a_class_that_the_actor_cannot_import_is_the_cause(
    spawn: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("class Only:\n    def use(self): ...\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    only = importlib.import_module("only_here").Only
    sys.path.pop()  # an actor has the path of its spawn
    with pytest.raises(moo.ActorDied, match="only_here"):
        spawn(only).use()
    del sys.modules["only_here"]


def test_a_death_is_told_with_its_signal_or_code_and_the_last_lines(
    spawn: Any, tmp_path: Path
) -> None:
    for how, words in (("crash", "SIGSEGV"), ("exit", "exited with code 7")):
        victim, order = spawn(Victim), tmp_path / how
        order.write_text(how)
        with pytest.raises(moo.ActorDied, match=words) as caught:
            victim.obey(order, tmp_path / "begun")
        cause = caught.value.cause
        assert (cause.signal, cause.exitcode) in ((signal.SIGSEGV, None), (None, 7))
        assert cause.stderr[-1:] == ("last words",)
        assert "last words" in str(caught.value)


def test_replies_that_left_before_a_death_are_not_lost(spawn: Any) -> None:
    for _ in range(5):
        counter = spawn(Counter)
        refs = [counter.echo.remote(i) for i in range(40)]
        # The death takes along what libzmq has not sent.
        counter.sleep.tell(0.25)
        last = [counter.exit.remote(0), *[counter.echo.remote(i) for i in range(300)]]
        assert moo.get(refs, timeout=WAIT_S) == list(range(40))
        assert {type(r.exception(timeout=WAIT_S)) for r in last} == {moo.ActorDied}


class Odd:
    def hold(self, seconds: float) -> str:
        # PyDLL keeps the GIL while the C function sleeps.
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))
        return "alive"

    def fork(self) -> int:
        return subprocess.Popen(["sleep", "60"]).pid


def test_one_that_holds_the_gil_is_alive_and_its_children_die_with_it(
    spawn: Any,
) -> None:
    odd = spawn(Odd)
    assert odd.hold(0.5) == "alive"
    child = Process.of(odd.fork())
    moo.kill(odd)
    assert eventually(lambda: not child.is_running())


# -- a death that the data plane sees before the agent tells of it -----------

DATA = np.arange(1 << 18)


@contextlib.contextmanager
def dead_and_not_known(handle: Any) -> Iterator[None]:
    """The actor's process is dead meanwhile, and the agent, which is stopped, has not
    said so."""
    session = current_session()
    assert session is not None
    process = Process.of(handle.pid())
    handle.echo(DATA)  # the data plane knows it
    stop(session._agent.pid)
    try:
        process.kill()
        assert eventually(lambda: not process.is_running())
        yield
    finally:
        os.kill(session._agent.pid, signal.SIGCONT)


def test_calls_with_data_to_one_whose_death_is_not_known_start_and_end(
    spawn: Any, group: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    lone = spawn(Victim)
    with dead_and_not_known(lone):
        refs = [lone.echo.remote(DATA) for _ in range(3)]
        lone.echo.tell(DATA)
        timed = lone.echo.options(timeout=0.2).remote(DATA)
        with pytest.raises(moo.CallTimeout):
            timed.get()
    assert [end_of(ref.get) for ref in refs] == ["ActorDied signal no"] * 3
    assert eventually(lambda: "tell to Victim did not run" in capfd.readouterr().err)

    restarts = spawn(moo.on(Victim, restart=moo.Restart()))
    with dead_and_not_known(restarts):
        once = restarts.echo.remote(DATA)
        again = restarts.echo.options(retries=1).remote(DATA)
    assert end_of(once.get) == "ActorRestarted signal no"
    assert again.get(timeout=WAIT_S).sum() == DATA.sum()

    members = group(Victim, 3)
    members.echo.call(DATA).get()
    with dead_and_not_known(members[1]):
        call = members.echo.call(DATA)
    first, second, third = call.get(WAIT_S, return_exceptions=True)
    assert first.sum() == third.sum() == DATA.sum()
    assert isinstance(second, moo.ActorDied)
