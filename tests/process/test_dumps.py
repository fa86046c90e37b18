# SPDX-License-Identifier: MIT
"""SIGUSR1: every process of a session says what it is doing, and goes on with it."""

from __future__ import annotations

import os
import re
import signal
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import mooactor as moo
from mooactor.process import dump
from tests.conftest import eventually
from tests.process import programs
from tests.processes import Process

PROGRAM = """
import asyncio
import hashlib
import os
import signal
import sys
import threading
import time

import mooactor as moo
from mooactor import actor


@actor
class Sync:
    def pid(self):
        return os.getpid()

    def echo(self, value):
        return value

    def nap(self, seconds):
        time.sleep(seconds)
        return seconds

    def hash(self, rounds):  # in C, without the GIL
        return len(hashlib.pbkdf2_hmac("sha256", b"a", b"b", rounds))

    def until(self, path):
        while not os.path.exists(path):
            time.sleep(0.01)


@actor
class Async:
    def __init__(self):
        self.gone_on = asyncio.Event()

    def pid(self):
        return os.getpid()

    async def pause(self):
        await self.inner()

    async def inner(self):
        await self.gone_on.wait()

    async def waiting(self):
        return len(self.gone_on._waiters)

    async def echo(self, value):
        return value

    async def go_on(self):
        self.gone_on.set()


def say(*words):
    print(*words, flush=True)
"""


class Running:
    """A program under way, with what it has said on stderr so far."""

    def __init__(self, path: Path, text: str) -> None:
        programs.write(path, PROGRAM + textwrap.dedent(text))
        self._process = programs.start(path)
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.said.append(line)

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self) -> list[str]:
        """The words of the next line of stdout."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "".join(self.said)
        return line.split()

    def ask(self, pid: int, *expected: str) -> str:
        """Send the signal until it is answered so: the last answer."""
        for _ in range(20):
            before = len(self.said)
            os.kill(pid, signal.SIGUSR1)
            said = partial(self._since, before)
            if eventually(lambda: all(re.search(e, said()) for e in expected), 1.0):
                return said()
        raise AssertionError(said())

    def _since(self, before: int) -> str:
        return "".join(self.said[before:])

    def end(self) -> str:
        """Let it go on to its end, which must be a good one; the rest of stdout."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        out = process.stdout.read()
        assert process.wait(30) == 0, "".join(self.said)
        self._reader.join(10)
        return out

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join(10)
        for file in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert file is not None
            file.close()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[[str], Running]]:
    running: list[Running] = []

    def begin(text: str) -> Running:
        running.append(Running(tmp_path / "program.py", text))
        return running[-1]

    yield begin
    for one in running:
        one.close()


BLOCKED = """
with moo.init():
    sync = moo.spawn(Sync)
    go = sys.argv[0] + ".go"
    say(sync.pid())
    later = [sync.nap.remote(0) for _ in range(3)]
    sync.nap.tell(0)
    sync.until(go)  # blocks
    say("went on", moo.get(later), sync.nap(0.5))
"""


@pytest.mark.slow
def test_a_driver_that_is_blocked_in_a_call_and_the_actor_it_waits_for(
    program: Callable[[str], Running], tmp_path: Path
) -> None:
    running = program(BLOCKED)
    (actor,) = running.line()
    said = running.ask(running.pid, "waits for: .*\n.*Sync.until")
    assert f"the driver (process {running.pid}) on SIGUSR1" in said
    assert "in Ref.block" in said and 'program.py", line' in said  # the main thread
    assert "thread mooactor-housekeeper" in said

    said = running.ask(int(actor), "has queued")
    assert f"(Sync pid={actor}) mooactor: Sync (process {actor}) on SIGUSR1" in said
    assert "in Sync.until" in said
    assert re.search(r"runs: 1 call\n.*until\n", said)

    (tmp_path / "program.py.go").touch()
    assert running.end() == "went on [0, 0, 0] 0.5\n"


@pytest.mark.slow
def test_an_async_actor_names_its_tasks_and_what_they_await(
    program: Callable[[str], Running],
) -> None:
    running = program(
        """
        with moo.init():
            one = moo.spawn(Async)
            say(one.pid())
            refs = [one.pause.remote() for _ in range(3)]
            sys.stdin.readline()
            moo.get(one.go_on.remote())
            say("went on", moo.get(refs))
        """
    )
    (actor,) = running.line()
    said = running.ask(int(actor), r"pause \(3 times\)", "has queued")
    assert len(re.findall("in Async.inner\n.*in Async.pause", said)) == 3
    running.ask(running.pid, r"Async.pause \(3 times\)")
    assert running.end() == "went on [None, None, None]\n"


def test_a_driver_on_an_event_loop_names_its_tasks(
    program: Callable[[str], Running],
) -> None:
    running = program(
        """
        async def ask(one):
            await one.pause()

        async def main():
            one = moo.spawn(Async)
            task = asyncio.create_task(ask(one), name="the task")
            while not await one.waiting():
                await asyncio.sleep(0.01)
            say("waits")
            await asyncio.to_thread(sys.stdin.readline)
            await one.go_on()
            say("went on", await task)

        with moo.init():
            asyncio.run(main())
        """
    )
    assert running.line() == ["waits"]
    said = running.ask(running.pid, "waits for: 1 call\n.*Async.pause")
    assert re.search("task the task:\n(    .*\n)*.*in ask\n", said)
    assert running.end() == "went on None\n"


