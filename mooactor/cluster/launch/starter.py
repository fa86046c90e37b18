# SPDX-License-Identifier: MIT
"""The program that a launcher sends to a host: it starts a program there, and ends it.

It arrives on the stdin of a bare interpreter, over ssh or from this machine, so it uses
nothing but the standard library. After it come a line of JSON, the order, and for as
long as the launcher lives a line for each signal that it passes on. The end of stdin is
the end of the launcher, or its wish: the program is ended, by force after a grace.

The key comes with the order. It lies in a memory file of this process, whose path the
program finds in MOOACTOR_KEY_FILE: only this user can open it, and it is gone when this
process is.

If the program is the user's, what it leaves behind ends with it, also in a session of
its own: this process adopts its orphans. A `mooactor host` does so itself.

A launcher that is silent for a minute counts as gone: it says something each ten
seconds. The exit code is `UNHEARD` then, whatever that of the program: it was not told
to end, and a launcher that was only stopped starts it again.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from typing import Any

FAILED = "mooactor starter: "  # begins the line on stdout that says what is missing
# What the interpreter is started with, on one line for the shell of any user; even
# Python 2 can read it, which has no -P. What lies in the working directory does not
# take the place of modules: the user's own json.py, say.
ORDER_ON_STDIN = (
    "import sys; sys.path[:] = [entry for entry in sys.path if entry]; "
    "sys.version_info < (3, 11) and (sys.stdout.write("
    f'"{FAILED}" + sys.executable + " is Python " + sys.version.split()[0] + '
    '", and mooactor needs 3.11 or newer: name another interpreter with --python"'
    "), sys.stdout.flush(), sys.exit(2)); "
    "exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"
)
GRACE_S = 1.5  # from SIGTERM to SIGKILL, if the launcher names no other
BEAT_S = 10.0  # between lines of a launcher that has nothing to say
SILENCE_S = 60.0  # without one, its machine or the network is gone; sshd may not know
UNHEARD = 121  # the exit code of a starter that nobody talks to any more
# What mooactor cannot be imported without, and the names under which it is installed.
_NEEDED = {m: m for m in ("cffi", "cloudpickle", "numpy")} | {"zmq": "pyzmq"}
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILLING_S, _LOOK_S = 1.0, 0.005  # what was killed may leave children of its own
# What ends by itself. A session's agent and its janitor remove the session's files; a
# shared connection of ssh's (ControlPersist) is the user's, and has other users.
_SPARED_NAMES = (b"moo-agent\n", b"moo-janitor\n")
_SPARED = re.compile(rb"mooactor\.host\.agent|^ssh: .*\[mux\]\0*$")  # command lines


class Missing(Exception):
    """Something that the program needs is not on this host."""


def main() -> None:
    """Obey the order on stdin; exit as the program does."""
    order: dict[str, Any] = {}
    try:
        order = read_order(sys.stdin.buffer.readline())
        words, environment = prepare(order)
    except Missing as missing:
        if "host" in order:  # the launcher reads neither stdout nor stderr
            print(f"mooactor run: host {order['host']}: {missing}", file=sys.stderr)
        else:
            print(f"{FAILED}{missing}", flush=True)
        sys.exit(2)
    code = Started(words, environment, adopts="host" in order).wait()
    sys.stdout.flush()
    os._exit(code)  # a thread still reads stdin, which an orderly exit stumbles over


_ORDER: dict[str, tuple[type, ...]] = {
    "cwd": (str,),
    "path": (list,),
    "version": (str,),
    "wire": (str,),
    "address": (str, type(None)),
    "words": (list,),
    "arguments": (list,),
    "environment": (dict,),
    "key": (str,),
}


def read_order(line: bytes) -> dict[str, Any]:
    """The launcher's order, with the types that `prepare` expects.

    Raises:
      Missing: the line is none.
    """
    order = _read(line)
    fields = {**_ORDER, **{key: (str,) for key in ("script", "host") if order.get(key)}}
    for key, kinds in fields.items():
        if type(order.get(key, ())) not in kinds:
            raise Missing(f"the launcher's order is malformed: no {key}")
    texts = [*order["path"], *order["words"], *order["arguments"]]
    texts += [
        *order["environment"].values(),
        *order["environment"],
        order["key"],
        order["address"] or "",
    ]
    texts += [order["cwd"], order["version"], order["wire"], order.get("script") or ""]
    if not order["words"] or not all(map(_is_text, texts)):
        raise Missing("the launcher's order is malformed: there is something else")
    return order


def read_word(line: bytes) -> tuple[int | None, float | None]:
    """A later line of the launcher's: the signal to pass on, and the grace.

    Raises:
      Missing: the line is none.
    """
    told = _read(line)
    number, grace_s = told.get("signal"), told.get("grace_s")
    if type(number) not in (int, type(None)) or not 0 < (number or 1) < 65:
        raise Missing(f"there is no signal {number!r:.40}")
    if type(grace_s) not in (int, float, type(None)):
        raise Missing(f"there is no grace of {grace_s!r:.40} s")
    if not 0 <= (grace_s or 0) <= SILENCE_S:
        raise Missing(f"there is no grace of {grace_s} s")
    return number, grace_s


def _read(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if type(found) is not dict:
        raise Missing("the launcher's words are malformed: use one mooactor everywhere")
    return found


def _is_text(value: Any) -> bool:
    """Whether the system takes it as an argument or a path."""
    if type(value) is not str or "\0" in value:
        return False
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return False
    return True


def prepare(order: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The words and the environment of the program, in its directory."""
    try:
        os.chdir(order["cwd"])
    except OSError as error:
        raise Missing(
            f"the directory {order['cwd']} cannot be entered ({error.strerror}): make "
            "it there, copy it with --sync, or name another with --cwd"
        ) from None
    given = order.get("variables", {})  # of the user's: nothing is filled in
    path = [*order["path"], *filter(None, [given.get("PYTHONPATH")])]
    path = os.pathsep.join(path).split(os.pathsep) if path else []
    difference = check_mooactor(path, order["version"], order["wire"])
    if difference and "host" not in order:  # the host's agent has said it already
        print(f"mooactor: {difference}", file=sys.stderr, flush=True)
    script = order.get("script")
    if script and not os.path.isfile(script):
        raise Missing(
            f"there is no script {script} in {os.getcwd()}: copy it there, or use "
            "--sync"
        )
    address = order["address"] or _launcher()
    values = {"ADDRESS": address, "PYTHON": sys.executable}
    words = [_filled(word, values) for word in order["words"]] + order["arguments"]
    more = {name: _filled(text, values) for name, text in order["environment"].items()}
    more["MOOACTOR_KEY_FILE"] = key_file(order["key"])
    if path:
        more["PYTHONPATH"] = os.pathsep.join(path)
    environment = {**os.environ, **given, **more}
    environment.pop("MOOACTOR_KEY", None)
    return words, environment


