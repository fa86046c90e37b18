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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from mooactor.cluster.launch.watch import Watch
from mooactor.host.eventloop import EventLoop
from tests import networks
from tests.cluster.launched import ROOT, Launched, command
from tests.conftest import eventually

pytestmark = pytest.mark.slow

KEY = "7b" * 32
Start = Callable[..., Launched]

REPORT = """
import json, os
print(json.dumps({name: os.environ[name] for name in (
    "MOOACTOR_ADDRESS", "MOOACTOR_HOST_NAME", "MOOACTOR_KEY_FILE")}
    | {"key": open(os.environ["MOOACTOR_KEY_FILE"]).read().strip()}))
"""
WAITING = """
import time
print("up", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start ``mooactor run script.py`` as a rank with these variables."""
    started: list[Launched] = []

    def start(
        script: str,
        variables: Mapping[str, str],
        on: Sequence[str] = (),
        options: Sequence[str] = (),
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
        if each.process.poll() is None:
            each.signal(signal.SIGKILL)
            each.process.wait()


def task(number: int, nodes: str = "n[1-2]", job: str = "7") -> dict[str, str]:
    """The variables of srun's task on node n1, n2 or so on."""
    return {
        "SLURM_JOB_ID": job,
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_PROCID": str(number),
        "SLURM_LOCALID": "0",
        "SLURMD_NODENAME": f"n{number + 1}",
    }


def test_the_ranks_of_a_job_find_each_other_by_a_file(
    start: Start, tmp_path: Path
) -> None:
    further = start("", task(1))
    first = start(REPORT, task(0))
    assert first.end() == 0, first.err + further.err
    found = json.loads(first.out)
    assert found["MOOACTOR_HOST_NAME"] == "n1"
    assert not found["MOOACTOR_ADDRESS"].startswith("tcp://127.")
    assert further.end() == 0, further.err
    assert further.out == ""
    runs = tmp_path / "mooactor" / "runs"
    assert os.listdir(runs) == []
    assert runs.stat().st_mode & 0o777 == 0o700


def test_who_watches_the_broker_listens_on_the_loopback_interface_alone() -> None:
    psutil = pytest.importorskip("psutil")
    me = psutil.Process()
    before = me.net_connections("tcp")
    watch = Watch(EventLoop(), bytes.fromhex(KEY), "tcp://192.0.2.1:4431")
    try:
        new = [c for c in me.net_connections("tcp") if c not in before]
        listening = [c.laddr.ip for c in new if c.status == psutil.CONN_LISTEN]
        assert listening == ["127.0.0.1"]
    finally:
        watch.close()


@pytest.mark.skipif(networks.why_not() is not None, reason=str(networks.why_not()))
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_pods_with_a_key_need_no_file(start: Start, tmp_path: Path) -> None:
    cable = networks.Cable()
    try:
        first, further = (start(REPORT, pod(n), as_pod(n, cable)) for n in (0, 1))
        assert first.end() == 0, first.err + further.err
        found = json.loads(first.out)
        assert found["key"] == KEY
        assert found["MOOACTOR_HOST_NAME"] == "train-0"
        assert found["MOOACTOR_ADDRESS"] == "tcp://10.99.1.1:4431"
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


def test_further_ranks_of_a_host_have_nothing_to_do(start: Start) -> None:
    assert start("", {**task(1, "n1"), "SLURM_LOCALID": "1"}).end() == 0
    first = start(REPORT, task(0, "n1"))
    assert first.end() == 0, first.err


def test_rank_0_says_how_many_hosts_have_not_come(start: Start, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('never')")
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), **task(0)}
    first = Launched(["--patience", "3", "script.py"], tmp_path, environment)
    assert first.end() == 2
    assert "1 of 2 hosts have joined in 3 s (n1)" in first.err
    assert "--min-hosts" in first.err
    assert first.out == ""


def test_a_job_begins_with_as_many_hosts_as_the_user_asks_for(start: Start) -> None:
    """Rank 0 starts one of them; the others join by themselves."""
    nodes, options = "n[1-3]", ["--min-hosts", "2"]
    further = start("", task(1, nodes), options=options)
    first = start(REPORT, task(0, nodes), options=options)
    assert first.end() == 0, first.err + further.err
    assert "host n2 has joined" in first.err
    assert json.loads(first.out)["MOOACTOR_HOST_NAME"] == "n1"
    assert further.end() == 0, further.err


def test_a_rank_that_finds_no_broker_says_so(start: Start, tmp_path: Path) -> None:
    (tmp_path / "script.py").touch()
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), **task(1)}
    further = Launched(["--patience", "1", "script.py"], tmp_path, environment)
    assert further.end() == 2
    assert "host n2 has found no broker" in further.err


