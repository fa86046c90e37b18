# SPDX-License-Identifier: MIT
"""``mooactor run`` inside what srun, mpirun and torchrun start.

The first tests set srun's variables themselves; test_launch_slurm has the real one.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cluster.launched import MOOACTOR, REPORT, ROOT, Launched
from tests.conftest import eventually

pytestmark = pytest.mark.slow

Start = Callable[..., Launched]

SAYS = REPORT + "report()"
WAITS = """
import os, signal
print("up", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start ``mooactor run script.py`` as a rank with these variables."""
    started: list[Launched] = []

    def start(script: str, variables: Mapping[str, str], *options: str) -> Launched:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        (folder / "script.py").write_text(script)
        environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), **variables}
        words = ["--patience", "60", *options, "script.py"]
        started.append(Launched(words, folder, environment))
        return started[-1]

    yield start
    for each in started:
        each.close()


def task(number: int, nodes: str = "n[1-2]", local: int = 0) -> dict[str, str]:
    """The variables of srun's task on node n1, n2 or so on."""
    return {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_PROCID": str(number),
        "SLURM_LOCALID": str(local),
        "SLURMD_NODENAME": f"n{number + 1}",
        "SLURM_STEP_NUM_NODES": "2",
    }


def test_the_other_ranks_end_when_the_node_of_rank_0_is_lost(start: Start) -> None:
    first, further = start(WAITS, task(0)), start("", task(1))
    assert first.says("up"), first.err + further.err
    processes = first.descendants()
    for process in processes:  # so that none of them ends another in order
        os.kill(process.pid, signal.SIGSTOP)
    first.signal(signal.SIGKILL)
    for process in processes:
        os.kill(process.pid, signal.SIGKILL)
    assert first.end() == -signal.SIGKILL
    assert further.end() == 1, further.err
    assert "is gone, and the run is over" in further.err


# `host` is a file with the pid of the host on another rank.
SAVES = """
import os, signal, time
def save(*_):
    time.sleep(2.5)  # there is no event: longer than without --grace
    os.kill(int(open({file!r}).read()), 0)
    os.write(1, b"saved\\n")  # no print, which may be under way
    os._exit(3)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
while True:
    signal.pause()
"""


def test_the_other_hosts_stay_while_the_program_saves_at_the_end_of_a_job(
    start: Start, tmp_path: Path
) -> None:
    """scancel, a time limit and mpirun signal all ranks at the same time."""
    file = tmp_path / "host"
    grace = ("--grace", "60")
    first = start(SAVES.format(file=str(file)), task(0), *grace)
    further = start("", task(1), *grace)
    assert first.says("up"), first.err + further.err
    # Its forks have its words, too.
    named = (p for p in further.descendants() if " --name n2" in p.command())
    host = min(named, key=lambda process: (process.started, process.pid))
    file.write_text(str(host.pid))
    for rank in (further, first):
        rank.signal(signal.SIGTERM)
    assert first.end() == 3, first.err + further.err
    assert "saved" in first.out
    assert further.end() == 0, further.err
    assert eventually(lambda: not host.is_running())


# -- the real ones -------------------------------------------------------------

MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone")


@pytest.mark.parametrize(
    "words",
    [MPIRUN, (*TORCHRUN, "--nproc-per-node=2", "--no-python")],
    ids=lambda w: w[2],
)
def test_mpirun_and_torchrun_start_a_program_once(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    if shutil.which(words[0]) is None or (words != MPIRUN and not find_spec("torch")):
        pytest.skip("it is not installed")
    script = tmp_path / "script.py"
    script.write_text(SAYS)
    if words != MPIRUN:
        words = (*words, "--log-dir", str(tmp_path / "logs"))
    done = subprocess.run(
        [*words, *MOOACTOR, "run", str(script)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["host"] == socket.gethostname()  # so it ran once
