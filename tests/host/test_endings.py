# SPDX-License-Identifier: MIT
"""The end of a session waits for what was sent, says what it gives up, and can be
hurried."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.host import session as sessions
from mooactor.host.session import Awaited, Session, current_session
from tests.conftest import eventually
from tests.gates import wait_at
from tests.process import programs
from tests.processes import Process

pytestmark = pytest.mark.usefixtures("no_session")

TELLS = 500


@moo.actor
class Keeps:
    """Writes down in the end what it was told."""

    def __init__(self, path: str) -> None:
        self.path, self.count = path, 0

    def add(self) -> None:
        self.count += 1

    def stay(self) -> None:
        threading.Event().wait()

    def on_stop(self) -> None:
        Path(self.path).write_text(str(self.count))


@moo.actor
class Broken:
    """Its constructor fails, once there is that file."""

    def __init__(self, told: str) -> None:
        wait_at(told)
        raise LookupError("no such model")

    def add(self) -> None: ...


@moo.actor
class Leaves:
    def leave(self) -> None:
        os._exit(3)

    def add(self) -> None: ...


def warm_up() -> None:
    """Have the agent and the zygote ready, which may take longer than a grace where
    the machine is busy."""
    first = moo.spawn(Leaves)
    first.add()
    moo.kill(first)


@pytest.fixture(autouse=True)
def _a_minute_of_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none is named: the usual one is too short for a machine that is busy."""
    for end in (Session.close, moo.shutdown):
        _, *others = end.__defaults__ or ()
        monkeypatch.setattr(end, "__defaults__", (60.0, *others))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


# -- what is waited for ----------------------------------------------------


@moo.actor
class Sleeps:
    """Says so by a file, and stays; the actors that it spawns are its own."""

    def sleep(self, path: str) -> None:
        Path(path).touch()
        threading.Event().wait()

    def spawn(self) -> Sleeps:
        return moo.spawn(Sleeps)


def test_calls_that_the_end_cuts_short_die_of_it_and_not_of_a_stop(
    tmp_path: Path,
) -> None:
    moo.init()
    actor = moo.spawn(Sleeps)
    owned, stopped = actor.spawn(), moo.spawn(Sleeps)
    moo.stop(stopped)
    paths = [tmp_path / name for name in ("actor", "owned")]
    refs = [
        one.sleep.remote(str(path))
        for one, path in zip((actor, owned), paths, strict=True)
    ]
    assert eventually(lambda: all(path.exists() for path in paths))
    assert "stopped by moo.stop" in str(stopped.sleep.remote("").exception())
    moo.shutdown(grace=0)
    for ref in refs:
        error = ref.exception(timeout=20)
        if isinstance(error, moo.ActorUnavailable):  # the end was quicker than the news
            assert "the session has ended" in str(error)
            continue
        assert isinstance(error, moo.ActorDied) and error.cause is not None
        assert error.cause.kind == "owner"
        assert f"(pid {os.getpid()} on host " in str(error.cause.owner)
        with_it = f"its session has ended, with its program {error.cause.owner}"
        assert str(error.cause) == with_it


