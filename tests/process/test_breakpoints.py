# SPDX-License-Identifier: MIT
"""`breakpoint` in an actor: a debugger over a private socket, or a sentence."""

from __future__ import annotations

import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor import actor
from mooactor.process.actor import debugger
from tests.conftest import eventually, running_session
from tests.process import programs


@actor
class Buggy:
    """Stops where tests attach."""

    def add(self, a: int, b: int) -> int:
        total = a + b
        breakpoint()
        total += 1000
        return total

    def pid(self) -> int:
        return os.getpid()

    def debugger(self) -> bool:
        return sys.gettrace() is not None


class Client:
    """A terminal, as ``mooactor attach`` is one: lines in, text out."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(30)
        self._socket.connect(path)

    def until_prompt(self) -> str:
        text = ""
        while not text.endswith("(Pdb) "):
            data = self._socket.recv(4096).decode()
            assert data, f"the debugger hung up after {text!r}"
            text += data
        return text

    def ask(self, line: str) -> str:
        self._socket.sendall(f"{line}\n".encode())
        return self.until_prompt()

    def end(self, line: str) -> None:
        """The debugger hangs up on this command."""
        self._socket.sendall(f"{line}\n".encode())
        while self._socket.recv(4096):
            pass
        self.close()

    def close(self) -> None:
        self._socket.close()


def stopped() -> dict[int, str]:
    """Our own; somebody may be debugging beside these tests."""
    ours = tempfile.gettempdir()
    found = debugger.stopped().items()
    return {pid: path for pid, path in found if path.startswith(ours)}


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with running_session(debug=True) as running:
        yield running


@pytest.fixture
def attach(session: Any) -> Callable[[], Client]:
    def attach() -> Client:
        assert eventually(stopped, 30)
        ((_, path),) = stopped().items()
        return Client(path)

    return attach


def test_a_method_stops_and_goes_on(spawn: Any, attach: Any) -> None:
    buggy = spawn(Buggy)
    ref = buggy.add.remote(1, 2)
    client = attach()
    text = client.until_prompt()
    assert re.match(r"Buggy \(process \d+\)\n> .*test_breakpoints\.py", text)
    assert client.ask("p total") == "3\n(Pdb) "
    assert client.ask("p nonsense").startswith("*** NameError")
    assert "total += 1000" in client.ask("l")
    client.ask("!total = 39")
    assert not ref.done()
    client.end("c")
    assert ref.get() == 1039
    assert buggy.debugger() is False  # nothing of it stays
    assert stopped() == {}

    # A step runs one line, and a breakpoint of the debugger's own keeps the terminal.
    ref = buggy.add.remote(1, 2)
    client = attach()
    text = client.until_prompt()
    line = Buggy.add.__code__.co_firstlineno + 4
    assert "Breakpoint 1" in client.ask(f"b {line}")
    if "breakpoint()" in text:  # later Pythons stop there, earlier ones behind it
        text = client.ask("n")
    assert "total += 1000" in text
    assert "return total" in client.ask("c")
    client.ask("clear 1")
    assert client.ask("p total") == "1003\n(Pdb) "
    client.end("c")
    assert ref.get() == 1003


def test_only_the_owner_can_attach_and_a_kill_needs_nobody_to(spawn: Any) -> None:
    buggy = spawn(Buggy)
    ref = buggy.add.remote(1, 2)
    assert eventually(stopped, 30)
    ((_, path),) = stopped().items()
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    moo.kill(buggy)
    with pytest.raises(moo.ActorDied):
        ref.get()
    assert stopped() == {}


def attach_command(*words: str, said: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mooactor", "attach", *words]
    return subprocess.run(
        command, input=said, capture_output=True, text=True, timeout=40
    )


def test_the_command_attaches_or_says_what_it_cannot_attach_to(spawn: Any) -> None:
    for more, story in (([], "no process is stopped"), (["1"], "1 is not stopped")):
        done = attach_command(*more)
        assert done.returncode == 2
        assert story in done.stderr and "debug=True" in done.stderr
    buggy = spawn(Buggy)
    pid = buggy.pid()
    ref = buggy.add.remote(1, 2)
    assert eventually(lambda: pid in stopped(), 30)
    done = attach_command(str(pid), said="p total * 100\nc\n")
    assert done.returncode == 0, done.stderr
    assert "(Pdb) 300\n" in done.stdout
    assert ref.get() == 1003


PROGRAM = """
import os
import mooactor as moo

@moo.actor
class Buggy:
    def add(self, a, b):
        for _ in range(2):
            breakpoint()
        return a + b

if __name__ == "__main__":
    for options, variable in (
        ({}, ""), ({"debug": False}, "1"), ({}, "1")
    ):
        os.environ["MOOACTOR_DEBUG"] = variable
        with moo.init(**options):
            print(moo.spawn(Buggy).add(1, 2), flush=True)
"""


def test_without_debug_it_is_passed_over_with_a_sentence_and_the_variable_asks_for_it(
    tmp_path: Path,
) -> None:
    path = programs.write(tmp_path / "program.py", PROGRAM)
    with programs.start(path) as program:
        assert program.stderr is not None
        for _ in range(2):
            line = program.stderr.readline()  # once for each actor
            assert "was skipped" in line and "moo.init(debug=True)" in line, line
        for _ in range(2):
            line = program.stderr.readline()
            stop = r"is stopped at .*program\.py:\d+; .*mooactor attach (\d+)"
            found = re.search(stop, line)
            assert found, line
            done = attach_command(found[1], said="c\n")
            assert done.returncode == 0, done.stderr
        out, err = program.communicate(timeout=50)
    assert (out.split(), program.returncode) == (["3"] * 3, 0), err
    assert "BdbQuit" not in err
