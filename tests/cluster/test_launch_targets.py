# SPDX-License-Identifier: MIT
"""How users name hosts, and how launchers name ranks."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mooactor.cluster.launch import job, plan, starter
from mooactor.cluster.launch.job import Rank
from mooactor.cluster.launch.plan import LaunchError, Target

HOSTS = {
    "b": Target("b", "b"),
    "ann.x@b:2222": Target("b", "b", "ann.x", 2222),
    "10.0.0.5:22": Target("10.0.0.5", "10.0.0.5", None, 22),
    "fd00::5": Target("fd00::5", "fd00::5"),
    "[fd00::5]:2222": Target("fd00::5", "fd00::5", None, 2222),
    "ann@fd00::5": Target("fd00::5", "fd00::5", "ann"),
    "fe80::1%eth0": Target("fe80::1%eth0", "fe80::1%eth0"),
    "node-7_a.example.org": Target("node-7_a.example.org", "node-7_a.example.org"),
}


def test_a_host_is_written_as_for_ssh() -> None:
    assert {text: plan.of_list(text) for text in HOSTS} == {
        text: [target] for text, target in HOSTS.items()
    }


def test_what_is_no_host_is_refused() -> None:
    for text in ("-oProxyCommand=x", "b c", "b;c", "b:0", "b:65536", "@b", "a@-b", ","):
        with pytest.raises(LaunchError, match="host"):
            plan.of_list(text)


def test_hosts_of_one_address_differ_by_their_ports() -> None:
    names = [target.name for target in plan.of_list("b:2001,b:2002,c")]
    assert names == ["b:2001", "b:2002", "c"]
    with pytest.raises(LaunchError, match="named twice in b, c, b"):
        plan.of_list("b,c,b")


def test_this_machine_needs_no_ssh() -> None:
    for name in ("localhost", "127.0.0.1", "::1", socket.gethostname()):
        (here,) = plan.of_list(name)
        assert here.is_here
    with pytest.raises(LaunchError, match="named twice"):
        plan.of_list(f"localhost,b,{socket.gethostname()}")
    there = plan.of_list("elsewhere,localhost:2222,someone@127.0.0.1")
    assert not any(target.is_here for target in there)


def test_a_hostfile_has_numbers_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    text = "# all\n\nb slots=4\nann@c:22 num_cpus=8 num_gpus=2 # large\n"
    for marked in (text, f"\ufeff{text}".replace("\n", "\r\n")):  # by an editor
        file.write_text(marked)
        assert plan.of_file(str(file)) == [
            Target("b", "b", offers=("--num-cpus", "4")),
            Target("c", "c", "ann", 22, ("--num-cpus", "8", "--num-gpus", "2")),
        ]


def test_the_first_node_of_a_list_of_slurm_is_found() -> None:
    for text, name in {
        "n1,n2": "n1",
        "n[1-3,5]": "n1",
        "n[08-11]": "n08",
        "gpu[1-2],cpu7": "gpu1",
        "r[1-2]n[3-4]": "r1n3",
        "a[1,3]-ib,b": "a1-ib",
    }.items():
        assert job.first_of(text) == name


def environ(text: str) -> dict[str, str]:
    """The variables that are written as for a shell."""
    return dict(pair.split("=", 1) for pair in text.split())


SRUN = environ(
    "SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_JOB_NODELIST=n[1-4] SLURM_PROCID=1 "
    "SLURM_STEP_NODELIST=n[2-3] SLURM_JOB_NUM_NODES=4 SLURM_LOCALID=0 "
    "SLURMD_NODENAME=n3 SLURM_STEP_NUM_NODES=2"
)
MPIRUN = environ(
    "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
    "OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=3921608705"
)
TORCHRUN = environ(
    "RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 GROUP_RANK=1 GROUP_WORLD_SIZE=2 "
    "MASTER_ADDR=first MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none"
)
POD = environ("JOB_COMPLETION_INDEX=1 MOOACTOR_FIRST=j-0.j MOOACTOR_HOSTS=3")
PMI = environ("PMI_RANK=3 PMI_SIZE=4")
HYDRA = PMI | environ("MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2")
HERE = socket.gethostname()


def test_every_launcher_says_which_rank_this_is() -> None:
    rank_of = job.rank_of
    assert rank_of(SRUN) == Rank("srun", 1, 0, 2, "n2", "n3", "77-0")
    assert rank_of(MPIRUN) == Rank("mpirun", 3, 1, 2, None, HERE, "3921608705")
    assert rank_of(TORCHRUN) == Rank(
        "torchrun", 2, 0, 2, "first", HERE, "first-29500-none"
    )
    assert rank_of(POD) == Rank("Kubernetes", 1, 0, 3, "j-0.j", HERE, "j-0.j")
    assert rank_of({}) is None
    # The innermost counts; srun may serve MPI, and start Hydra's proxies.
    assert rank_of({**SRUN, **MPIRUN}) == rank_of(MPIRUN)
    assert rank_of({**SRUN, **PMI, "PMI_JOBID": "77.0"}) == rank_of(SRUN)
    hydra_in_slurm = Rank("mpiexec", 3, 1, 2, None, HERE, "77")
    assert rank_of({**SRUN, **HYDRA}) == hydra_in_slurm


def test_mpirun_counts_a_host_that_has_fewer_processes_than_the_others() -> None:
    rank = job.rank_of({**MPIRUN, "OMPI_COMM_WORLD_SIZE": "5"})
    assert rank is not None and rank.hosts == 3


def test_pals_says_which_ranks_are_on_one_host() -> None:
    for kind in ("PMI_LOCAL_RANK PMI_LOCAL_SIZE", "PALS_LOCAL_RANKID PALS_LOCAL_SIZE"):
        local = dict(zip(kind.split(), ("1", "2"), strict=True))
        rank = job.rank_of({**PMI, **local, "PBS_JOBID": "8.lab"})
        assert rank == Rank("mpiexec", 3, 1, 2, None, HERE, "8.lab")


def test_ranks_that_do_not_know_their_hosts_are_told_what_to_set() -> None:
    with pytest.raises(LaunchError, match="PMI_SIZE=4.* set MPI_LOCALRANKID and"):
        job.rank_of(PMI)
    assert job.rank_of({"PMI_RANK": "0", "PMI_SIZE": "1"}) is None


def test_jobs_of_one_user_do_not_meet() -> None:
    for one, more in (
        (TORCHRUN, {"MASTER_ADDR": "other"}),
        (TORCHRUN, {"MASTER_PORT": "29501"}),
        (TORCHRUN, {"TORCHELASTIC_RUN_ID": "b"}),
        (HYDRA, {"PBS_JOBID": "8.lab"}),
        (HYDRA, {"MOOACTOR_JOB": "b"}),
        (MPIRUN, {"PMIX_NAMESPACE": "b"}),
        (SRUN, {"SLURM_STEP_ID": "1"}),
    ):
        first, second = job.rank_of(one), job.rank_of({**one, **more})
        assert first is not None and second is not None
        assert job.path_of(first, "") != job.path_of(second, "")
        assert job.port_of(first, None) != job.port_of(second, None)


def test_a_batch_script_without_srun_is_told_to_use_it() -> None:
    alone = {k: v for k, v in SRUN.items() if k != "SLURM_STEP_ID"}
    with pytest.raises(LaunchError, match="srun --ntasks-per-node=1 mooactor run"):
        job.rank_of(alone)
    assert job.rank_of({**alone, "SLURM_JOB_NUM_NODES": "1"}) is None


def test_the_shell_of_salloc_and_a_batch_script_are_no_steps() -> None:
    shell = {**SRUN, "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_NODES": "1"}
    shell["SLURM_STEP_NODELIST"] = "n1"
    with pytest.raises(LaunchError, match="srun --ntasks-per-node=1 mooactor run"):
        job.rank_of(shell)
    assert job.rank_of({**shell, "SLURM_JOB_NUM_NODES": "1"}) is None
    assert job.rank_of({**shell, **HYDRA}) == job.rank_of(
        {**HYDRA, "SLURM_JOB_ID": "77"}
    )


def test_settings_that_hold_for_all_hosts_go_along() -> None:
    environ = {
        "MOOACTOR_STRIPES": "4",
        "MOOACTOR_TRANSPORT": "tcp",
        "HOME": "/x",
        **{f"MOOACTOR_{name}": "x" for name in ("KEY", "KEY_FILE", "ADDRESS", "PORTS")},
        **{f"MOOACTOR_{name}": "x" for name in ("BIND", "HOST_ID", "HOST_NAME")},
        "MOOACTOR_SESSION_MARK": "x",
    }
    expected = {"MOOACTOR_STRIPES": "4", "MOOACTOR_TRANSPORT": "tcp"}
    assert plan.settings(environ) == expected


def test_a_variable_has_its_value_or_that_of_here() -> None:
    given = ["A=1", "B", "C=", "D=x=y", "A=2"]
    found = plan.named(given, {"A": "here", "B": "b"})
    assert found == {"A": "2", "B": "b", "C": "", "D": "x=y"}
    for option, why in {
        "NOT_THERE": "not set here; write --env NOT_THERE=VALUE",
        "=x": "no variable",
        "A=x\0y": "no variable",
        "MOOACTOR_KEY=ab": "--key-file",
        "MOOACTOR_ADDRESS": "the launch sets it",
    }.items():
        with pytest.raises(LaunchError, match=why):
            plan.named([option], {})


def test_the_port_follows_from_the_job_and_stays_in_its_range() -> None:
    def port(name: str, ports: range | None = None, launcher: str = "srun") -> int:
        rank = Rank(launcher, 0, 0, 2, "n1", "n1", name)
        return job.port_of(rank, ports)

    assert port("1.0", launcher="Kubernetes") == 4431
    assert port("1.0") == port("1.0") != port("2.0")
    assert all(20000 <= port(f"{n}.0") <= 29999 for n in range(100))
    some = {port(f"{n}.0", range(3000, 3004)) for n in range(100)}
    assert some == {3000, 3001, 3002, 3003}


def test_only_this_user_may_write_or_read_the_file_of_a_job(tmp_path: Path) -> None:
    path = str(tmp_path / "runs" / "srun-1.0")
    assert job.read(path) is None
    for port in (1, 2):  # the file of an earlier job is replaced
        meeting = ("ab" * 32, [f"tcp://n1:{port}", f"tcp://n2:{port}"])
        job.publish(path, *meeting)
        assert job.read(path) == meeting
    assert Path(path).stat().st_mode & 0o777 == 0o600
    assert Path(path).parent.stat().st_mode & 0o777 == 0o700
    Path(path).chmod(0o644)
    with pytest.raises(LaunchError, match="others may read it"):
        job.read(path)
    (tmp_path / "file").touch()
    with pytest.raises(LaunchError, match="--rendezvous"):
        job.publish(str(tmp_path / "file" / "job"), "", [])


def test_an_interpreter_that_is_too_old_is_named() -> None:
    line = starter.ORDER_ON_STDIN.replace("(3, 11)", "(9, 9)")
    done = subprocess.run([sys.executable, "-c", line], stderr=subprocess.PIPE)
    assert done.returncode == 2
    said = done.stderr.decode()
    assert said.startswith(f"{starter.FAILED}{sys.executable} is Python 3.")
    assert "--python" in said and "\n" not in line and "'" not in line