def _filled(word: str, values: dict[str, str]) -> str:
    """With ADDRESS and PYTHON of this host, which the launcher does not know."""
    return re.sub(r"\{([A-Z]+)\}", lambda found: values.get(found[1], found[0]), word)


def _launcher() -> str:
    """The launcher's address as this host sees it: ssh's client has it."""
    words = os.environ.get("SSH_CONNECTION", "").split()
    if not words:
        raise Missing(
            "its sshd does not tell the address of the launching machine "
            "(SSH_CONNECTION): name that with --address"
        )
    return f"[{words[0]}]" if ":" in words[0] else words[0]


def check_mooactor(path: list[str], version: str, wire: str) -> str:
    """A sentence on the versions if mooactor is another one here, but speaks the same
    wire; else nothing. Nothing of it is imported.

    Raises:
      Missing: there is none, it speaks another version of the wire, or it lacks what it
        needs.
    """
    sys.path[:] = path + [entry for entry in sys.path if entry]
    found = importlib.util.find_spec("mooactor")
    if found is None or found.origin is None:
        raise Missing(
            f"{sys.executable} has no mooactor: install it there, or name another "
            "interpreter with --python"
        )
    folder = os.path.dirname(found.origin)
    here = _constant(found.origin, "__version__") or "of an unknown version"
    wire_here = wire_of(folder)
    both = (
        f"{sys.executable} has mooactor {here}, and the launching machine has {version}"
    )
    if wire_here != wire:
        raise Missing(
            f"{both}, which speak versions {wire_here} and {wire} of the wire: install "
            "the same mooactor on both, or name another interpreter with --python"
        )
    lacks = [name for module, name in _NEEDED.items() if not _is_there(module)]
    if lacks:
        raise Missing(
            f"{sys.executable} has mooactor, but not {' and '.join(lacks)}, which "
            "mooactor needs: install that there, or name another interpreter with "
            "--python"
        )
    return "" if here == version else f"{both}; both speak version {wire} of the wire"


def _is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def wire_of(folder: str) -> str:
    """The version of what the mooactor in this folder says to other processes, and to
    other hosts: ``7.1``."""
    calls = _constant(os.path.join(folder, "control", "envelope.py"), "VERSION")
    hosts = _constant(os.path.join(folder, "control", "frames.py"), "WIRE")
    return f"{calls}.{hosts}" if calls and hosts else "unknown"


