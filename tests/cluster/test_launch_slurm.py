# SPDX-License-Identifier: MIT
"""``srun mooactor run`` and ``mooactor slurm``, on a real Slurm of two nodes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.launched import MOOACTOR, REPORT, ROOT
from tests.cluster.slurmd import slurm
from tests.cluster.test_launch_whole import EVERYWHERE
from tests.conftest import eventually

pytestmark = pytest.mark.slow

TIMEOUT_S = 120
OVER = ("FAILED", "COMPLETED", "CANCELLED", "TIMEOUT")
Environment = dict[str, str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    # Its sockets' paths must be short.
    with slurm(tmp_path_factory.mktemp("s")) as environment:
        yield environment


def run(
    cluster: Environment, folder: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=folder,
        env={**cluster, "XDG_CONFIG_HOME": str(folder), "PYTHONPATH": str(ROOT)},
    )


def srun(
    cluster: Environment,
    folder: Path,
    script: str,
    *words: str,
) -> subprocess.CompletedProcess[str]:
    """``srun mooactor run script.py`` on both nodes."""
    (folder / "script.py").write_text(script)
    options = ("-N2", "--ntasks-per-node=1", *words)
    return run(cluster, folder, "srun", *options, *MOOACTOR, "run", "script.py")


def runs(folder: Path) -> list[str]:
    """The files of keys and brokers that are there."""
    return os.listdir(folder / "mooactor" / "runs")


@pytest.mark.parametrize("mpi", ["none", "pmi2"])
def test_srun_starts_the_program_once_and_its_exit_code_is_the_programs(
    cluster: Environment, tmp_path: Path, mpi: str
) -> None:
    """With any MPI that it serves otherwise: a cluster's MpiDefault."""
    script = REPORT + "report()\nraise SystemExit(3)"
    done = srun(cluster, tmp_path, script, f"--mpi={mpi}")
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout)["host"] == "n1"
    assert runs(tmp_path) == []


def test_a_program_in_a_job_has_actors_on_every_node(
    cluster: Environment, tmp_path: Path
) -> None:
    (tmp_path / "moo_part.py").write_text("VALUE = 7")
    done = srun(cluster, tmp_path, EVERYWHERE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "n2 heard hello from n1 7",
        "n1 heard hello from n2 7",
    ]


# -- mooactor slurm --------------------------------------------------------------

GREETS = """
import sys
import mooactor as moo


class Greets:
    def says(self, word):
        return word


moo.init(local=False)
hosts = sorted(row["name"] for row in moo.hosts())
print(*[moo.on(Greets, host=name).spawn().says(name) for name in hosts], sys.argv[1:])
raise SystemExit(3)
"""
NOTIFIED = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("up", flush=True)
assert signal.sigwait([signal.SIGUSR1]) == signal.SIGUSR1
print("saved", flush=True)
"""


def submit(cluster: Environment, folder: Path, script: str, *words: str) -> str:
    """``mooactor slurm``, which calls sbatch itself. The number of the job."""
    (folder / "My_train.py").write_text(script)
    options = ("--nodes", "2", "--time", "5:00", "--sbatch=--output=out")
    ours = (sys.executable, "-m", "mooactor", "slurm", *options, "My_train.py")
    done = run(cluster, folder, *ours, *words)
    assert (done.returncode, done.stderr) == (0, "")
    found = re.fullmatch(r"Submitted batch job (\d+)\n", done.stdout)
    assert found is not None, done.stdout
    return found[1]


def job(cluster: Environment, number: str) -> dict[str, str]:
    """The state of a job, by Slurm."""
    asked = ["scontrol", "show", "job", "--oneliner", number]
    done = subprocess.run(asked, env=cluster, capture_output=True, text=True)
    return dict(f.split("=", 1) for f in done.stdout.split() if "=" in f)


def is_over(cluster: Environment, number: str) -> bool:
    return eventually(lambda: job(cluster, number)["JobState"] in OVER, 90)


def is_up(out: Path) -> bool:
    return eventually(lambda: out.exists() and "up" in out.read_text(), 90)


def test_the_command_submits_the_program_and_says_so(
    cluster: Environment, tmp_path: Path
) -> None:
    number = submit(cluster, tmp_path, GREETS, "--lr", "1 e")
    asked = job(cluster, number)
    assert asked["JobName"] == "my-train" and asked["TimeLimit"] == "00:05:00"
    assert is_over(cluster, number)
    printed = (tmp_path / "out").read_text()
    assert job(cluster, number)["ExitCode"] == "3:0", printed  # the program's
    assert "n1 n2 ['--lr', '1 e']" in printed.splitlines()
    assert runs(tmp_path) == []


def test_the_notice_before_the_limit_reaches_the_program_and_ends_nothing_else(
    cluster: Environment, tmp_path: Path
) -> None:
    """As ``--signal=USR1@90`` gives it, which no test can wait for."""
    number, out = submit(cluster, tmp_path, NOTIFIED), tmp_path / "out"
    assert is_up(out)

    def notifies() -> bool:
        subprocess.run(["scancel", "--signal=USR1", number], env=cluster, check=True)
        return eventually(lambda: "saved" in out.read_text(), 20)

    assert any(notifies() for _ in range(3))  # a busy slurmd may lose one
    assert is_over(cluster, number)
    assert job(cluster, number)["JobState"] == "COMPLETED", out.read_text()


def test_a_batch_job_that_is_cancelled_leaves_no_key(
    cluster: Environment, tmp_path: Path
) -> None:
    script = "import signal; print('up', flush=True); signal.pause()"
    number, out = submit(cluster, tmp_path, script), tmp_path / "out"
    assert is_up(out)
    assert runs(tmp_path) == [f"key-{number}"]
    subprocess.run(["scancel", number], env=cluster, check=True)
    assert is_over(cluster, number)
    assert eventually(lambda: runs(tmp_path) == []), out.read_text()
