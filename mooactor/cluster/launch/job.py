# SPDX-License-Identifier: MIT
"""A launch by srun, mpirun, torchrun or Kubernetes: they have started this command on
every host.

Rank 0 runs the broker, a host and the program. The first process of each other host
runs a host, which ends with the broker; further ones on the same host have nothing to
do.

If the user named a key and the environment names the first host, all ranks know where
the broker is: at a port that follows from the job. Otherwise rank 0 leaves the broker's
addresses and the key in a file that only this user can read, in a directory that all
hosts share, by default in the home directory. It removes the file at the end. No key is
ever on a command line.

Each of these launchers starts the same command on every host, with variables that say
which one this is; `_LAUNCHERS` is the table of them. Invariant: the ``job`` of a `Rank`
is the same for all ranks of a job, and another one for each job of this user that may
run at the same time. It names the file by which the ranks meet, and the broker's port:
jobs with one name take each other's hosts.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import tempfile
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from mooactor.cluster.launch.launch import (
    Launch,
    Supervisor,
    start_host,
    why_not_joined,
)
from mooactor.cluster.launch.plan import LaunchError, Plan, Target
from mooactor.control import addresses, secret
from mooactor.host.addresses import BROKER_PORT
from mooactor.tensors import interfaces

_FROM, _TO = 20000, 29999  # for the brokers of jobs that may share a host
_CONNECT_S = 0.5
_SIGNALLED = 128  # a shell's
_STAYS_S = 1.0  # longer than the program: its host may be told to end by then


class Job(NamedTuple):
    """A rank's view of its job.

    Args:
      path: the file that tells the other hosts of the broker; None: they know.
    """

    rank: Rank
    path: str | None

    def broker(self, plan: Plan) -> tuple[str, str, int]:
        """The address of rank 0, and where its broker listens: port 0 is any."""
        if self.rank.hosts == 1:
            return "127.0.0.1", "127.0.0.1", 0
        first = self.rank.first
        address = plan.address or (first and _resolved(first)) or addresses.own()
        return address, "*", 0 if self.path else port_of(self.rank, plan.ports)

    def publish(self, key: str, address: str, port: int) -> None:
        """Tell the other hosts of the broker of rank 0."""
        if self.path is not None and self.rank.hosts != 1:
            others = [addresses.own(), *interfaces.addresses().values()]
            found = [address, *(o for o in others if not addresses.is_loopback(o))]
            brokers = [addresses.form(one, port) for one in dict.fromkeys(found)]
            publish(self.path, key, brokers)

    def meeting(self, plan: Plan) -> tuple[str, list[str]] | None:
        """The key, and the broker's addresses in the order in which to try them, as far
        as another rank knows them by now."""
        if self.path is not None:
            return read(self.path)
        port = port_of(self.rank, plan.ports)
        return plan.key, [addresses.form(self.rank.first or "", port)]


def run(plan: Plan, rank: Rank, folder: str, *, key_is_named: bool) -> int:
    """Do this rank's part; the exit code is that of the program on rank 0. Of another
    rank it is 0 after a signal: srun and mpirun take the highest of all."""
    path = None if key_is_named and rank.first else path_of(rank, folder)
    job = Job(rank, path)
    if rank.number == 0:
        try:
            return Launch(plan, job).run()
        finally:
            if path is not None:
                with contextlib.suppress(OSError):
                    os.unlink(path)
    if rank.local:
        return 0
    # After a signal a host stays for as long as rank 0 may need it. The end of a job
    # signals all ranks at once, and what the program saves may be on this host.
    supervisor = Supervisor(plan.grace_s + _STAYS_S)
    code = supervisor.run(lambda: _offer_host(plan, job, supervisor))
    return 0 if code > _SIGNALLED else code


def _offer_host(plan: Plan, job: Job, supervisor: Supervisor) -> int:
    name, found = job.rank.host, ""

    def is_found() -> bool:
        nonlocal found
        if meeting := job.meeting(plan):
            plan.key, tried = meeting
            found = _reachable(tried) or ""
        return bool(found)

    if not supervisor.wait(is_found, plan.patience_s):
        where = f"in {job.path}" if job.path else f"at {job.rank.first}"
        raise LaunchError(
            f"host {name} has found no broker {where} in {plan.patience_s:.0f} s: look "
            "at the output of rank 0"
        )
    target = Target(name, "localhost", offers=("--with-broker",))
    program = start_host(supervisor, plan, target, *addresses.parse(found))
    supervisor.wait(lambda: program.settled, plan.patience_s)
    if program.ready is None:
        raise LaunchError(why_not_joined(plan, program))
    return supervisor.follow(program, passes_on=False)


def _resolved(name: str) -> str | None:
    """An address of this name that other machines can use; None if it has none."""
    with contextlib.suppress(OSError):
        for *_, address in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM):
            if not addresses.is_loopback(str(address[0])):
                return str(address[0])
    return None


def _reachable(tried: list[str]) -> str | None:
    """The first of ``tcp://ADDR:PORT`` at which somebody accepts connections now, with
    its name resolved."""
    for address in tried:
        with contextlib.suppress(OSError, ValueError):
            where = addresses.parse(address)
            with socket.create_connection(where, _CONNECT_S) as connection:
                return addresses.form(str(connection.getpeername()[0]), where[1])
    return None


def port_of(rank: Rank, ports: range | None) -> int:
    """The broker's port, where it must follow from the job: one of `ports`, or the
    usual one where each host of a job has a network of its own."""
    if ports is None and rank.launcher == "Kubernetes":
        return BROKER_PORT
    usable = ports or range(_FROM, _TO + 1)
    return usable[zlib.crc32(rank.job.encode()) % len(usable)]


# -- the file of a job -------------------------------------------------------------


def directory() -> str:
    """Where the files of jobs lie, unless ``--rendezvous`` names another place."""
    return os.path.join(os.path.dirname(secret.default_path()), "runs")


def path_of(rank: Rank, folder: str) -> str:
    """The file of a job."""
    job = re.sub(r"[^\w.-]", "_", f"{rank.launcher}-{rank.job}")
    return os.path.join(folder, job)


def publish(path: str, key: str, brokers: list[str]) -> None:
    """Leave the key and the broker's addresses there, whole at once, in the place of
    older ones.

    Raises:
      LaunchError: the file cannot be written.
    """
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd, draft = tempfile.mkstemp(dir=folder)  # which others cannot read
        with open(fd, "w") as file:
            file.write(" ".join([key, *brokers]))
        os.replace(draft, path)
    except OSError as error:
        raise LaunchError(
            f"the file {path}, in which the other hosts find the broker, cannot be "
            f"written ({error.strerror}): name a directory that all hosts share with "
            "--rendezvous, or a key file with --key-file"
        ) from None


def read(path: str) -> tuple[str, list[str]] | None:
    """What rank 0 has left there; None if there is nothing yet.

    Raises:
      LaunchError: others than this user could have written it.
    """
    # A file server tells a host that a new file is there once the directory is read.
    try:
        os.listdir(os.path.dirname(path))
        file = open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW))
    except OSError:
        return None
    with file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise LaunchError(
                f"{path} belongs to another user, or others may read it: remove it"
            )
        key, *brokers = file.read().split()
    return key, brokers


# -- this process among those that were started together ---------------------------


class Rank(NamedTuple):
    """This process among those that were started together.

    Args:
      launcher: what started it, as users call it.
      number: 0 runs the broker and the program.
      local: its number among those of the same host; only 0 runs a host.
      hosts: how many hosts there are.
      first: a name or address of the host of number 0, if that is known;
        MOOACTOR_FIRST says it where it is not so.
      host: the name of this host.
      job: differs between jobs of one user that may run at the same time;
        MOOACTOR_JOB says it where nothing else does.
    """

    launcher: str
    number: int
    local: int
    hosts: int
    first: str | None
    host: str
    job: str


class _Launcher(NamedTuple):
    """The variables in which one launcher says which rank a process is.

    Args:
      signs: it is this launcher if all are set.
      local: the rank among those of the same host; empty: there is one on each.
      hosts: how many there are. No MPI says that, but how many ranks there are (the
        first of two variables) and on this host: all have as many, or users say
        --min-hosts.
      first: the host of rank 0, or a list of Slurm that begins with it.
      job: those that are set name the job.
    """

    name: str
    signs: tuple[str, ...]
    rank: str
    local: str
    hosts: tuple[str, ...]
    first: str
    job: tuple[str, ...]

    def rank_in(self, environ: Mapping[str, str]) -> Rank:
        """Raises KeyError, ValueError: a variable is missing or wrong."""
        size, here = ([int(environ[name]) for name in self.hosts] + [1])[:2]
        first = environ.get("MOOACTOR_FIRST")
        if not first and self.first:
            first = first_of(environ[self.first])
        job = "-".join(environ[name] for name in self.job if environ.get(name))
        return Rank(
            self.name,
            int(environ[self.rank]),
            int(environ[self.local]) if self.local else 0,
            -(-size // here),
            first or None,
            environ.get("SLURMD_NODENAME" if self.name == "srun" else "")
            or socket.gethostname(),
            environ.get("MOOACTOR_JOB") or job or self.name,
        )


def first_of(nodes: str) -> str:
    """The first name of Slurm's short form: ``n[1-3,05],gpu7`` (slurm.conf(5),
    NodeName)."""
    return re.sub(r"\[(\d+)[^]]*\]", r"\1", nodes).partition(",")[0]


def _mpiexec(local: str, here: str) -> _Launcher:
    """MPICH's Hydra, Intel MPI, PALS on HPE Cray and others, which do not say which job
    this is. They hand on their own environment, so a batch system's number reaches all
    ranks."""
    jobs = ("PMI_JOBID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "SLURM_JOB_ID")
    signs, ranks = ("PMI_RANK", "PMI_SIZE", local, here), ("PMI_SIZE", here)
    return _Launcher("mpiexec", signs, "PMI_RANK", local, ranks, "", jobs)


_LAUNCHERS = (
    # It counts workers; its "groups" are the hosts. All jobs have the same run id but
    # for --rdzv-id, while no two have one port of one host.
    _Launcher(
        "torchrun",
        ("RANK", "WORLD_SIZE", "MASTER_ADDR"),
        "RANK",
        "LOCAL_RANK",
        ("GROUP_WORLD_SIZE",),
        "MASTER_ADDR",
        ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"),
    ),
    _Launcher(
        "mpirun",
        ("OMPI_COMM_WORLD_RANK",),
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        "",
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    # Inside a Slurm job Hydra's proxies are tasks of srun, and srun --mpi=pmi2 itself
    # sets PMI_RANK and PMI_SIZE.
    _mpiexec("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    _Launcher(
        "srun",
        ("SLURM_PROCID", "SLURM_STEP_ID"),
        "SLURM_PROCID",
        "SLURM_LOCALID",
        ("SLURM_STEP_NUM_NODES",),
        "SLURM_STEP_NODELIST",
        ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ),
    _mpiexec("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
    _mpiexec("PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"),
    _Launcher(
        "Kubernetes",
        ("JOB_COMPLETION_INDEX",),
        "JOB_COMPLETION_INDEX",
        "",
        ("MOOACTOR_HOSTS",),
        "MOOACTOR_FIRST",
        ("MOOACTOR_FIRST",),
    ),
)
#: Slurm's numbers of the steps of salloc's shell (SLURM_INTERACTIVE_STEP) and of a
#: batch script: these have one task on the job's first node, whatever the job has.
_NO_STEPS = ("4294967290", "4294967291")


def rank_of(environ: Mapping[str, str]) -> Rank | None:
    """This process's rank; None if nothing of the kind has started it. The innermost
    counts: mpirun inside a Slurm job is mpirun.

    Raises:
      LaunchError: the variables contradict themselves.
    """
    for launcher in _LAUNCHERS:
        if all(sign in environ for sign in launcher.signs) and not (
            launcher.name == "srun" and environ["SLURM_STEP_ID"] in _NO_STEPS
        ):
            try:
                return launcher.rank_in(environ)
            except (KeyError, ValueError) as error:
                raise LaunchError(
                    f"{' and '.join(launcher.signs)} are set, but {error} is missing "
                    "or wrong: name the hosts with --hosts, or use --local-only"
                ) from None
    if (ranks := environ.get("PMI_SIZE", "1")) != "1":
        raise LaunchError(
            f"PMI_SIZE={ranks}, but nothing says which of these processes are on one "
            "host: set MPI_LOCALRANKID and MPI_LOCALNRANKS for each (0 and 1 if there "
            "is one on each host), or name the hosts with --hosts"
        )
    if (nodes := environ.get("SLURM_JOB_NUM_NODES", "1")) != "1":
        raise LaunchError(
            f"this Slurm job has {nodes} nodes, and srun has not started this command: "
            "write srun --ntasks-per-node=1 mooactor run …, or use --local-only"
        )
    return None