def _constant(path: str, name: str) -> str | None:
    """The value of a constant of a module that is not imported."""
    try:
        with open(path, encoding="utf-8") as file:
            found = re.search(rf'^{name} = "?([\w.+-]+)"?', file.read(), re.M)
    except OSError:
        return None
    return found[1] if found else None


def key_file(key: str) -> str:
    """The path of a new memory file with the key; it lasts as long as this process."""
    file = os.memfd_create("mooactor-key")
    os.fchmod(file, 0o600)
    os.write(file, key.encode() + b"\n")
    return f"/proc/{os.getpid()}/fd/{file}"


class Started:
    """The program, in a process group of its own, for as long as stdin is open.

    Args:
      adopts: its orphans become children of this process, and end with it.
    """

    def __init__(
        self, words: list[str], environment: dict[str, str], *, adopts: bool
    ) -> None:
        self._grace_s = GRACE_S
        self._libc, self._me = ctypes.CDLL(None), os.getpid()
        self._adopts, self._strangers = adopts, children()
        if adopts:
            self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            env=environment,
            preexec_fn=self._die_with_parent,
            start_new_session=True,
        )
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: self._pass_on(number))
        # Slurm without cgroups sends a job's notice to every process of the job.
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, lambda *_: None)
        self._heard = time.monotonic()
        self._unheard = False
        for work in (self._obey, self._listen_for_silence):
            threading.Thread(target=work, daemon=True).start()

    def _die_with_parent(self) -> None:
        # In the child, before the program: this process may be killed, too.
        self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != self._me:
            os._exit(1)

    def wait(self) -> int:
        """The exit code of the program, 128 + N after signal N, as a shell says it, or
        `UNHEARD`. Nothing of its process group is left, nor an orphan that this
        process has adopted."""
        reap_orphans({self._process.pid}, wait=True)
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._adopts:
            kill_orphans({self._process.pid, *self._strangers})
        code = self._process.wait()  # only now: nobody else has had its pid so far
        if self._unheard:
            return UNHEARD
        return code if code >= 0 else 128 - code

    def _obey(self) -> None:
        with contextlib.suppress(Missing):  # what is malformed counts as the end
            for line in sys.stdin.buffer:
                self._heard = time.monotonic()
                number, grace_s = read_word(line)
                self._grace_s = self._grace_s if grace_s is None else grace_s
                if number is not None:
                    self._pass_on(number)
        self._end()

    def _listen_for_silence(self) -> None:
        while (left := self._heard + SILENCE_S - time.monotonic()) > 0:
            time.sleep(left)
        self._unheard = True
        self._end()

    def _end(self) -> None:
        self._pass_on(signal.SIGTERM)
        time.sleep(self._grace_s)
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _pass_on(self, number: int) -> None:
        with contextlib.suppress(OSError):
            os.kill(self._process.pid, number)  # `send_signal` would reap it


def reap_orphans(own: Collection[int], *, wait: bool) -> None:
    """Reap the children of this process that have ended, but none of its `own`: those
    have others that wait for them. With `wait`, until one of them has ended."""
    options = os.WEXITED | os.WNOWAIT | (0 if wait else os.WNOHANG)
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, options)) and ended.si_pid not in own:
            os.waitpid(ended.si_pid, 0)


def kill_orphans(own: Collection[int]) -> None:
    """Kill the children of this process, and those that become its own thereby; not its
    `own`, and not what ends by itself. What does not die in a second is left."""
    latest = time.monotonic() + _KILLING_S
    while time.monotonic() < latest:
        others = [pid for pid in children() if pid not in own and _lives(pid)]
        orphans = [pid for pid in others if not _is_spared(pid)]
        if not orphans:
            return
        for pid in orphans:
            with contextlib.suppress(OSError):  # another user's
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)


def children() -> list[int]:
    """The pids of this process's children, as /proc has them: it may be that of another
    pid namespace. A shell that has become this process may have left it some."""
    found: list[int] = []
    for path in glob.glob("/proc/self/task/*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            with open(path, "rb") as file:
                found += map(int, file.read().split())
    return found


def _lives(pid: int) -> bool:
    """Whether it is a child of this process, and lives. A dead one is reaped."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except ChildProcessError:
        return False


def _is_spared(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/comm", "rb") as name:
            with open(f"/proc/{pid}/cmdline", "rb") as words:
                found = name.read() in _SPARED_NAMES or _SPARED.search(words.read())
    except OSError:
        return False
    return bool(found)


if __name__ == "__main__":
    main()
