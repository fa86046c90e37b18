# SPDX-License-Identifier: MIT
"""``--sync``: the working directory is copied to the hosts by rsync, over the same ssh.

Nothing is deleted there. Version control, virtual environments, caches and the results
of runs stay here.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import IO, NamedTuple

from mooactor.cluster.launch import signals, ssh
from mooactor.cluster.launch.plan import Plan
from mooactor.cluster.launch.targets import LaunchError, Target

EXCLUDED = (".git", ".venv", "runs", "__pycache__")
_NOT_FOUND = 127
_POLL_S = 0.05


class _Copy(NamedTuple):
    target: Target
    process: subprocess.Popen[bytes]
    errors: IO[bytes]


def copy(plan: Plan, wait: Callable[..., bool]) -> None:
    """Copy to all hosts that are not this machine, at the same time.

    Args:
      wait: as `Launch.wait`.

    Raises:
      LaunchError: rsync is missing, here or there, or failed.
    """
    remote = [target for target in plan.targets if not target.is_here]
    source = os.getcwd()
    _check(source, remote)
    copies = [_start(target, source, plan.cwd) for target in remote]
    try:
        while any(each.process.poll() is None for each in copies):
            wait(lambda: False, time.monotonic() + _POLL_S)
        failed = [_failure(c) for c in copies if c.process.returncode]
    finally:
        for each in copies:
            if each.process.poll() is None:
                each.process.terminate()
                each.process.wait()
            each.errors.close()
    if failed:
        raise LaunchError("; ".join(failed))


def _check(source: str, remote: list[Target]) -> None:
    if remote and shutil.which("rsync") is None:
        raise LaunchError(
            "--sync needs rsync, here and on the hosts: install it (Debian: apt-get "
            "install rsync)"
        )
    if source in ("/", os.path.expanduser("~")):
        raise LaunchError(
            f"--sync would copy all of {source}: change to the directory of the program"
        )


def _start(target: Target, source: str, there: str) -> _Copy:
    excluded = [f"--exclude={name}" for name in EXCLUDED]
    errors = tempfile.TemporaryFile()
    host = f"[{target.address}]" if ":" in target.address else target.address
    words = [
        "rsync",
        "--archive",
        "--compress",
        *excluded,
        f"--rsh={shlex.join(ssh.client(target))}",
        f"--rsync-path=mkdir -p {shlex.quote(there)} && rsync",
        "--",
        f"{source}/",
        f"{host}:{there}/",
    ]
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        process_group=0,
        preexec_fn=signals.unblock,
    )
    return _Copy(target, process, errors)


def _failure(failed: _Copy) -> str:
    failed.errors.seek(0)
    said = failed.errors.read(1 << 16).decode(errors="replace").splitlines()
    name, code = failed.target.name, failed.process.returncode
    if code == _NOT_FOUND or any("rsync: command not found" in line for line in said):
        return f"host {name} has no rsync: install it there, or leave --sync away"
    # rsync's last line only says where in its source it gave up.
    first = next((line for line in said if line.strip()), "it said nothing")
    return (
        f"host {name}: rsync ended with exit code {code} ({first}): mend that, or copy "
        "the program there yourself and leave --sync away"
    )