def test_ctrl_c_of_rank_0_ends_all_ranks(start: Start) -> None:
    first, further = start(WAITING, task(0)), start("", task(1))
    assert eventually(lambda: "up" in first.out, 60), first.err + further.err
    first.signal(signal.SIGTERM)
    assert first.end() == 143, first.err
    assert further.end() == 0, further.err


@pytest.mark.slow
def test_the_other_ranks_end_when_the_node_of_rank_0_is_lost(start: Start) -> None:
    first, further = start(WAITING, task(0)), start("", task(1))
    assert eventually(lambda: "up" in first.out, 60), first.err + further.err
    processes = first.descendants()
    for process in processes:
        os.kill(
            process.pid, signal.SIGSTOP
        )  # so that none of them ends another in order
    first.signal(signal.SIGKILL)
    for process in processes:
        os.kill(process.pid, signal.SIGKILL)
    assert first.end() == -signal.SIGKILL
    assert further.end() == 1, further.err
    assert "the broker is gone, and the run is over" in further.err


@pytest.mark.slow
def test_a_host_that_hears_of_no_end_costs_the_program_no_exit_code(
    start: Start, tmp_path: Path
) -> None:
    """Rank 0 waits a second for the other hosts, which may be busy or just away."""
    go = str(tmp_path / "go")
    waits = f"import os, time\nwhile not os.path.exists({go!r}): time.sleep(0.1)"
    first = start(f"print('up', flush=True)\n{waits}", task(0))
    further = start("", task(1))
    assert eventually(lambda: "up" in first.out, 60), first.err + further.err
    (host,) = (p for p in further.descendants() if " --name n2" in p.command())
    os.kill(host.pid, signal.SIGSTOP)
    Path(go).touch()
    assert first.end() == 0, first.err
    assert further.end() == 0, further.err


def test_a_signal_to_another_rank_costs_the_program_no_exit_code(start: Start) -> None:
    """srun gives the highest code of its tasks, and signals those that run still once
    one has ended with an error."""
    first, further = start(WAITING, task(0)), start("", task(1))
    assert eventually(lambda: "up" in first.out, 60), first.err + further.err
    before = time.monotonic()
    further.signal(signal.SIGTERM)
    assert further.end() == 0, further.err
    # Three seconds are promised, to a machine that does nothing else.
    assert time.monotonic() - before < 10
    first.signal(signal.SIGTERM)
    assert first.end() == 143, first.err


SAVES = """
import os, signal, time
def save(*_):
    time.sleep(2.5)  # longer than without --grace
    host = int(open({file!r}).read())
    os.kill(host, 0)
    os.write(1, b"saved\\n")  # no print, which may be under way
    os._exit(3)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
while True:
    time.sleep(0.01)
"""


def test_the_other_hosts_stay_while_the_program_saves_at_the_end_of_a_job(
    start: Start, tmp_path: Path
) -> None:
    """scancel, a time limit and mpirun signal all ranks at the same time."""
    file = tmp_path / "host"
    grace = ("--grace", "60")
    first = start(SAVES.format(file=str(file)), task(0), options=grace)
    further = start("", task(1), options=grace)
    assert eventually(lambda: "up" in first.out, 60), first.err + further.err
    (host,) = (p for p in further.descendants() if " --name n2" in p.command())
    file.write_text(str(host.pid))
    for rank in (further, first):
        rank.signal(signal.SIGTERM)
    assert first.end() == 3, first.err + further.err
    assert "saved" in first.out
    assert further.end() == 0, further.err
    assert not host.is_running()


def test_a_notice_to_all_ranks_is_for_the_program_alone(start: Start) -> None:
    says = "signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b'noticed'))"
    first = start(f"import os, signal\n{says}\n{WAITING}", task(0))
    further = start("", task(1))
    assert eventually(lambda: "up" in first.out, 60), first.err + further.err
    for rank in (further, first):
        rank.signal(signal.SIGUSR1)
    assert eventually(lambda: "noticed" in first.out), first.err
    assert further.process.poll() is None, further.err
    first.signal(signal.SIGTERM)
    assert first.end() == 143, first.err
    assert further.end() == 0, further.err


# -- the real ones -------------------------------------------------------------


def report_of(words: list[str], folder: Path) -> dict[str, str]:
    """What the program says that this launcher starts everywhere."""
    script = folder / "script.py"
    script.write_text(REPORT)
    done = subprocess.run(
        [*words, *command(), str(script)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "XDG_CONFIG_HOME": str(folder), "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)  # so it ran once
    return found


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs mpirun")
def test_mpirun_starts_a_program_once(tmp_path: Path) -> None:
    words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    found = report_of(words, tmp_path)
    assert found["MOOACTOR_HOST_NAME"] == socket.gethostname()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_torchrun_starts_a_program_once(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    more = ["--nproc-per-node=2", "--no-python", "--log-dir", str(tmp_path / "logs")]
    found = report_of([*words, *more], tmp_path)
    assert found["MOOACTOR_HOST_NAME"] == socket.gethostname()
