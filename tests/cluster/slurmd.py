# SPDX-License-Identifier: MIT
"""A real Slurm of two nodes, n1 and n2, on this machine, with a munge of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import eventually

NEEDED = ("munged", "slurmctld", "slurmd", "srun", "sbatch")
_PATH = f"{os.environ['PATH']}:/usr/sbin"
_CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
KillWait=5
MinJobAge=300
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1
PartitionName=all Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str | None:
    """Why there can be no Slurm here, or None."""
    if os.geteuid() != 0:
        return "starting Slurm needs root"
    missing = [name for name in NEEDED if shutil.which(name, path=_PATH) is None]
    return f"{missing[0]} is not installed" if missing else None


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Its environment for srun and sbatch. Skip where there can be none."""
    if reason := why_not():
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        environment = _start(folder, stack)
        yield environment


def _start(folder: Path, stack: contextlib.ExitStack) -> dict[str, str]:
    config = folder / "slurm.conf"
    values = {"host": socket.gethostname(), "folder": folder, "ports": _ports(3)}
    config.write_text(_CONFIG.format(**values))
    (folder / "state").mkdir()
    environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(config)}

    def start(*words: str) -> None:
        log = stack.enter_context(
            (folder / f"log-{len(os.listdir(folder))}").open("wb")
        )
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
        )
        stack.callback(process.wait)
        stack.callback(process.terminate)

    start("munged", "--foreground", "--force", *_munge(folder))
    assert eventually((folder / "munge").exists)
    start("slurmctld", "-D", "-f", str(config))
    for node in ("n1", "n2"):
        start("slurmd", "-D", "-N", node, "-f", str(config))
    asked = ["sinfo", "--noheader", "--format=%D %T"]

    def idle() -> bool:
        done = subprocess.run(asked, env=environment, capture_output=True, text=True)
        return done.stdout.strip() == "2 idle"

    assert eventually(idle, 60), [p.read_text() for p in sorted(folder.glob("log-*"))]
    return environment


def _munge(folder: Path) -> list[str]:
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    paths = {"socket": "munge", "pid-file": "munge.pid", "seed-file": "munge.seed"}
    options = [f"--{name}={folder / path}" for name, path in paths.items()]
    return [*options, f"--key-file={key}", f"--log-file={folder / 'munge.log'}"]


def _ports(number: int) -> list[int]:
    servers = [socket.create_server(("", 0)) for _ in range(number)]
    found = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return found