def test_what_was_told_runs_before_the_end(
    out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with moo.init():
        warm_up()
        keeps = moo.spawn(Keeps, str(out))
        for _ in range(TELLS):
            keeps.add.tell()
    assert out.read_text() == str(TELLS)
    assert capfd.readouterr().err == ""


PROGRAM = """
    import pathlib, sys, threading
    import mooactor as moo
    from mooactor.host.session import Session

    Session.close.__defaults__ = (60.0, *Session.close.__defaults__[1:])  # as above

    @moo.actor
    class Keeps:
        def __init__(self): self.count = 0
        def add(self): self.count += 1
        def sleep(self):
            print("asleep", flush=True)
            threading.Event().wait()
        def on_stop(self): pathlib.Path("out").write_text(str(self.count))

    first = moo.spawn(Keeps)  # the agent and the zygote are there now, however slow
    first.add()
    moo.kill(first)
    keeps = moo.spawn(Keeps)
"""


def test_the_end_of_the_program_waits_as_well(tmp_path: Path) -> None:
    program = PROGRAM + f"    for _ in range({TELLS}): keeps.add.tell()\n    1 / 0\n"
    done = programs.run(programs.write(tmp_path / "main.py", program))
    assert (tmp_path / "out").read_text() == str(TELLS), done.stderr
    assert "mooactor" not in done.stderr


def test_actors_that_a_call_needs_are_there_until_it_has_ended(out: Path) -> None:
    class Asks:
        def ask(self, keeps: Any, gate: str) -> None:
            wait_at(gate)
            keeps.add()

    gate = out.with_name("gate")
    with moo.init():
        warm_up()
        keeps = moo.spawn(Keeps, str(out))
        keeps.add.remote()  # nobody asks for what it returns
        moo.spawn(Asks).ask.tell(keeps, str(gate))
        threading.Timer(0.3, gate.touch).start()  # within the wait of the end
    assert out.read_text() == "2"


def test_an_error_waits_for_tells_and_not_for_calls(
    out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    moo.init()
    keeps, busy = (moo.spawn(Keeps, path) for path in (str(out), os.devnull))
    keeps.add(), busy.add()
    busy.stay.remote()  # for ever
    keeps.add.tell()
    session = current_session()
    assert session is not None
    session.close(math.inf, Awaited.after(LookupError))
    assert out.read_text() == "2"
    assert capfd.readouterr().err == ""


def test_what_an_exception_means_to_the_end() -> None:
    assert Awaited.after(None) is Awaited.after(SystemExit) is Awaited.ALL
    assert Awaited.after(ValueError) is Awaited.TELLS
    assert Awaited.after(KeyboardInterrupt) is Awaited.NOTHING
    # Ctrl-C in an asyncio program.
    assert Awaited.after(asyncio.CancelledError) is Awaited.NOTHING


# -- what is given up ------------------------------------------------------


def test_what_takes_longer_than_the_grace_is_said_to_be_given_up(
    out: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_LEAST_S", 5.0)  # a busy machine takes its time
    moo.init()
    keeps, busy = (moo.spawn(Keeps, str(out)) for _ in range(2))
    keeps.add(), busy.add()
    busy.stay.tell()
    busy.add.tell()
    busy.stay.remote()
    moo.shutdown(grace=0.3)
    (line,) = capfd.readouterr().err.splitlines()
    assert "gave up 2 tells to Keeps and 1 call to Keeps" in line
    assert "longer than 0.3 s; moo.shutdown(grace=…)" in line
    assert out.read_text() == "1"  # the other one has stopped as ever


def test_a_grace_that_is_no_time_is_refused() -> None:
    for wrong in ("3", True, float("nan")):
        with pytest.raises((TypeError, ValueError), match="grace"):
            moo.shutdown(grace=wrong)  # type: ignore[arg-type]


def test_tells_that_did_not_run_are_said_to_be_lost(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    told = tmp_path / "told"
    with moo.init():
        warm_up()
        broken = moo.spawn(Broken, str(told))
        for _ in range(7):
            broken.add.tell()
        told.touch()
        leaves = moo.on(Leaves, restart=moo.Restart(max=1)).spawn()
        leaves.add()
        leaves.leave.tell()
        for _ in range(3):
            leaves.add.tell()
        dead = moo.on(Leaves, name="dead").spawn()
        dead.add()
        moo.kill(dead)
        dead.add.tell()
    lines = capfd.readouterr().err.splitlines()
    assert (
        "mooactor: 7 tells to Broken did not run: "
        "Broken died (LookupError: no such model)"
    ) in lines
    (line,) = [line for line in lines if "to Leaves did not run" in line]
    assert "3 tells to Leaves did not run, and 1 tell to Leaves may not have" in line
    assert "exited with code 3" in line
    (line,) = [line for line in lines if "a tell to" in line]
    assert "a tell to Leaves:dead is lost: Leaves:dead is dead" in line


# -- Ctrl-C ----------------------------------------------------------------


def ended_by_ctrl_c(path: Path, word: bytes) -> str:
    """Run a program in a terminal of its own and press Ctrl-C there once it says
    `word`. It ends, however long it was to wait, and everything that it started is gone
    then. Returns its output."""
    master, slave = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", CONTROLLED, str(path)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=path.parent,
            start_new_session=True,
        )
        os.close(slave)
        written = b""
        while word not in written:
            written += os.read(master, 4096)
        everybody = Process.of(process.pid).family()
        os.write(master, b"\x03")
        with contextlib.suppress(OSError):  # nobody is left at the other end
            while data := os.read(master, 4096):
                written += data
        process.wait(40)
        assert eventually(lambda: programs.gone(everybody))
        return written.decode()
    finally:
        os.close(master)


# The terminal is to control the program, so that its Ctrl-C is a signal to the group.
CONTROLLED = """
import fcntl, runpy, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def test_ctrl_c_in_a_terminal_ends_a_program_without_a_block_at_once(
    tmp_path: Path,
) -> None:
    path = programs.write(tmp_path / "main.py", PROGRAM + "    keeps.sleep()\n")

    written = ended_by_ctrl_c(path, b"asleep")
    assert written.count("Traceback") == written.count("KeyboardInterrupt") == 1
    assert "mooactor:" not in written  # nothing was told
    assert programs.sessions() == []


def test_ctrl_c_ends_the_wait_of_a_shutdown_at_once(tmp_path: Path) -> None:
    program = PROGRAM + (
        """
    keeps.sleep.tell()
    import signal

    def watch():  # until the shutdown has taken Ctrl-C over
        while signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            pass
        print("ready", flush=True)

    threading.Thread(target=watch).start()
    try:
        moo.shutdown(grace=None)
    except KeyboardInterrupt:
        print("interrupted")
    """
    )
    path = programs.write(tmp_path / "main.py", program)
    written = ended_by_ctrl_c(path, b"ready")
    assert "interrupted" in written
    assert "gave up 1 tell to Keeps: it was interrupted" in written
    assert programs.sessions() == []


def test_a_handler_of_the_program_s_own_hears_of_ctrl_c_after_the_end() -> None:
    heard: list[bool] = []
    before = signal.signal(
        signal.SIGINT, lambda *_: heard.append("running" in repr(session))
    )
    try:
        session = moo.init()
        moo.spawn(Leaves).add()

        @moo.actor
        class Interrupts:
            def interrupt(self, pid: int) -> None:
                os.kill(pid, signal.SIGINT)
                threading.Event().wait()

        moo.spawn(Interrupts).interrupt.tell(os.getpid())
        moo.shutdown(grace=None)
        assert heard == [False]
    finally:
        signal.signal(signal.SIGINT, before)