def test_the_agent_and_the_zygote(program: Callable[[str], Running]) -> None:
    running = program(
        """
        with moo.init():
            sync = moo.on(Sync, name="one").spawn()
            say(sync.pid())
            sys.stdin.readline()
            say(sync.nap(0.1))
        """
    )
    (actor,) = running.line()
    agent = Process.agent_of(running.pid)
    said = running.ask(agent.pid, f"one: running, process {actor}, 0 restarts")
    assert "in Agent.run" in said
    said = running.ask(
        agent.zygote().pid, r"the zygote \(process \d+\) on SIGUSR1", "in main\n"
    )
    assert "in _serve" in said
    assert running.end() == "0.1\n"


@pytest.mark.slow
@pytest.mark.skipif(not dump.READS_FRAMES, reason="would crash on this Python")
def test_what_computes_in_c_has_its_stack_said_at_once(
    program: Callable[[str], Running],
) -> None:
    running = program(
        """
        with moo.init():
            sync = moo.spawn(Sync)
            say(sync.pid())
            ref = sync.hash.remote((1 << 31) - 1)  # half an hour
            sync.nap.remote(0)
            sys.stdin.readline()
            moo.kill(sync)
            say("killed")
        """
    )
    (actor,) = running.line()
    said = running.ask(int(actor), "in hash(.*\n)+.*in <module>")
    # Only the C handler has run: Python's waits for the end of `hash`.
    assert "on SIGUSR1" not in said
    assert running.end() == "killed\n"


@pytest.mark.parametrize("callee", ["Sync", "Async"])
def test_no_call_is_broken_by_many_signals(
    program: Callable[[str], Running], callee: str
) -> None:
    running = program(
        f"""
        with moo.init():
            one = moo.spawn({callee})
            say(one.pid())
            for number in range(500):
                refs = [one.echo.remote(n) for n in range(number, number + 4)]
                assert moo.get(one.echo.remote(number)) == number
                assert moo.get(refs) == list(range(number, number + 4))
            say("all there")
            sys.stdin.readline()  # Python's own end takes the handler away
        """
    )
    actor = int(running.line()[0])
    for _ in range(100):
        os.kill(running.pid, signal.SIGUSR1)
        os.kill(actor, signal.SIGUSR1)
        time.sleep(0.005)
    assert running.line() == ["all", "there"]
    assert running.end() == ""
    assert "Traceback" not in "".join(running.said)


HANDLERS = {
    "Python": ("signal.signal(signal.SIGUSR1, lambda *_: say('mine'))", "mine"),
    "C": ("faulthandler.register(signal.SIGUSR1, sys.stdout, False)", "Stack"),
    "nobody": ("signal.signal(signal.SIGUSR1, signal.SIG_IGN)", None),
}


@pytest.mark.parametrize("whose", HANDLERS)
def test_a_handler_of_the_users_is_never_replaced(
    program: Callable[[str], Running], whose: str
) -> None:
    install, answer = HANDLERS[whose]
    running = program(
        f"""
        import faulthandler

        def ask():
            os.kill(os.getpid(), signal.SIGUSR1)

        {install}
        with moo.init(sigusr1=True):
            ask()
        ask()

        faulthandler.unregister(signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        with moo.init(sigusr1=True):
            {install}
            ask()
        ask()  # the end of the session changes nothing
        say("lives")
        """
    )
    *said, last = running.end().splitlines()
    assert last == "lives" and "on SIGUSR1" not in "".join(running.said)
    if answer is None:
        assert said == []
    else:
        assert [line.split()[0] for line in said].count(answer) == 4


@pytest.mark.slow
def test_in_a_slurm_job_a_driver_leaves_it_to_others_unless_asked(
    program: Callable[[str], Running],
) -> None:
    running = program(
        """
        def is_free(job, **options):
            os.environ.pop("SLURM_JOB_ID", None)
            os.environ.update(job)
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)
            with moo.init(**options):
                return signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL

        slurm = {"SLURM_JOB_ID": "1"}
        say(is_free(slurm), is_free({}, sigusr1=False))
        say(is_free(slurm, sigusr1=True), is_free({}))
        """
    )
    assert running.end().split() == ["True", "True", "False", "False"]


def test_outside_the_main_thread_nothing_is_installed(
    program: Callable[[str], Running],
) -> None:
    running = program(
        """
        thread = threading.Thread(target=moo.init)
        thread.start()
        thread.join()
        say(moo.spawn(Sync).nap(0), signal.getsignal(signal.SIGUSR1))
        moo.shutdown()
        """
    )
    assert running.end() == "0 0\n"


def test_a_fork_of_the_driver_says_so(program: Callable[[str], Running]) -> None:
    running = program(
        """
        with moo.init():
            moo.spawn(Sync).nap(0)
            child = os.fork()
            if child == 0:
                os.kill(os.getpid(), signal.SIGUSR1)
                os._exit(0)
            say(os.waitpid(child, 0)[1])
        """
    )
    assert running.end() == "0\n"
    said = "".join(running.said)
    assert f"a fork of process {running.pid}, the driver" in said
    assert "waits for" not in said


def test_sigusr1_is_a_flag() -> None:
    with pytest.raises(TypeError, match="sigusr1"):
        moo.init(sigusr1="yes")  # type: ignore[arg-type]
