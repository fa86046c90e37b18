# SPDX-License-Identifier: MIT
"""``srun mooactor run`` and ``mooactor slurm``, on a real Slurm of two nodes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mooactor.cluster.launch import slurm as slurm_script
from tests.cluster.launched import ROOT, WHOLE, command
from tests.cluster.slurmd import slurm
from tests.cluster.test_launch_ranks import REPORT, WAITING
from tests.cluster.test_launch_whole import EVERYWHERE
from tests.conftest import eventually

pytestmark = pytest.mark.slow

TIMEOUT_S = 120


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    # Its sockets' paths must be short.
    with slurm(tmp_path_factory.mktemp("s")) as environment:
        yield environment


def srun(
    cluster: dict[str, str],
    folder: Path,
    script: str,
    *words: str,
    run: Sequence[str] = command(),
) -> subprocess.CompletedProcess[str]:
    """``srun mooactor run script.py`` on both nodes."""
    (folder / "script.py").write_text(script)
    return subprocess.run(
        ["srun", *words, *run, str(folder / "script.py")],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=folder,
        env={**cluster, "XDG_CONFIG_HOME": str(folder), "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize("mpi", ["none", "pmi2"])
def test_srun_starts_the_program_once_with_a_host_on_each_node(
    cluster: dict[str, str], tmp_path: Path, mpi: str
) -> None:
    """Whatever MPI it serves otherwise: a cluster's MpiDefault."""
    words = ["-N2", "--ntasks-per-node=1", f"--mpi={mpi}"]
    done = srun(cluster, tmp_path, REPORT, *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["MOOACTOR_HOST_NAME"] == "n1"
    assert runs(tmp_path) == []


def test_the_exit_code_of_srun_is_the_programs(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    done = srun(cluster, tmp_path, "raise SystemExit(3)", "-N2", "-n2")
    assert done.returncode == 3, done.stderr


def test_a_program_in_a_job_has_actors_on_every_node(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "moo_part.py").write_text("VALUE = 7")
    done = srun(cluster, tmp_path, EVERYWHERE, "-N2", "-n2", run=WHOLE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "n2 heard hello from n1 7",
        "n1 heard hello from n2 7",
    ]


def submit(
    cluster: dict[str, str], folder: Path, script: str, *words: str
) -> subprocess.CompletedProcess[str]:
    """Submit what ``mooactor slurm`` writes, with the hosts of the tests."""
    (folder / "script.py").write_text(script)
    options = slurm_script.directives(nodes=2, job_name="train", more=["--output=out"])
    text = slurm_script.batch_script(
        options, sys.executable, ["script.py"], path=[str(ROOT)]
    )
    ours = " ".join(f"'{word}'" for word in command())
    return subprocess.run(
        ["sbatch", *words],
        input=text.replace(f"{sys.executable} -P -m mooactor run", ours),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=folder,
        env={**cluster, "XDG_CONFIG_HOME": str(folder)},
    )


def runs(folder: Path) -> list[str]:
    """The files of keys and brokers that are there."""
    return os.listdir(folder / "mooactor" / "runs")


def test_a_batch_job_runs_the_program_with_a_key_that_goes(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    done = submit(cluster, tmp_path, REPORT, "--wait")
    out = tmp_path / "out"
    assert eventually(out.exists)
    assert done.returncode == 0, done.stderr + out.read_text()
    (line,) = (t for t in out.read_text().splitlines() if t.startswith("{"))
    assert json.loads(line)["MOOACTOR_HOST_NAME"] == "n1"
    assert runs(tmp_path) == []


NOTIFIED = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("up", flush=True)
assert signal.sigwait([signal.SIGUSR1]) == signal.SIGUSR1
print("saved", flush=True)
"""


def test_the_notice_before_the_limit_reaches_the_program_and_ends_nothing_else(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    """As ``--signal=USR1@90`` gives it, which no test can wait for."""
    number = submit(cluster, tmp_path, NOTIFIED, "--parsable").stdout.strip()
    out = tmp_path / "out"
    assert eventually(lambda: out.exists() and "up" in out.read_text(), 60), number
    subprocess.run(["scancel", "--signal=USR1", number], env=cluster, check=True)
    over = ("FAILED", "COMPLETED", "CANCELLED", "TIMEOUT")
    assert eventually(lambda: job(cluster, number)["JobState"] in over, 90)
    assert "saved" in out.read_text()
    assert job(cluster, number)["JobState"] == "COMPLETED", out.read_text()


def test_a_batch_job_that_is_cancelled_leaves_no_key(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    job = submit(cluster, tmp_path, WAITING, "--parsable").stdout.strip()
    out = tmp_path / "out"
    assert eventually(lambda: out.exists() and "up" in out.read_text(), 60), job
    assert runs(tmp_path) == [f"key-{job}"]
    subprocess.run(["scancel", job], env=cluster, check=True)
    asked = ["squeue", "--noheader", "--jobs", job]

    def is_over() -> bool:
        done = subprocess.run(asked, env=cluster, capture_output=True, text=True)
        return not done.stdout.strip()

    assert eventually(is_over, 60)
    assert eventually(lambda: runs(tmp_path) == []), out.read_text()


# -- mooactor slurm itself -------------------------------------------------------

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


def slurm_command(
    cluster: dict[str, str], folder: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    """``mooactor slurm``, which calls sbatch itself."""
    return subprocess.run(
        [sys.executable, "-m", "mooactor", "slurm", *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=folder,
        env={**cluster, "XDG_CONFIG_HOME": str(folder), "PYTHONPATH": str(ROOT)},
    )


def job(cluster: dict[str, str], number: str) -> dict[str, str]:
    """What Slurm says of a job."""
    asked = ["scontrol", "show", "job", "--oneliner", number]
    done = subprocess.run(asked, env=cluster, capture_output=True, text=True)
    return dict(f.split("=", 1) for f in done.stdout.split() if "=" in f)


def test_the_command_submits_the_program_and_says_so(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "My_greeting.py").write_text(GREETS)
    options = ("--nodes", "2", "--time", "5:00", "--sbatch=--output=out")

    done = slurm_command(cluster, tmp_path, *options, "My_greeting.py", "--lr", "1 e")

    assert (done.returncode, done.stderr) == (0, "")
    (number,) = re.fullmatch(r"Submitted batch job (\d+)\n", done.stdout).groups()
    asked = job(cluster, number)
    assert asked["JobName"] == "my-greeting" and asked["TimeLimit"] == "00:05:00"
    over = ("FAILED", "COMPLETED", "CANCELLED", "TIMEOUT")
    assert eventually(lambda: job(cluster, number)["JobState"] in over, 90)
    printed = (tmp_path / "out").read_text()
    assert job(cluster, number)["ExitCode"] == "3:0", printed  # the program's
    assert "n1 n2 ['--lr', '1 e']" in printed.splitlines()
    assert runs(tmp_path) == []


def test_a_job_that_sbatch_refuses_is_one_sentence_and_exit_code_2(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "script.py").touch()
    words = ("--nodes", "2", "--partition", "nowhere", "script.py")

    done = slurm_command(cluster, tmp_path, *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("mooactor slurm: sbatch refuses the job (")
    assert "invalid partition" in done.stderr.lower()
    assert "--dry-run" in done.stderr and "Traceback" not in done.stderr
