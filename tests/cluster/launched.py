# SPDX-License-Identifier: MIT
"""``mooactor run`` as a process, for tests."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.conftest import eventually
from tests.processes import Process

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 100.0
_COMMAND = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from mooactor import cli; raise SystemExit(cli.main())"
)
MOOACTOR = [sys.executable, "-P", "-c", _COMMAND, str(ROOT)]
# Text of programs. `report` prints what one has been given; `shown`: where its key can
# be read by others.
REPORT = """
import glob, json, os, signal, stat, sys
def seen(path, key):
    try:
        return key.encode() in open(path, "rb").read()
    except OSError:
        return False
def report(**more):
    file = os.environ["MOOACTOR_KEY_FILE"]
    key, found = open(file).read().strip(), os.stat(file)
    paths = glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/environ")
    print(json.dumps({
        "address": os.environ["MOOACTOR_ADDRESS"],
        "host": os.environ["MOOACTOR_HOST_NAME"],
        "key": key,
        "mode": stat.S_IMODE(found.st_mode),
        "owned": found.st_uid == os.getuid(),
        "shown": [path for path in paths if seen(path, key)],
        "argv": sys.argv,
        "cwd": os.getcwd(),
        "ssh": "SSH_CONNECTION" in os.environ,
        **more,
    }), flush=True)
"""
# It leaves a child in a session of its own, and daemons. All have its outputs.
LEAVES = """
import os, signal, subprocess
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
def daemon(*words):
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(write, b"%d" % os.getpid())
            os.execvp(words[0], words)
        os._exit(0)
    os.wait()
    return int(os.read(read, 9))
"""
# It waits for Ctrl-C, and acts on it.
PATIENT = """
import os, signal
try:
    print("up", os.getpid(), flush=True)
    while True:
        signal.pause()
except KeyboardInterrupt:
    print("saved", flush=True)
    raise SystemExit(5)
"""


class Launched:
    """A launch that runs. Its output goes to files, so that nothing waits for it."""

    def __init__(
        self,
        words: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str] = os.environ,
        on: Sequence[str] = (),
        stdout: int | None = None,
    ) -> None:
        """`stdout`: where to, if it is no file."""
        environment = {**environment, "PYTHONPATH": str(ROOT)}
        self._out, self._err = cwd / "stdout", cwd / "stderr"
        # Tests that run under nohup ignore this one, and so would all that they start.
        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*on, *MOOACTOR, "run", *words],
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out if stdout is None else stdout,
                stderr=err,
                process_group=0,
            )
        signal.signal(signal.SIGHUP, before)

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def descendants(self) -> list[Process]:
        """The processes that it has started here."""
        return Process.of(self.process.pid).descendants()

    def says(self, text: str) -> bool:
        """Wait until its program has printed this, or it has ended."""
        eventually(lambda: text in self.out or self.process.poll() is not None, 90)
        return text in self.out

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = TIMEOUT_S) -> int:
        """Wait for it; its exit code."""
        try:
            return self.process.wait(seconds)
        finally:
            if self.process.returncode is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()

    def close(self) -> None:
        """Kill it, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def failure(run: Launched) -> str:
    """The one sentence of a launch that never ran its program."""
    assert run.end() == 2, run.err
    assert run.out == ""
    (line,) = (t for t in run.err.splitlines() if t.startswith("mooactor run: "))
    return line.removeprefix("mooactor run: ")


class Terminal:
    """A terminal of its own, with a program in its foreground."""

    def __init__(
        self, words: Sequence[str], cwd: Path, environment: Mapping[str, str]
    ) -> None:
        self._master, slave = pty.openpty()
        os.set_blocking(self._master, False)
        self.text = ""
        # The shell takes the terminal over when it opens its name.
        take = ["sh", "-c", 'exec "$@" 0<>"$0" 1>&0 2>&0', os.ttyname(slave)]
        self.process = subprocess.Popen(
            [*take, *words], cwd=cwd, env=environment, start_new_session=True
        )
        os.close(slave)

    def wait_for(self, text: str) -> None:
        """Until the program has printed this."""
        assert eventually(lambda: text in self._read(), 60), self.text

    def _read(self) -> str:
        try:
            self.text += os.read(self._master, 1 << 16).decode()
        except OSError:
            pass  # nothing there, or nobody
        return self.text

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._master)
