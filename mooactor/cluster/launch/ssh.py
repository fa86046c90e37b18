# SPDX-License-Identifier: MIT
"""The system's ssh, with the user's configuration: how to reach a host, and what a
failure means."""

from __future__ import annotations

import shlex
import shutil
import signal
import socket
import subprocess

from mooactor.cluster.launch.signals import unblock
from mooactor.cluster.launch.starter import ORDER_ON_STDIN, SILENCE_S, UNHEARD
from mooactor.cluster.launch.targets import LaunchError, Target

_FAILED = 255  # ssh's own exit code
_NOT_EXECUTABLE, _NOT_FOUND, _SIGNALLED = 126, 127, 128  # a shell's
# A connection over which nothing comes for so long is given up by both sides: the
# starter ends then what it has started, and nobody should wait for its word.
_LOOKS = 4
_INTERVAL = f"ServerAliveInterval={SILENCE_S / _LOOKS:.0f}"
_ALIVE = ("-o", _INTERVAL, "-o", f"ServerAliveCountMax={_LOOKS}")
# No question is asked: nobody could answer for many hosts at once.
_OPTIONS = ("-T", "-x", "-o", "BatchMode=yes", *_ALIVE)
_NOT_IMPORTED = ("ImportError: ", "ModuleNotFoundError: ")
_ADVICE = (
    ("Host key verification failed", "run ssh {name} once by hand and accept its key"),
    ("Permission denied", "give it your public key (ssh-copy-id), or load your agent"),
    ("Could not resolve", "check the name, or add it to ~/.ssh/config"),
)


def client(target: Target) -> list[str]:
    """The words of an ssh to the target, without the command.

    Raises:
      LaunchError: there is no ssh here.
    """
    if shutil.which("ssh") is None:
        raise LaunchError(
            f"host {target.name} needs ssh, which this machine lacks: install it "
            "(Debian: apt-get install openssh-client)"
        )
    user = ["-l", target.user] if target.user else []
    port = ["-p", str(target.port)] if target.port else []
    return ["ssh", *_OPTIONS, *user, *port]


def words(target: Target, python: str) -> list[str]:
    """The command that starts a `starter` on the target.

    It is one line that every shell understands, and has nothing secret: all the rest
    goes over stdin.
    """
    command = [python, "-c", ORDER_ON_STDIN]
    if not target.is_here:
        line = f"exec {shlex.join(command)}"
        command = [*client(target), "--", target.address, line]
    return command


def failure(target: Target, python: str, code: int, last: str) -> str:
    """Why a starter on the target ended with this exit code, and the next step if the
    starter itself could not run."""
    return _no_starter(target, python, code, last) or _ended(code, last)


def failure_to_start(target: Target, python: str, code: int, last: str) -> str:
    """The same of a program that was never ready; the next step is in it, always."""
    if found := _no_starter(target, python, code, last):
        return found
    if _signal_in(code):
        step = "find out who sent it, such as a limit on memory, and try again"
    elif last.startswith(_NOT_IMPORTED):
        step = (
            f"install mooactor and what it needs for {python} there, or name another "
            "interpreter with --python"
        )
    elif last:
        step = "mend that, and try again"
    else:
        step = f"run {python} -m mooactor doctor there by hand"
    return f"{_ended(code, last)}; {step}"


def loss(status: int) -> str | None:
    """Why a starter's program on another host may not have ended with this exit status
    of the ssh to it, as `subprocess` has it; None: that is the program's own."""
    if status < 0:
        number = signal.Signals(-status)
        return f"the ssh to it was killed by signal {number} ({number.name})"
    if status == _FAILED:
        why = "ssh has lost the connection"
    elif status == UNHEARD:
        why = f"it had heard nothing of this command for {SILENCE_S:.0f} s"
    else:
        return None
    return f"{why}, or it ended with exit code {status} of its own"


def _ended(code: int, last: str) -> str:
    if found := _signal_in(code):
        return f"killed by signal {found} ({found.name})"
    if code == UNHEARD:
        return f"it had heard nothing of this command for {SILENCE_S:.0f} s"
    return f"exit code {code}" + (f": {last}" if last else "")


def _signal_in(code: int) -> signal.Signals | None:
    """The signal that an exit code stands for, as a shell has it."""
    return next((one for one in signal.Signals if one == code - _SIGNALLED), None)


def _no_starter(target: Target, python: str, code: int, last: str) -> str | None:
    if code == _FAILED and not target.is_here:
        name = _written(target)
        steps = (step.format(name=name) for sign, step in _ADVICE if sign in last)
        step = next(steps, f"check that {trial(target)} works")
        return f"ssh failed ({last or 'it said nothing'}): {step}"
    if code == _NOT_FOUND:
        return (
            f"it has no {python}: install Python there, or name one with --python "
            "(the same path on all hosts)"
        )
    if code == _NOT_EXECUTABLE:
        return f"{python} cannot be run there: name another interpreter with --python"
    return None


def trial(target: Target) -> str:
    """A command that shows whether the target can be reached."""
    return f"ssh -o BatchMode=yes {_written(target)} true"


def _written(target: Target) -> str:
    port = f"-p {target.port} " if target.port else ""
    return port + (f"{target.user}@" if target.user else "") + target.address


def host_name(target: Target) -> str:
    """The name or address behind the one that the user's configuration may define.

    Raises:
      LaunchError: as `client` does.
    """
    asked = [*client(target), "-G", "--", target.address]
    done = subprocess.run(asked, capture_output=True, text=True, preexec_fn=unblock)
    for line in done.stdout.splitlines():
        if line.startswith("hostname "):
            return line.split()[1]
    return target.address


def own_address(target: Target) -> str:
    """This machine's address on the way to the target. Nothing is sent.

    Raises:
      LaunchError: there is no way, or none without a proxy.
    """
    name = host_name(target)
    try:
        for family, kind, *_, peer in socket.getaddrinfo(
            name, 9, type=socket.SOCK_DGRAM
        ):
            with socket.socket(family, kind) as probe:
                probe.connect(peer)
                return str(probe.getsockname()[0])
    except OSError:
        pass
    raise LaunchError(
        f"host {target.name}: this machine has no direct way to {name}; name the "
        "address at which that host reaches this machine with --address"
    )
