# SPDX-License-Identifier: MIT
"""The program that a launcher sends to a host: it starts a program there, and ends it.

It arrives on the stdin of a bare interpreter, over ssh or from this machine, so it uses
nothing but the standard library. A line of JSON follows, the order, and then a line for
each signal to pass on. The end of stdin is the end of the launcher, or its wish: the
program gets SIGTERM, and SIGKILL after a grace. An order may name a silence after which
the launcher counts as gone, too: sshd does not notice that a network is cut.

The program has stdout and stderr of this process, and a session of its own, except in
the foreground of the launcher's terminal. This process adopts what the program leaves
behind, and kills it. The key lies in a memory file of this process, whose path the
program finds in MOOACTOR_KEY_FILE: only this user can open it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any, NoReturn

FAILED = "mooactor starter: "  # begins the line on stderr that says what is missing
# One line, for the shell of any user and for any Python; Python 2 has no -P. Files
# of the working directory, such as the user's own json.py, are imported by nobody here.
ORDER_ON_STDIN = (
    "import sys; sys.path[:] = [entry for entry in sys.path if entry]; "
    "sys.version_info < (3, 11) and (sys.stderr.write("
    f'"{FAILED}" + sys.executable + " is Python " + sys.version.split()[0] + '
    '", and mooactor needs 3.11 or newer: name another interpreter with --python"'
    "), sys.exit(2)); "
    "exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"
)
GRACE_S = 1.5  # from SIGTERM to SIGKILL, if the launcher names no other
_KILLING_S, _LOOK_S = 1.0, 0.005  # what is killed may leave children of its own
_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
# They end by themselves: agents and janitors, which remove a session's files. A shared
# connection of ssh's (ControlPersist) has other users.
_SPARED = re.compile(rb"^moo-(agent|janitor)\n|mooactor\.host\.agent|\nssh: .*\[mux\]")


def main() -> None:
    """Obey the order on stdin; exit as the program does, with 128 + N after signal N,
    or with 2 if it could not be started."""
    order = json.loads(sys.stdin.buffer.readline())
    code = run(order, *prepare(order))
    os._exit(code if code >= 0 else 128 - code)  # a thread still reads stdin


def refuse(why: str) -> NoReturn:
    """Something that the program needs is not on this host."""
    print(f"{FAILED}{why}", file=sys.stderr)
    sys.exit(2)


def prepare(order: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Enter the program's directory, and look for what it needs. Its words, and its
    environment."""
    try:
        os.chdir(order["cwd"])
    except OSError as error:
        refuse(
            f"the directory {order['cwd']} cannot be entered ({error.strerror}): make "
            "it there, copy it with --sync, or name another with --cwd"
        )
    script = order["script"]
    if script and not os.path.isfile(script):
        refuse(
            f"there is no script {script} in {os.getcwd()}: copy it there, or use "
            "--sync"
        )
    # ssh's client has the launcher's address as this host sees it.
    address = order["address"] or os.environ.get("SSH_CONNECTION", "").partition(" ")[0]
    if not address:
        refuse(
            "its sshd does not tell the address of the launching machine "
            "(SSH_CONNECTION): name that with --address"
        )
    address = f"[{address}]" if ":" in address else address
    words = [word.replace("{ADDRESS}", address) for word in order["words"]]
    values = {
        name: v.replace("{ADDRESS}", address) for name, v in order["values"].items()
    }
    environment = {**os.environ, **order["variables"], **values}
    environment.pop("MOOACTOR_KEY", None)
    file = os.memfd_create("mooactor-key")
    os.fchmod(file, 0o600)
    os.write(file, order["key"].encode() + b"\n")
    environment["MOOACTOR_KEY_FILE"] = f"/proc/{os.getpid()}/fd/{file}"
    return [sys.executable, *words, *order["arguments"]], environment


def run(order: dict[str, Any], words: list[str], environment: dict[str, str]) -> int:
    """Start the program, and pass on to it what stdin says, until it has ended. Its
    exit code, -N after signal N."""
    libc, me, strangers = ctypes.CDLL(None), os.getpid(), children()
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # The launcher says what becomes of the program. Others signal this process beside
    # the program itself: a terminal, a batch system. No handler outlives an exec.
    for number in _SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: None)

    def die_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != me:
            os._exit(1)

    program = subprocess.Popen(
        words,
        stdin=order["stdin"] or subprocess.DEVNULL,
        env=environment,
        preexec_fn=die_with_parent,
        start_new_session=not order["foreground"],
    )
    kill = os.kill if order["foreground"] else os.killpg

    def end(grace_s: float = GRACE_S) -> None:
        with contextlib.suppress(OSError):
            os.kill(program.pid, signal.SIGTERM)
            time.sleep(grace_s)
            kill(program.pid, signal.SIGKILL)

    def obey() -> None:
        grace_s = GRACE_S
        with contextlib.suppress(ValueError, OSError):
            for line in sys.stdin.buffer:
                signal.setitimer(signal.ITIMER_REAL, order["silence_s"])
                told = json.loads(line)
                grace_s = told.get("grace_s", grace_s)
                if "signal" in told:
                    os.kill(program.pid, told["signal"])
        end(grace_s)

    signal.signal(signal.SIGALRM, lambda *_: end())
    signal.setitimer(signal.ITIMER_REAL, order["silence_s"])
    threading.Thread(target=obey, daemon=True).start()
    while True:  # orphans that end meanwhile are reaped
        pid, status = os.wait()
        if pid == program.pid:
            break
    signal.setitimer(signal.ITIMER_REAL, 0)
    if not order["foreground"]:
        with contextlib.suppress(OSError):
            os.killpg(program.pid, signal.SIGKILL)
    kill_orphans(strangers)
    return os.waitstatus_to_exitcode(status)


def kill_orphans(strangers: set[int]) -> None:
    """Kill the children of this process, and those that become its own thereby; but no
    `strangers`, nor those that end by themselves. It takes a second at most."""
    latest = time.monotonic() + _KILLING_S
    while time.monotonic() < latest:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        orphans = [pid for pid in children() - strangers if not _is_spared(pid)]
        if not orphans:
            return
        for pid in orphans:
            with contextlib.suppress(OSError):  # another user's
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)


def children() -> set[int]:
    """The pids of this process's children: the only thread that has some is the first.
    A shell that has become this process may have left it some."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return set(map(int, file.read().split()))


def _is_spared(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/comm", "rb") as name:
            with open(f"/proc/{pid}/cmdline", "rb") as words:
                return bool(_SPARED.search(name.read() + words.read()))
    except OSError:
        return False


if __name__ == "__main__":
    main()
