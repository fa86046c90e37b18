# SPDX-License-Identifier: MIT
"""The program that a launcher sends to a host."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mooactor import __version__
from mooactor.cluster.launch import starter
from mooactor.control import envelope, frames
from tests.cluster.launched import ROOT
from tests.conftest import eventually
from tests.processes import Process

TEXT = Path(starter.__file__).read_bytes()
KEY = "3c" * 32
WIRE = f"{envelope.VERSION}.{frames.WIRE}"


class Sent:
    """A starter that was sent with an order."""

    def __init__(
        self,
        program: str,
        text: bytes = TEXT,
        stderr: int | None = None,
        **more: Any,
    ) -> None:
        order = {
            "words": ["{PYTHON}", "-c", program],
            "arguments": [],
            "environment": {"WHERE": "tcp://{ADDRESS}:1"},
            "address": "10.0.0.5",
            "key": KEY,
            "cwd": "/",
            "path": [str(ROOT)],
            "version": __version__,
            "wire": WIRE,
            **more,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", starter.ORDER_ON_STDIN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={k: v for k, v in os.environ.items() if k != "SSH_CONNECTION"},
        )
        self.tell(b"%d\n%s" % (len(text), text) + json.dumps(order).encode() + b"\n")

    def tell(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode()

    def end(self) -> int:
        """Close its stdin; its exit code."""
        self.process.communicate()
        return self.process.returncode


WAITING = "import os, time; print(os.getpid(), flush=True); time.sleep(1000)"
# Exits with 0 when it is told to end, as a host does.
TOLD = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit(0)); " + WAITING
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAITING


def test_the_program_has_the_key_and_the_address_and_no_stdin() -> None:
    sent = Sent(
        "import os, sys; print(open(os.environ['MOOACTOR_KEY_FILE']).read().strip(),"
        "os.environ['WHERE'], repr(sys.stdin.read()), flush=True)"
    )
    assert sent.line() == f"{KEY} tcp://10.0.0.5:1 ''\n"
    assert eventually(lambda: sent.process.poll() is not None)
    assert sent.end() == 0


@pytest.mark.parametrize(("program", "code"), [(WAITING, 143), (STUBBORN, 137)])
def test_the_end_of_stdin_ends_the_program(program: str, code: int) -> None:
    sent = Sent(program)
    pid = Process.of(int(sent.line()))
    sent.tell(b'{"grace_s": 0.1}\n')
    assert sent.end() == code
    assert not pid.is_running()


def test_variables_of_the_user_are_taken_as_they_are() -> None:
    given = {"A": "{PYTHON} $HOME", "WHERE": "mine", "PYTHONPATH": "/more"}
    sent = Sent(
        "import os; print(os.environ['A'], os.environ['WHERE'],"
        "os.environ['PYTHONPATH'], flush=True)",
        variables=given,
    )
    expected = f"{{PYTHON}} $HOME tcp://10.0.0.5:1 {ROOT}:/more\n"
    assert sent.line() == expected
    assert sent.process.wait(20) == 0
    sent.end()


def test_arguments_of_the_user_are_taken_as_they_are() -> None:
    given = ["{PYTHON}", "tcp://{ADDRESS}:1", "{OUT}"]
    sent = Sent("import sys; print(*sys.argv[1:], flush=True)", arguments=given)
    assert sent.line() == " ".join(given) + "\n"
    assert sent.process.wait(20) == 0
    sent.end()


def test_signals_are_passed_on_as_they_are_told() -> None:
    sent = Sent(
        "import signal, time; signal.signal(signal.SIGINT, lambda *_: exit(9)); "
        "print(flush=True); time.sleep(1000)"
    )
    sent.line()
    sent.tell(b'{"signal": 2}\n')
    assert eventually(lambda: sent.process.poll() is not None)
    assert sent.end() == 9


def test_a_starter_outlives_the_notice_of_a_batch_system() -> None:
    sent = Sent(TOLD)
    sent.line()
    # Its threads start once it takes signals.
    tasks = Path(f"/proc/{sent.process.pid}/task")
    assert eventually(lambda: len(os.listdir(tasks)) == 3)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        sent.process.send_signal(number)
    assert sent.end() == 0


def test_a_program_does_not_outlive_its_starter() -> None:
    sent = Sent(WAITING)
    pid = Process.of(int(sent.line()))
    sent.process.kill()
    sent.end()
    assert eventually(lambda: not pid.is_running())


# Starts daemons with these names, or these command lines.
LEAVES = """
import ctypes, os, sys, time
for name in sys.argv[1:]:
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(write, b"%d" % os.getpid())
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody waits for its end
            if ":" in name:
                silent, held = os.pipe()
                os.dup2(silent, 0)
                os.set_inheritable(held, True)
                os.execvp("cat", [name])
            ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)
            time.sleep(600)
        os._exit(0)
    os.wait()
    pid = int(os.read(read, 9))
    of = "cmdline" if ":" in name else "comm"
    while not open(f"/proc/{pid}/{of}").read().startswith(name):
        time.sleep(0.001)
    print(pid, end=" ")
