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
from mooactor.process.actor import breakpoints
from tests.conftest import eventually, running_session


@actor
class Buggy:
    """Stops where tests attach."""

    def add(self, a: int, b: int) -> int:
        total = a + b
        breakpoint()
        total += 1000
        return total

    def loop(self, n: int) -> int:
        done = 0
        for _ in range(n):
            breakpoint()
            done += 1
        return done

    def pid(self) -> int:
        return os.getpid()

    def debugger(self) -> bool:
        return sys.gettrace() is not None


@actor
class AsyncBuggy:
    """The same on a loop, and in a thread beside it."""

    async def add(self, a: int, b: int) -> int:
        total = a + b
        breakpoint()
        return total

    def sub(self, a: int, b: int) -> int:
        rest = a - b
        breakpoint()
        return rest


@actor
class BornBuggy:
    """Stops in its constructor."""

    def __init__(self) -> None:
        self.x = 1
        breakpoint()
        self.y = self.x + 1

    def read(self) -> int:
        return self.y


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
    found = breakpoints.stopped().items()
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


def test_a_step_runs_one_line(spawn: Any, attach: Any) -> None:
    ref = spawn(Buggy).add.remote(1, 2)
    client = attach()
    text = client.until_prompt()
    if "breakpoint()" in text:  # later Pythons stop there, earlier ones behind it
        text = client.ask("n")
    assert "total += 1000" in text
    assert "return total" in client.ask("n")
    assert client.ask("p total") == "1003\n(Pdb) "
    client.end("c")
    assert ref.get() == 1003


@pytest.mark.parametrize("end", ["q", "exit", "disconnect"])
def test_leaving_the_debugger_lets_the_method_go_on(
    spawn: Any, attach: Any, end: str
) -> None:
    buggy = spawn(Buggy)
    ref = buggy.add.remote(1, 2)
    client = attach()
    client.until_prompt()
    if end == "disconnect":
        client.close()
    else:
        client.end(end)
    assert ref.get() == 1003
    assert buggy.debugger() is False


def test_each_breakpoint_waits_for_its_terminal(spawn: Any, attach: Any) -> None:
    ref = spawn(Buggy).loop.remote(3)
    for i in range(3):
        client = attach()
        client.until_prompt()
        assert client.ask("p done") == f"{i}\n(Pdb) "
        client.end("c")
    assert ref.get() == 3


def test_a_breakpoint_of_the_debuggers_own_keeps_the_terminal(
    spawn: Any, attach: Any
) -> None:
    buggy = spawn(Buggy)
    ref = buggy.add.remote(1, 2)
    client = attach()
    client.until_prompt()
    line = Buggy.add.__code__.co_firstlineno + 4
    assert "Breakpoint 1" in client.ask(f"b {line}")
    assert "return total" in client.ask("c")
    client.ask("clear 1")
    client.ask("n")
    assert client.ask("p total") == "1003\n(Pdb) "
    client.end("c")
    assert ref.get() == 1003


@pytest.mark.parametrize("name", ["add", "sub"])
def test_methods_on_a_loop_and_beside_it_stop_too(
    spawn: Any, attach: Any, name: str
) -> None:
    ref = getattr(spawn(AsyncBuggy), name).remote(7, 2)
    client = attach()
    client.until_prompt()
    assert client.ask("p a, b") == "(7, 2)\n(Pdb) "
    client.end("c")
    assert ref.get() == {"add": 9, "sub": 5}[name]


def test_a_constructor_stops_too(spawn: Any, attach: Any) -> None:
    born = spawn(BornBuggy)
    client = attach()
    client.until_prompt()
    client.ask("!self.x = 41")
    client.end("c")
    assert born.read() == 42


def test_only_the_owner_can_attach(spawn: Any, attach: Any) -> None:
    ref = spawn(Buggy).add.remote(1, 2)
    assert eventually(stopped, 30)
    ((_, path),) = stopped().items()
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    attach().end("c")
    assert ref.get() == 1003


def test_an_actor_that_is_stopped_is_killed_at_once(spawn: Any) -> None:
    buggy = spawn(Buggy)
    ref = buggy.add.remote(1, 2)
    assert eventually(stopped, 30)
    moo.kill(buggy)
    with pytest.raises(moo.ActorDied):
        ref.get()
    assert stopped() == {}


def test_the_command_attaches(spawn: Any) -> None:
    buggy = spawn(Buggy)
    pid = buggy.pid()
    ref = buggy.add.remote(1, 2)
    assert eventually(lambda: pid in stopped(), 30)
    command = [sys.executable, "-m", "mooactor", "attach", str(pid)]
    done = subprocess.run(
        command, input="p total * 100\nc\n", capture_output=True, text=True, timeout=40
    )
    assert done.returncode == 0, done.stderr
    assert "(Pdb) 300\n" in done.stdout
    assert ref.get() == 1003


def test_the_command_says_what_it_cannot_attach_to(session: Any) -> None:
    command = [sys.executable, "-m", "mooactor", "attach"]
    for more, story in (([], "no process is stopped"), (["1"], "1 is not stopped")):
        done = subprocess.run(
            [*command, *more], capture_output=True, text=True, timeout=40
        )
        assert done.returncode == 2
        assert story in done.stderr and "debug=True" in done.stderr


PROGRAM = """
import mooactor as moo

@moo.actor
class Buggy:
    def add(self, a, b):
        for _ in range(2):
            breakpoint()
        return a + b

def main():
    with moo.init(%s):
        print(moo.spawn(Buggy).add(1, 2))

if __name__ == "__main__":
    main()
"""


def run(tmp_path: Path, init: str, **environment: str) -> subprocess.Popen[str]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM % init)
    root = str(Path(__file__).parents[2])
    variables = {**os.environ, "PYTHONPATH": root, **environment}
    return subprocess.Popen(
        [sys.executable, str(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=variables,
    )


@pytest.mark.parametrize(
    ("init", "variable"), [("", ""), ("debug=False", "1"), ("debug=None", "0")]
)
def test_without_debug_a_breakpoint_is_passed_over_with_a_sentence(
    tmp_path: Path, init: str, variable: str
) -> None:
    program = run(tmp_path, init, MOOACTOR_DEBUG=variable)
    out, err = program.communicate(timeout=50)
    assert out.strip() == "3" and program.returncode == 0
    (line,) = [line for line in err.splitlines() if "breakpoint()" in line]  # once
    assert "was skipped" in line and "moo.init(debug=True)" in line
    assert "BdbQuit" not in err


def test_the_variable_and_the_message_lead_to_the_debugger(tmp_path: Path) -> None:
    program = run(tmp_path, "", MOOACTOR_DEBUG="1")
    assert program.stderr is not None
    for _ in range(2):
        line = program.stderr.readline()
        found = re.search(
            r"is stopped at .*program\.py:\d+; .*(mooactor attach \d+)", line
        )
        assert found, line
        command = [sys.executable, "-m", *found[1].split()]
        done = subprocess.run(command, input="c\n", text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
    out, err = program.communicate(timeout=50)
    assert out.strip() == "3", err
