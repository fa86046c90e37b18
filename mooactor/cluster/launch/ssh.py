# SPDX-License-Identifier: MIT
"""The system's ssh, with the user's configuration: how to reach a host, how to copy a
directory there, and what a failure means."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable

from mooactor.cluster.launch.plan import LaunchError, Target
from mooactor.cluster.launch.starter import FAILED, ORDER_ON_STDIN
from mooactor.control import addresses

LOST = 255  # ssh's own exit code
_NOT_RUN, _SIGNALLED = (126, 127), 128  # a shell's
#: A connection over which nothing comes for so long is given up by both sides: the
#: starter ends then what it has started.
SILENCE_S = 60.0
_LOOKS = 4
# No question is asked: nobody could answer for many hosts at once.
_OPTIONS = (
    "-T",
    "-x",
    *("-o", "BatchMode=yes"),
    *("-o", f"ServerAliveInterval={SILENCE_S / _LOOKS:.0f}"),
    *("-o", f"ServerAliveCountMax={_LOOKS}"),
)
EXCLUDED = (".git", ".venv", "runs", "__pycache__")  # what `copy` leaves here


def client(target: Target) -> list[str]:
    """The words of an ssh, which the way to the target follows.

    Raises:
      LaunchError: there is no ssh here.
    """
    if shutil.which("ssh") is None:
        raise LaunchError(
            f"host {target.name} needs ssh, which this machine lacks: install it "
            "(Debian: apt-get install openssh-client)"
        )
    return ["ssh", *_OPTIONS]


def words(target: Target, python: str) -> list[str]:
    """The command that starts a `starter` on the target. It is one line that every
    shell understands, and has nothing secret: all the rest goes over stdin."""
    command = [python, "-c", ORDER_ON_STDIN]
    if target.is_here:
        return command
    return [*client(target), *_way(target), f"exec {shlex.join(command)}"]


def failure(target: Target, python: str, code: int, last: str) -> str:
    """Why a program on the target has ended, and the next step. `last`: what it has
    printed last."""
    if FAILED in last:
        return last.partition(FAILED)[2]
    if code == LOST and not target.is_here:
        said = last or "it said nothing"
        return f"ssh failed ({said}): check that {trial(target)} works"
    if code in _NOT_RUN:
        return (
            f"it cannot run {python}: install Python there, or name one with --python "
            "(the same path on all hosts)"
        )
    if number := next((n for n in signal.Signals if n == code - _SIGNALLED), None):
        return (
            f"killed by signal {number} ({number.name}); find out who sent it, such as "
            "a limit on memory, and try again"
        )
    if "No module named " in last:
        step = (
            f"install mooactor and what it needs for {python} there, or name another "
            "interpreter with --python"
        )
    else:
        step = f"mend that, or run {python} -m mooactor doctor there by hand"
    return f"exit code {code}{last and f': {last}'}; {step}"


def trial(target: Target) -> str:
    """A command that shows whether the target can be reached."""
    return shlex.join(["ssh", "-o", "BatchMode=yes", *_way(target), "true"])


def _way(target: Target) -> list[str]:
    user = ["-l", target.user] if target.user else []
    port = ["-p", str(target.port)] if target.port else []
    return [*user, *port, target.address]


def own_address(target: Target) -> str:
    """This machine's address on the way to the target, whose name the user's
    configuration may define. Nothing is sent.

    Raises:
      LaunchError: there is no ssh here, or no way without a proxy.
    """
    asked = [*client(target), "-G", *_way(target)]
    said = subprocess.run(asked, capture_output=True, text=True).stdout
    found = re.search(r"^hostname (\S+)", said, re.M)
    name = found[1] if found else target.address
    with contextlib.suppress(OSError):
        for *_, (address, *_) in socket.getaddrinfo(name, None):
            if own := addresses.towards(str(address)):
                return own
    raise LaunchError(
        f"host {target.name}: this machine has no direct way to {name}; name the "
        "address at which that host reaches this machine with --address"
    )


# -- --sync ------------------------------------------------------------------------


def copy(targets: list[Target], there: str, wait: Callable[..., bool]) -> None:
    """Copy the working directory to the targets with rsync, over the same ssh, at the
    same time. Nothing is deleted there. rsync says on stderr what it lacks.

    Args:
      there: the directory on the hosts.
      wait: as `Supervisor.wait`.

    Raises:
      LaunchError: rsync is missing, here or there, or failed.
    """
    source = os.getcwd()
    if targets and shutil.which("rsync") is None:
        raise LaunchError(
            "--sync needs rsync, here and on the hosts: install it (Debian: apt-get "
            "install rsync)"
        )
    if source in ("/", os.path.expanduser("~")):
        raise LaunchError(
            f"--sync would copy all of {source}: change to the directory of the program"
        )
    with contextlib.ExitStack() as stack:
        copies = []
        for target in targets:
            copies.append(_start_copy(target, source, there))
            stack.callback(copies[-1].wait)
            stack.callback(copies[-1].terminate)
        wait(lambda: all(copy.poll() is not None for copy in copies))
    for target, each in zip(targets, copies, strict=True):
        if each.returncode:
            raise LaunchError(
                f"host {target.name}: rsync ended with exit code {each.returncode}: "
                "mend what it says above (rsync must be there, too), or copy the "
                "program there yourself and leave --sync away"
            )


def _start_copy(target: Target, source: str, there: str) -> subprocess.Popen[bytes]:
    *options, address = _way(target)
    host = f"[{address}]" if ":" in address else address
    words = [
        *("rsync", "--archive", "--compress"),
        *(f"--exclude={name}" for name in EXCLUDED),
        f"--rsh={shlex.join([*client(target), *options])}",
        f"--rsync-path=mkdir -p {shlex.quote(there)} && rsync",
        *("--", f"{source}/", f"{host}:{there}/"),
    ]
    null = subprocess.DEVNULL
    return subprocess.Popen(words, stdin=null, stdout=null, process_group=0)
