# SPDX-License-Identifier: MIT
"""How users name hosts, and how launchers name ranks."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mooactor.cluster.launch import (
    environment,
    hydra,
    nodelist,
    rendezvous,
    ssh,
    starter,
    targets,
    variables,
)
from mooactor.cluster.launch.environment import Rank
from mooactor.cluster.launch.rendezvous import Meeting
from mooactor.cluster.launch.targets import LaunchError, Target
from tests.cluster.launched import ROOT


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("b", Target("b", "b")),
        ("b.example.org", Target("b.example.org", "b.example.org")),
        ("ann@b", Target("b", "b", "ann")),
        ("ann.x@b:2222", Target("b", "b", "ann.x", 2222)),
        ("10.0.0.5:22", Target("10.0.0.5", "10.0.0.5", None, 22)),
        ("fd00::5", Target("fd00::5", "fd00::5")),
        ("[fd00::5]:2222", Target("fd00::5", "fd00::5", None, 2222)),
        ("ann@fd00::5", Target("fd00::5", "fd00::5", "ann")),
        ("fe80::1%eth0", Target("fe80::1%eth0", "fe80::1%eth0")),
        ("node-7_a", Target("node-7_a", "node-7_a")),
    ],
)
def test_a_host_is_written_as_for_ssh(text: str, target: Target) -> None:
    assert targets.of_list(text) == [target]


@pytest.mark.parametrize(
    "text",
    ["-oProxyCommand=x", "b c", "b;c", "b:0", "b:65536", "b:x", "@b", "a@-b", "", ","],
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(LaunchError, match="host"):
        targets.of_list(text)


def test_hosts_of_one_address_differ_by_their_ports() -> None:
    names = [target.name for target in targets.of_list("b:2001,b:2002,c")]
    assert names == ["b:2001", "b:2002", "c"]
    with pytest.raises(LaunchError, match="b is named twice"):
        targets.of_list("b,c,b")


def test_this_machine_needs_no_ssh() -> None:
    for name in ("localhost", "127.0.0.1", "::1", socket.gethostname()):
        (here,) = targets.of_list(name)
        assert here.is_here
    with pytest.raises(LaunchError, match="are both this machine"):
        targets.of_list(f"localhost,b,{socket.gethostname()}")
    there = targets.of_list("elsewhere,localhost:2222,someone@127.0.0.1")
    assert not any(target.is_here for target in there)


def test_a_hostfile_has_numbers_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# all\n\nb slots=4\nann@c:22 num_cpus=8 num_gpus=2 # large\n")
    assert targets.of_file(str(file)) == [
        Target("b", "b", num_cpus=4),
        Target("c", "c", "ann", 22, num_cpus=8, num_gpus=2),
    ]


def test_a_hostfile_may_be_from_an_editor_that_marks_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_bytes(b"\xef\xbb\xbfb slots=4\r\nc\r\n")
    assert targets.of_file(str(file)) == [
        Target("b", "b", num_cpus=4),
        Target("c", "c"),
    ]


@pytest.mark.parametrize("line", ["b slots", "b slots=x", "b cores=4", "b slots=-1"])
def test_a_wrong_line_of_a_hostfile_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"a\n{line}\n")
    with pytest.raises(LaunchError, match="line 2"):
        targets.of_file(str(file))


def test_a_hostfile_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="No such file.*: check --hostfile"):
        targets.of_file(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("code", "last", "said"),
    [
        (255, "", "check that ssh -o BatchMode=yes -p 22 ann@b true works"),
        (255, "Permission denied (publickey)", "give it your public key"),
        (127, "", "it has no python3: install Python there"),
        (126, "", "name another interpreter with --python"),
        (137, "its words", "killed by signal 9 (SIGKILL); find out who sent it"),
        (163, "", "exit code 163; run python3"),  # signal 35, which has no name
        (2, "no port is free", "exit code 2: no port is free; mend that"),
        (3, "", "exit code 3; run python3 -m mooactor doctor there by hand"),
        (999, "", "exit code 999; run python3"),
    ],
)
def test_a_host_that_did_not_start_is_told_with_the_next_step(
    code: int, last: str, said: str
) -> None:
    target = Target("b", "b", "ann", 22)
    assert said in ssh.failure_to_start(target, "python3", code, last)


def test_the_end_of_a_host_that_ran_is_told_without_advice() -> None:
    target = Target("b", "b")
    assert ssh.failure(target, "python3", 137, "") == "killed by signal 9 (SIGKILL)"
    assert ssh.failure(target, "python3", 1, "why") == "exit code 1: why"
    said = ssh.failure(target, "python3", starter.UNHEARD, "it has left")
    assert said == "it had heard nothing of this command for 60 s"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n1,n2", ["n1", "n2"]),
        ("n[1-3,5]", ["n1", "n2", "n3", "n5"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("gpu[1-2],cpu7", ["gpu1", "gpu2", "cpu7"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("a[1]-ib", ["a1-ib"]),
    ],
)
def test_a_nodelist_of_slurm_is_expanded(text: str, names: list[str]) -> None:
    assert nodelist.expand(text) == names


@pytest.mark.parametrize("text", ["", ",", "n[1-", "n[a-b]", "n1,", "n[]", "n[1-2"])
def test_what_is_no_nodelist_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no (list|range) of nodes"):
        nodelist.expand(text)


SRUN = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_NODELIST": "n[1-4]",
    "SLURM_STEP_NODELIST": "n[2-3]",
    "SLURM_JOB_NUM_NODES": "4",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
    "SLURMD_NODENAME": "n3",
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "3921608705",
}
TORCHRUN = {
    "RANK": "2",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "0",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "first",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
}
HERE = socket.gethostname()


def test_every_launcher_says_which_rank_this_is() -> None:
    rank_of = environment.rank_of
    assert rank_of(SRUN) == Rank("srun", 1, 0, 2, "n2", "n3", "77.0")
    assert rank_of(MPIRUN) == Rank("mpirun", 3, 1, 2, None, HERE, "3921608705")
    assert rank_of(TORCHRUN) == Rank(
        "torchrun", 2, 0, 2, "first", HERE, "first-29500-none"
    )
    pod = {
        "JOB_COMPLETION_INDEX": "1",
        "MOOACTOR_FIRST": "j-0.j",
        "MOOACTOR_HOSTS": "3",
    }
    assert rank_of(pod) == Rank("Kubernetes", 1, 0, 3, "j-0.j", HERE, "j-0.j")
    assert rank_of({}) is None


def test_mpirun_inside_a_slurm_job_is_mpirun() -> None:
    rank = environment.rank_of({**SRUN, **MPIRUN})
    assert rank is not None and rank.launcher == "mpirun"


PMI = {"PMI_RANK": "3", "PMI_SIZE": "4"}
HYDRA = {**PMI, "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}


def test_srun_that_serves_mpi_is_srun() -> None:
    """srun --mpi=pmi2, which may be the default of a cluster."""
    rank = environment.rank_of({**SRUN, **PMI, "PMI_JOBID": "77.0"})
    assert rank == Rank("srun", 1, 0, 2, "n2", "n3", "77.0")


def test_mpiexec_inside_a_slurm_job_is_mpiexec() -> None:
    """Hydra has its proxies started by srun, one on each node."""
    rank = environment.rank_of({**SRUN, **HYDRA})
    assert rank == Rank("mpiexec", 3, 1, 2, None, HERE, "77")


@pytest.mark.parametrize(
    "local",
    [
        {"PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "2", "PALS_LOCAL_RANKID": "1"},
        {"PALS_LOCAL_RANKID": "1", "PALS_LOCAL_SIZE": "2"},
    ],
)
def test_pals_says_which_ranks_are_on_one_host(local: dict[str, str]) -> None:
    rank = environment.rank_of({**PMI, **local, "PBS_JOBID": "8.lab"})
    assert rank == Rank("mpiexec", 3, 1, 2, None, HERE, "8.lab")


def test_ranks_that_do_not_know_their_hosts_are_told_what_to_set() -> None:
    with pytest.raises(LaunchError, match="PMI_SIZE=4.* set MPI_LOCALRANKID and"):
        environment.rank_of(PMI)
    alone = environment.rank_of({"PMI_RANK": "0", "PMI_SIZE": "1"})
    assert alone is not None and (alone.local, alone.hosts) == (0, 1)


@pytest.mark.parametrize(
    ("one", "more"),
    [
        (TORCHRUN, {"MASTER_ADDR": "other"}),
        (TORCHRUN, {"MASTER_PORT": "29501"}),
        (TORCHRUN, {"TORCHELASTIC_RUN_ID": "b"}),
        (HYDRA, {"PBS_JOBID": "8.lab"}),
        (HYDRA, {"MOOACTOR_JOB": "b"}),
        (MPIRUN, {"PMIX_NAMESPACE": "b"}),
        (SRUN, {"SLURM_STEP_ID": "1"}),
    ],
)
def test_jobs_of_one_user_do_not_meet(
    one: dict[str, str], more: dict[str, str]
) -> None:
    first, second = environment.rank_of(one), environment.rank_of({**one, **more})
    assert first is not None and second is not None
    assert rendezvous.path_of(first, "") != rendezvous.path_of(second, "")
    assert rendezvous.port_of(first, None) != rendezvous.port_of(second, None)


@pytest.mark.parametrize("between", [[], ["sh", "-c", '"$@"; true', "sh"]])
def test_a_job_of_hydra_is_known_by_the_mpiexec_of_its_proxy(
    between: list[str],
) -> None:
    asked = "from mooactor.cluster.launch import hydra; print(hydra.control_port())"
    rank = [*between, sys.executable, "-c", asked]
    # A stand-in for the proxy, which has the rank as its child.
    proxy = f"import subprocess; subprocess.run({rank!r})"
    words = [
        "hydra_pmi_proxy",
        "-c",
        proxy,
        "--control-port",
        "n1:4711",
        "--rmk",
        "user",
    ]
    done = subprocess.run(
        words, executable=sys.executable, cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout == "n1:4711\n", done.stderr
    assert hydra.control_port() is None


def test_a_batch_script_without_srun_is_told_to_use_it() -> None:
    alone = {k: v for k, v in SRUN.items() if k != "SLURM_STEP_ID"}
    with pytest.raises(LaunchError, match="srun --ntasks-per-node=1 mooactor run"):
        environment.rank_of(alone)
    assert environment.rank_of({**alone, "SLURM_JOB_NUM_NODES": "1"}) is None


@pytest.mark.parametrize("step", ["4294967290", "4294967291"])
def test_the_shell_of_salloc_and_a_batch_script_are_no_steps(step: str) -> None:
    shell = {**SRUN, "SLURM_STEP_ID": step, "SLURM_STEP_NUM_NODES": "1"}
    shell["SLURM_STEP_NODELIST"] = "n1"
    with pytest.raises(LaunchError, match="srun --ntasks-per-node=1 mooactor run"):
        environment.rank_of(shell)
    with pytest.raises(LaunchError, match="srun --ntasks-per-node=1 mooactor run"):
        environment.rank_of({**shell, "PMI_RANK": "0", "PMI_SIZE": "1"})
    assert environment.rank_of({**shell, "SLURM_JOB_NUM_NODES": "1"}) is None
    assert environment.rank_of({**shell, **HYDRA}) == environment.rank_of(
        {**HYDRA, "SLURM_JOB_ID": "77"}
    )


def test_variables_that_contradict_themselves_are_named() -> None:
    with pytest.raises(LaunchError, match="SLURM_LOCALID"):
        environment.rank_of({k: v for k, v in SRUN.items() if k != "SLURM_LOCALID"})


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
    assert variables.settings(environ) == expected


def test_a_variable_has_its_value_or_that_of_here() -> None:
    given = ["A=1", "B", "C=", "D=x=y", "A=2"]
    found = variables.named(given, {"A": "here", "B": "b"})
    assert found == {"A": "2", "B": "b", "C": "", "D": "x=y"}


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("NOT_THERE", "not set here; write --env NOT_THERE=VALUE"),
        ("=x", "no variable"),
        ("a b=x", "no variable"),
        ("A=x\0y", "no variable"),
        ("MOOACTOR_KEY=ab", "--key-file"),
        ("MOOACTOR_ADDRESS", "the launch sets it"),
    ],
)
def test_what_is_no_variable_is_refused(option: str, why: str) -> None:
    with pytest.raises(LaunchError, match=why):
        variables.named([option], {})


def test_the_port_follows_from_the_job_and_stays_in_its_range() -> None:
    def port(job: str, ports: range | None = None, launcher: str = "srun") -> int:
        rank = Rank(launcher, 0, 0, 2, "n1", "n1", job)
        return rendezvous.port_of(rank, ports)

    assert port("1.0", launcher="Kubernetes") == 4431
    assert port("1.0") == port("1.0") != port("2.0")
    assert all(20000 <= port(f"{n}.0") <= 29999 for n in range(100))
    some = {port(f"{n}.0", range(3000, 3004)) for n in range(100)}
    assert some == {3000, 3001, 3002, 3003}


def test_only_this_user_may_write_or_read_the_file_of_a_job(tmp_path: Path) -> None:
    path = str(tmp_path / "runs" / "srun-1.0")
    assert rendezvous.read(path) is None
    for port in (1, 2):  # the file of an earlier job is replaced
        meeting = Meeting("ab" * 32, [f"tcp://n1:{port}"])
        rendezvous.publish(path, meeting)
        assert rendezvous.read(path) == meeting
    assert Path(path).stat().st_mode & 0o777 == 0o600
    assert Path(path).parent.stat().st_mode & 0o777 == 0o700
    Path(path).chmod(0o644)
    with pytest.raises(LaunchError, match="others may read it"):
        rendezvous.read(path)
    rendezvous.withdraw(path)
    assert rendezvous.read(path) is None


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LaunchError, match="--rendezvous"):
        rendezvous.publish(str(tmp_path / "file" / "job"), Meeting("", []))
