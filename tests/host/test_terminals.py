# SPDX-License-Identifier: MIT
"""A driver's stdout that nobody reads for a while: lines wait or are counted, and
nothing else notices."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mooactor.host.eventloop import EventLoop
from mooactor.host.output import Terminal
from tests.conftest import eventually
from tests.process import programs
from tests.processes import Process

pytestmark = pytest.mark.usefixtures("no_session")

LINES = 4000  # of a thousand bytes: more than the agent keeps

# The test's words come over stdin, the answers to a descriptor of their own.
SCRIPT = """
    import os, signal, sys
    import mooactor as moo

    @moo.actor
    class Talks:
        def talk(self, lines, path):
            for number in range(lines):
                print(number, "x" * 990)
            open(path, "w").close()

    @moo.actor
    class Dies:
        def ping(self): return os.getpid()

    def answer(text):
        os.write(int(sys.argv[1]), text.encode() + b"\\n")

    with moo.init():
        talks = moo.spawn(Talks)
        talks.talk.tell({lines}, "done")
        answer("ready")
        for line in sys.stdin:
            dies = moo.spawn(Dies)
            ref = dies.ping.remote()
            os.kill(ref.get(), signal.SIGKILL)
            while not dies.ping.remote().exception():
                pass
            answer("died")
"""


class Program:
    """One that prints to `out`, whose other end is `read`."""

    def __init__(self, folder: Path, out: int, lines: int = LINES) -> None:
        path = programs.write(folder / "main.py", SCRIPT.format(lines=lines))
        self.done = folder / "done"
        answers, theirs = os.pipe()
        self.answers = open(answers)
        self.process = subprocess.Popen(
            [sys.executable, str(path), str(theirs)],
            stdin=subprocess.PIPE,
            stdout=out,
            pass_fds=(theirs,),
            cwd=folder,
            text=True,
        )
        os.close(theirs)
        os.close(out)
        assert self.answers.readline() == "ready\n"
        self.agent = Process.of(self.process.pid).descendants()[0]

    def spawns_and_hears_of_deaths(self) -> bool:
        assert self.process.stdin is not None
        self.process.stdin.write("again\n")
        self.process.stdin.flush()
        return self.answers.readline() == "died\n"

    def end(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            assert self.process.stdin is not None
            self.process.stdin.close()
        self.process.wait(40)

    def close(self) -> None:
        self.process.kill()
        self.end()
        self.answers.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The reading and the writing end; who writes closes its own."""
    read, write = os.pipe()
    yield read, write
    with contextlib.suppress(OSError):
        os.close(read)


def numbers(text: str) -> list[int]:
    """Of the lines that came whole."""
    return [int(n) for n in re.findall(r"\) (\d+) x{990}$", text, re.MULTILINE)]


def count_of_lost(text: str) -> int:
    return sum(
        map(
            int,
            re.findall(
                r"^mooactor: (\d+) lines? of actors (?:is|are) lost", text, re.M
            ),
        )
    )


def test_an_unread_pipe_holds_up_nobody_and_lines_are_counted(
    tmp_path: Path, pipe: tuple[int, int]
) -> None:
    read, write = pipe
    program = Program(tmp_path, write)
    try:
        assert eventually(program.done.exists)  # no actor hangs for it
        assert program.spawns_and_hears_of_deaths()
        reading = open(read, closefd=False)
        first = reading.readline()
        assert program.spawns_and_hears_of_deaths()
        ending = threading.Thread(target=program.end)
        ending.start()
        text = first + reading.read()
        ending.join(40)
    finally:
        program.close()
    found = numbers(text)
    assert found == sorted(found)
    assert found[-1] == LINES - 1
    assert len(found) + count_of_lost(text) == LINES
    assert count_of_lost(text) > 0


@pytest.mark.parametrize("at_once", [1, 300])
def test_what_a_terminal_keeps_is_bounded_and_the_oldest_lines_go(
    pipe: tuple[int, int], at_once: int
) -> None:
    read, write = pipe
    os.set_blocking(read, False)
    loop = EventLoop()
    terminal = Terminal(write, loop, bound=10_000)
    try:
        lines = [b"%06d\n" % number for number in range(20_000)]
        for at in range(0, len(lines), at_once):
            terminal.add(*lines[at : at + at_once])
        assert not terminal.has_room()
        text = b""
        while terminal.waiting:
            text += os.read(read, 1 << 20)
            terminal.flush()
        text += os.read(read, 1 << 20)
        first, said, last = re.split(rb"(mooactor: .*\n)", text)
        missing = count_of_lost(said.decode())
        assert first.splitlines(True) == lines[: first.count(b"\n")]
        assert last.splitlines(True) == lines[-last.count(b"\n") :]
        assert first.count(b"\n") + missing + last.count(b"\n") == len(lines)
        assert len(last) <= 10_000
    finally:
        loop.unwatch(terminal.fd)
        os.close(terminal.fd)
        os.close(write)
