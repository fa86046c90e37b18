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
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.host import ending
from mooactor.host.ending import Awaited
from mooactor.host.session import Session, current_session
from tests.conftest import eventually
from tests.gates import wait_at
from tests.marks import slow, soak
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

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

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


def in_a_block(tell: Callable[[], None]) -> None:
    with moo.init():
        tell()


@moo.actor
class Sleeps:
    """Says so by a file, then sleeps; the actors that it spawns are its own."""

    def sleep(self, path: str) -> None:
        Path(path).touch()
        time.sleep(600)

    def spawn(self) -> Sleeps:
        return moo.spawn(Sleeps)


ENDS: dict[str, Callable[[Any], None]] = {
    "called moo.shutdown()": lambda running: moo.shutdown(grace=0),
    "was interrupted (Ctrl-C)": lambda running: running.__exit__(
        KeyboardInterrupt, None, None
    ),
    "left its `with moo.init()` block": lambda running: running.__exit__(
        ValueError, None, None
    ),
}


@pytest.mark.parametrize("how", ENDS)
def test_calls_that_the_end_cuts_short_die_of_it_and_not_of_a_stop(
    how: str, tmp_path: Path
) -> None:
    running = moo.init()
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
    ENDS[how](running)
    for ref in refs:
        error = ref.exception(timeout=20)
        if isinstance(error, moo.ActorUnavailable):  # the end was quicker than the news
            assert "the session has ended" in str(error)
            continue
        assert isinstance(error, moo.ActorDied) and error.cause is not None
        assert error.cause.kind == "owner"
        assert f"(pid {os.getpid()} on host " in str(error.cause.owner)
        assert str(error.cause) == f"its session has ended: {error.cause.owner} {how}"


def by_shutdown(tell: Callable[[], None]) -> None:
    moo.init()
    tell()
    moo.shutdown()


def by_an_error(tell: Callable[[], None]) -> None:
    with contextlib.suppress(LookupError), moo.init():
        tell()
        raise LookupError


def by_sys_exit(tell: Callable[[], None]) -> None:
    with contextlib.suppress(SystemExit), moo.init():
        tell()
        sys.exit(0)


