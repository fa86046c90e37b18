# SPDX-License-Identifier: MIT
"""SIGUSR1: every process of a session says what it is doing, and goes on with it."""

from __future__ import annotations

import os
import re
import signal
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mooactor.process import signals
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

import mooactor as moo
from mooactor import actor


@actor
class Sync:
    def pid(self):
        return os.getpid()

    def echo(self, value):
        return value

    def hash(self, rounds):  # in C, without the GIL
        return len(hashlib.pbkdf2_hmac("sha256", b"a", b"b", rounds))

    def until(self, path):
        with open(path) as gate:  # a named pipe
            gate.read()


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
    """A program under way."""

    def __init__(self, path: Path, text: str) -> None:
        programs.write(path, PROGRAM + textwrap.dedent(text))
        self._stderr = path.with_suffix(".err")
        with self._stderr.open("wb") as stderr:
            self._process = programs.start(path, stderr=stderr)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self.pid = self._process.pid

    def said(self) -> str:
        """Its stderr so far."""
        return self._stderr.read_text()

    def line(self) -> list[str]:
        """The words of the next line of stdout."""
        line = self._stdout.readline()
        assert line, self.said()
        return line.split()

    def go_on(self) -> None:
        """It waits for a line on stdin."""
        self._stdin.write("\n")
        self._stdin.flush()

    def ask(self, pid: int, *expected: str) -> str:
        """Send the signal until the answer, which comes in pieces, has all of these
        patterns: that answer."""
        for _ in range(20):
            before = len(self.said())
            os.kill(pid, signal.SIGUSR1)
            answer = lambda before=before: self.said()[before:]  # noqa: E731
            if eventually(lambda: all(re.search(e, answer()) for e in expected), 1.0):
                return answer()
        raise AssertionError(answer())

    def end(self) -> str:
        """Let it go on to its end, which must be a good one; the rest of stdout."""
        self._stdin.close()
        out = self._stdout.read()
        assert self._process.wait(30) == 0, self.said()
        return out

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._stdin.close()
        self._stdout.close()


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
async def ask(one):
    await one.pause()

async def main():
    one = moo.spawn(Async)
    task = asyncio.create_task(ask(one), name="the task")
    while not await one.waiting():
        pass
    say("waits")
    await asyncio.to_thread(sys.stdin.readline)
    await one.go_on()
    say("went on", await task)

with moo.init():
    sync, pauses = moo.on(Sync, name="one").spawn(), moo.spawn(Async)
    say(sync.pid(), pauses.pid())
    refs = [pauses.pause.remote() for _ in range(3)]
    later = [sync.echo.remote(0) for _ in range(3)]
    sync.echo.tell(0)
    sync.until(sys.argv[0] + ".go")  # blocks
    moo.get(pauses.go_on.remote())
    say("went on", moo.get(later), moo.get(refs))
    asyncio.run(main())
    ref = sync.hash.remote((1 << 31) - 1)  # half an hour
    sync.echo.remote(0)
    sys.stdin.readline()
    moo.kill(sync)
    say("killed")
"""


def test_every_process_of_a_session_says_what_it_does_and_goes_on_with_it(
    program: Callable[[str], Running], tmp_path: Path
) -> None:
    gate = tmp_path / "program.py.go"
    os.mkfifo(gate)
    running = program(BLOCKED)
    sync, pauses = map(int, running.line())

    # A driver that is blocked in a call, and the actor that it waits for.
    running.ask(
        running.pid,
        rf"the driver \(process {running.pid}\) on SIGUSR1",
        "waits for: ",
        "Sync:one.until",
        r"Async.pause \(3 times\)",
        "in Ref.block",  # the main thread
        'program.py", line',
        "thread mooactor-housekeeper",
    )
    who = re.escape(f"(Sync:one pid={sync}) mooactor: Sync:one (process {sync})")
    running.ask(  # the call has begun
        sync,
        f"{who} on SIGUSR1",
        r"runs: 1 call\n.*until\n",
        "in Sync.until",
        "has queued",
    )

    # An async actor names its tasks and what they await.
    thrice = r"(?:(?:.*\n)*?.*in Async.inner\n.*in Async.pause\n){3}"
    running.ask(pauses, r"pause \(3 times\)", "has queued", thrice)

    agent = Process.agent_of(running.pid)
    row = f"one: running, process {sync}, 0 restarts"
    running.ask(agent.pid, row, "in Agent.run")
    is_zygote = r"the zygote \(process \d+\) on SIGUSR1"
    running.ask(agent.zygote().pid, is_zygote, "in _serve", "in main\n")

    gate.write_text("")
    assert "".join(running.line()) == "wenton[0,0,0][None,None,None]"

    # A driver on an event loop.
    assert running.line() == ["waits"]
    task = "task the task:\n(    .*\n)*.*in ask\n"
    running.ask(running.pid, "waits for: 1 call\n.*Async.pause", task)
    running.go_on()
    assert running.line() == ["went", "on", "None"]

    # The stack of a thread that computes in C is said at once.
    if signals.READS_FRAMES:  # this Python would crash otherwise
        said = running.ask(sync, "in hash(.*\n)+.*in <module>")
        # Only the C handler has run: Python's waits for the end of `hash`.
        assert "on SIGUSR1" not in said
    assert running.end() == "killed\n"