print(flush=True)
raise SystemExit(3)
"""


def test_what_the_users_program_leaves_ends_but_for_what_ends_by_itself() -> None:
    names = ["moo-agent", "moo-janitor", "ssh: /a [mux]", "moo-actor", "ssh: /a b"]
    sent = Sent(LEAVES, arguments=names, host="b")
    pids = list(map(int, sent.line().split()))
    left = []
    try:
        assert sent.process.wait(20) == 3
        left = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
        assert left == pids[:3]
    finally:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        sent.end()


def test_what_a_host_leaves_is_its_own_affair() -> None:
    sent = Sent(LEAVES, arguments=["moo-actor"])
    pid = int(sent.line())
    assert sent.process.wait(20) == 3
    os.kill(pid, signal.SIGKILL)  # it is there
    sent.end()


def test_a_silent_launcher_counts_as_gone() -> None:
    short = re.sub(rb"SILENCE_S = [\d.]+", b"SILENCE_S = 1.0", TEXT)
    assert short != TEXT
    sent = Sent(TOLD, short)
    pid = Process.of(int(sent.line()))
    assert eventually(lambda: not pid.is_running())  # its stdin is still open
    assert sent.end() == starter.UNHEARD


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"cwd": "/no/place"}, "the directory /no/place cannot be entered"),
        (
            {"version": "7", "wire": "1.1"},
            f"has mooactor {__version__}, and the launching machine has 7, which speak "
            f"versions {WIRE} and 1.1 of the wire: install the same mooactor on both",
        ),
        ({"script": "a.py"}, "there is no script a.py in /: copy it there"),
        ({"address": None}, "name that with --address"),
    ],
)
def test_what_is_missing_is_said_before_anything_starts(
    more: dict[str, Any], said: str
) -> None:
    sent = Sent("print('never')", **more)
    line = sent.line()
    assert line.startswith(starter.FAILED) and said in line
    assert sent.end() == 2


def test_what_mooactor_needs_may_lie_where_the_user_says(tmp_path: Path) -> None:
    """The path that the program has is the one in which it is sought."""
    package = tmp_path / "zmq"
    package.mkdir()
    (package / "__init__.py").touch()
    text = (
        b"def _is_there(module):\n    found = importlib.util.find_spec(module)\n"
        b"    return found.origin.startswith(%a) or module != 'zmq'\n\ndef wire_of"
    ) % str(tmp_path)
    given = {"PYTHONPATH": f"/no/place:{tmp_path}"}
    text = TEXT.replace(b"def wire_of", text)
    sent = Sent("print('runs')", text, variables=given)
    assert sent.line() == "runs\n"
    assert sent.process.wait(20) == 0
    sent.end()


def test_another_version_of_the_same_wire_is_named_and_serves() -> None:
    sent = Sent("print('runs')", version="7", stderr=subprocess.PIPE)
    assert sent.line() == "runs\n"
    assert sent.process.wait(20) == 0
    _, said = sent.process.communicate()
    named = f"has mooactor {__version__}, and the launching machine has 7; both speak"
    assert said.decode().startswith("mooactor: ") and named in said.decode()


@pytest.mark.parametrize(
    ("lacks", "named"),
    [
        (["zmq"], "pyzmq"),
        (["cffi", "cloudpickle", "numpy"], "cffi and cloudpickle and numpy"),
    ],
)
def test_what_mooactor_lacks_is_named(lacks: list[str], named: str) -> None:
    text = b"_is_there = lambda module: module not in %a\n\ndef wire_of" % lacks
    sent = Sent("print('never')", TEXT.replace(b"def wire_of", text))
    line = sent.line()
    assert sent.end() == 2
    assert line == (
        f"{starter.FAILED}{sys.executable} has mooactor, but not {named}, which "
        "mooactor needs: install that there, or name another interpreter with "
        "--python\n"
    )


def test_the_wire_is_found_without_an_import(tmp_path: Path) -> None:
    assert starter.wire_of(str(ROOT / "mooactor")) == WIRE
    assert starter.wire_of(str(tmp_path)) == "unknown"


def test_an_interpreter_that_is_too_old_is_named() -> None:
    line = starter.ORDER_ON_STDIN.replace("(3, 11)", "(9, 9)")
    done = subprocess.run([sys.executable, "-c", line], stdout=subprocess.PIPE)
    assert done.returncode == 2
    said = done.stdout.decode()
    assert said.startswith(f"{starter.FAILED}{sys.executable} is Python 3.")
    assert "--python" in said and "\n" not in line and "'" not in line