@pytest.mark.parametrize("end", [in_a_block, by_shutdown, by_an_error, by_sys_exit])
def test_what_was_told_runs_before_the_end(
    out: Path, end: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    def tell() -> None:
        warm_up()
        keeps = moo.spawn(Keeps, str(out))
        for _ in range(TELLS):
            keeps.add.tell()

    end(tell)
    assert out.read_text() == str(TELLS)
    assert capfd.readouterr().err == ""


PROGRAM = """
    import pathlib, sys, time
    import mooactor as moo
    from mooactor.host.session import Session

    Session.close.__defaults__ = (60.0, *Session.close.__defaults__[1:])  # as above

    @moo.actor
    class Keeps:
        def __init__(self): self.count = 0
        def add(self): self.count += 1
        def sleep(self):
            print("asleep", flush=True)
            time.sleep(60)
        def on_stop(self): pathlib.Path("out").write_text(str(self.count))

    first = moo.spawn(Keeps)  # the agent and the zygote are there now, however slow
    first.add()
    moo.kill(first)
    keeps = moo.spawn(Keeps)
"""


@pytest.mark.parametrize("last", ["", "1 / 0"], ids=["ends", "fails"])
def test_the_end_of_the_program_waits_as_well(tmp_path: Path, last: str) -> None:
    program = PROGRAM + f"    for _ in range({TELLS}): keeps.add.tell()\n    {last}\n"
    done = programs.run(programs.write(tmp_path / "main.py", program))
    assert (tmp_path / "out").read_text() == str(TELLS), done.stderr
    assert "mooactor" not in done.stderr


@pytest.mark.slow
def test_a_call_whose_ref_nobody_asks_is_waited_for(out: Path) -> None:
    with moo.init():
        warm_up()
        keeps = moo.spawn(Keeps, str(out))
        for _ in range(3):
            keeps.add.remote()
    assert out.read_text() == "3"


def test_actors_that_a_call_needs_are_there_until_it_has_ended(out: Path) -> None:
    class Asks:
        def ask(self, keeps: Any) -> None:
            time.sleep(0.3)
            keeps.add()

    with moo.init():
        warm_up()
        keeps = moo.spawn(Keeps, str(out))
        keeps.add()
        moo.spawn(Asks).ask.tell(keeps)
    assert out.read_text() == "2"


def test_an_error_waits_for_tells_and_not_for_calls(
    out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    moo.init()
    keeps, busy = (moo.spawn(Keeps, path) for path in (str(out), os.devnull))
    keeps.add(), busy.add()
    busy.sleep.remote(60)
    keeps.add.tell()
    session = current_session()
    assert session is not None
    began = time.monotonic()
    session.close(math.inf, Awaited.after(LookupError))
    assert time.monotonic() - began < 30.0  # the call takes a minute
    assert out.read_text() == "2"
    assert capfd.readouterr().err == ""


def test_what_an_exception_means_to_the_end() -> None:
    assert Awaited.after(None) is Awaited.after(SystemExit) is Awaited.ALL
    assert Awaited.after(ValueError) is Awaited.TELLS
    assert Awaited.after(KeyboardInterrupt) is Awaited.NOTHING
    # What Ctrl-C is in an asyncio program.
    assert Awaited.after(asyncio.CancelledError) is Awaited.NOTHING


# -- what is given up ------------------------------------------------------


def test_what_takes_longer_than_the_grace_is_said_to_be_given_up(
    out: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "_LEAST_S", 5.0)  # a busy machine takes its time
    moo.init()
    keeps, busy = (moo.spawn(Keeps, str(out)) for _ in range(2))
    keeps.add(), busy.add()
    busy.sleep.tell(60)
    busy.add.tell()
    busy.sleep.remote(60)
    moo.shutdown(grace=0.3)
    (line,) = capfd.readouterr().err.splitlines()
    assert "gave up 2 tells to Keeps and 1 call to Keeps" in line
    assert "longer than 0.3 s; moo.shutdown(grace=…)" in line
    assert out.read_text() == "1"  # the other one has stopped as ever


def test_a_grace_that_is_no_time_is_refused() -> None:
    for wrong in ("3", True, float("nan")):
        with pytest.raises((TypeError, ValueError), match="grace"):
            moo.shutdown(grace=wrong)  # type: ignore[arg-type]


def test_without_anything_outstanding_the_end_waits_for_nothing() -> None:
    moo.init()
    moo.spawn(Leaves).add()
    began = time.monotonic()
    moo.shutdown(grace=None)
    assert time.monotonic() - began < 20.0


@pytest.mark.parametrize("how", ["one", "group"])
def test_tells_that_a_constructor_takes_along_are_said_to_be_lost(
    capfd: pytest.CaptureFixture[str], how: str, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    with moo.init():
        warm_up()
        one = (Broken, str(told))
        broken = moo.on(Broken).group(1, one[1]) if how == "group" else moo.spawn(*one)
        for _ in range(7):
            broken.add.tell()
        told.touch()
    (line,) = capfd.readouterr().err.splitlines()
    assert line == (
        "mooactor: 7 tells to Broken did not run: "
        "Broken died (LookupError: no such model)"
    )


def test_tells_behind_the_one_that_ended_the_actor_are_said_to_be_lost(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with moo.init():
        warm_up()
        leaves = moo.on(Leaves, restart=moo.Restart(max=1)).spawn()
        leaves.add()
        leaves.leave.tell()
        for _ in range(3):
            leaves.add.tell()
    (line,) = capfd.readouterr().err.splitlines()
    assert "3 tells to Leaves did not run, and 1 tell to Leaves may not have" in line
    assert "exited with code 3" in line


def test_a_tell_to_one_that_is_known_to_be_dead_is_said_to_be_lost(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with moo.init():
        warm_up()
        group = moo.on(Leaves).group(1)
        group[0].add()
        moo.kill(group[0])
        group[0].add.tell()
        group.tell(Leaves.add)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all("a tell to Leaves is lost: Leaves is dead" in line for line in lines)


# -- Ctrl-C ----------------------------------------------------------------


def ended_by_ctrl_c(path: Path, word: bytes) -> tuple[float, str]:
    """Run a program in a terminal of its own and press Ctrl-C there once it says
    `word`: the seconds that it takes to end, and what it has written. Everything
    that it started is gone then."""
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
        began = time.monotonic()
        with contextlib.suppress(OSError):  # nobody is left at the other end
            while data := os.read(master, 4096):
                written += data
        process.wait(40)
        took = time.monotonic() - began
        assert eventually(lambda: programs.gone(everybody))
        return took, written.decode()
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

    took, written = ended_by_ctrl_c(path, b"asleep")
    assert "KeyboardInterrupt" in written
    assert "mooactor:" not in written  # nothing was told
    assert took < 20.0  # of the minute that a call may take at an ordinary end
    assert programs.sessions() == []


@pytest.mark.parametrize(
    "wait",
    [
        # for a tell; for an actor that does not stop
        "keeps.sleep.tell()",
        "Keeps.on_stop = Keeps.sleep; keeps = moo.spawn(Keeps); keeps.add()",
    ],
    ids=["tell", "on_stop"],
)
def test_ctrl_c_ends_the_wait_of_a_shutdown_at_once(tmp_path: Path, wait: str) -> None:
    program = PROGRAM + (
        f"""
    {wait}
    import signal, threading

    def watch():  # until the shutdown has taken Ctrl-C over
        while signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            time.sleep(0.001)
        print("ready", flush=True)

    threading.Thread(target=watch).start()
    try:
        moo.shutdown(grace=None)
    except KeyboardInterrupt:
        print("interrupted")
    """
    )
    path = programs.write(tmp_path / "main.py", program)
    took, written = ended_by_ctrl_c(path, b"ready")
    assert "interrupted" in written
    assert took < 10.0  # of the minute that it was to wait
    assert ("gave up 1 tell to Keeps: it was interrupted" in written) == (
        "tell" in wait
    )
    assert programs.sessions() == []


@moo.actor
class NeverStops:
    def ping(self) -> None: ...

    def on_stop(self) -> None:
        time.sleep(600)


def interrupted_at(line: int | None) -> set[int]:
    """End a session whose actor does not stop, with a Ctrl-C before that line of the
    module `ending` is first reached; None: in its wait. The lines reached before it."""
    reached: Counter[int] = Counter()
    pressed = False

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal pressed
        if frame.f_code.co_filename != ending.__file__:
            return None
        if event == "line" and not pressed:
            reached[frame.f_lineno] += 1
            waits = line is None and reached[frame.f_lineno] == 3
            if waits or frame.f_lineno == line:
                pressed = True
                signal.raise_signal(signal.SIGINT)
        return trace

    moo.init(logs=False)
    moo.spawn(NeverStops).ping()
    with contextlib.suppress(KeyboardInterrupt):
        sys.settrace(trace)
        try:
            moo.shutdown(grace=None)
        finally:
            sys.settrace(None)
    moo.shutdown(grace=0.5)  # for a Ctrl-C just before the end had begun
    return set(reached)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("step", [slow(3), soak(1)])  # at one line of so many
def test_ctrl_c_at_any_line_of_the_end_is_seen(step: int) -> None:
    """A line at which it is missed leaves the end waiting for the actor."""
    lines = interrupted_at(None)
    assert len(lines) > 30
    for line in sorted(lines)[::step]:
        interrupted_at(line)


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
                time.sleep(60)

        moo.spawn(Interrupts).interrupt.tell(os.getpid())
        moo.shutdown(grace=None)
        assert heard == [False]
    finally:
        signal.signal(signal.SIGINT, before)
