# SPDX-License-Identifier: MIT
"""``mooactor run`` inside what srun, mpirun, torchrun and Kubernetes start.

The first tests set the variables of these themselves, the others use the real ones.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import networks
from tests.cluster.launched import MOOACTOR, REPORT, ROOT, Launched
from tests.conftest import eventually

pytestmark = pytest.mark.slow

KEY = "7b" * 32
Start = Callable[..., Launched]

SAYS = REPORT + "report()"
WAITS = """
import os, signal
signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"noticed"))
print("up", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start ``mooactor run script.py`` as a rank with these variables."""
    started: list[Launched] = []

    def start(
        script: str,
        variables: Mapping[str, str],
        *options: str,
        on: Sequence[str] = (),
    ) -> Launched:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        (folder / "script.py").write_text(script)
        environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), **variables}
        words = ["--patience", "60", *options, "script.py"]
        started.append(Launched(words, folder, environment, on))
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
    }


def test_the_ranks_of_a_job_find_each_other_by_a_file(
    start: Start, tmp_path: Path
) -> None:
    """As many as the user asks for. Further ranks of a host have nothing to do."""
    nodes, options = "n[1-3]", ("--min-hosts", "2")
    further = start("", task(1, nodes), *options)
    assert start("", task(1, nodes, local=1)).end() == 0
    first = start(SAYS, task(0, nodes), *options)
    assert first.end() == 0, first.err + further.err
    found = json.loads(first.out)
    assert found["host"] == "n1" and found["shown"] == []
    assert not found["address"].startswith("tcp://127.")
    assert "host n2 has joined" in first.err
    assert further.end() == 0, further.err
    assert further.out == ""
    runs = tmp_path / "mooactor" / "runs"
    assert os.listdir(runs) == []
    assert runs.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(networks.why_not() is not None, reason=str(networks.why_not()))
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_pods_with_a_key_need_no_file(start: Start, tmp_path: Path) -> None:
    cable = networks.Cable()
    try:
        first, further = (start(SAYS, pod(n), on=as_pod(n, cable)) for n in (0, 1))
        assert first.end() == 0, first.err + further.err
        found = json.loads(first.out)
        assert found["key"] == KEY and found["host"] == "train-0"
        assert found["address"] == "tcp://10.99.1.1:4431"
        assert further.end() == 0, further.err
        assert "host train-1 has joined from tcp://10.99.1.2:" in first.err
        assert not (tmp_path / "mooactor").exists()
    finally:
        cable.close()


def pod(number: int) -> dict[str, str]:
    """The variables of a pod, Kubernetes' own and those of our manifest."""
    return {
        "JOB_COMPLETION_INDEX": str(number),
        "MOOACTOR_FIRST": "10.99.1.1",
        "MOOACTOR_HOSTS": "2",
        "MOOACTOR_KEY": KEY,
    }


def as_pod(number: int, cable: networks.Cable) -> list[str]:
    """The words before a command that give it a network and a name of its own."""
    named = 'hostname "$0" && exec "$@"'
    words = ["unshare", "--uts", "sh", "-c", named, f"train-{number}"]
    return [*cable.on("ab"[number]), *words]


def test_a_rank_that_finds_no_broker_and_rank_0_that_misses_hosts_say_so(
    start: Start,
) -> None:
    further = start("", task(1), "--patience", "1")
    assert further.end() == 2
    assert "host n2 has found no broker" in further.err
    first = start("print('never')", task(0), "--patience", "3")
    assert first.end() == 2
    assert "1 of 2 hosts have joined in 3 s (n1)" in first.err
    assert "--min-hosts" in first.err and first.out == ""


def test_a_notice_is_for_the_program_and_a_signal_to_another_rank_costs_it_nothing(
    start: Start,
) -> None:
    """srun gives the highest code of its tasks, and signals those that run still once
    one has ended with an error."""
    first, further = start(WAITS, task(0)), start("", task(1))
    assert first.says("up"), first.err + further.err
    for rank in (further, first):
        rank.signal(signal.SIGUSR1)
    assert first.says("noticed"), first.err
    assert further.process.poll() is None, further.err
    further.signal(signal.SIGTERM)
    assert further.end() == 0, further.err
    first.signal(signal.SIGTERM)
    assert first.end() == 143, first.err


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
