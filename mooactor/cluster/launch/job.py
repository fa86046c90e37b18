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
import json
import os
import re
import socket
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from mooactor.cluster.launch.launch import (
    Launch,
    Supervisor,
    start_host,
    why_not_joined,
)
from mooactor.cluster.launch.plan import LaunchError, Plan, Target, bracketed
from mooactor.control import addresses, secret
from mooactor.tensors import interfaces

BROKER_PORT = 4431
_FROM, _TO = 20000, 29999  # for the brokers of jobs that may share a host
_MOST_BYTES = 1 << 16
_POLL_S, _CONNECT_S = 0.2, 0.5
_SIGNALLED = 128  # a shell's
_STAYS_S = 1.0  # longer than the program: its host may be told to end by then


class Meeting(NamedTuple):
    """The broker of a job, as its hosts need to know it."""

    key: str
    addresses: list[str]  # tcp://ADDR:PORT, to be tried in this order


class Job(NamedTuple):
    """A rank's view of its job.

    Args:
      path: the file that tells the other hosts of the broker; None: they know.
    """

    rank: Rank
    path: str | None

    def broker(self, plan: Plan) -> tuple[str, str]:
        """The address of rank 0, and where its broker listens."""
        if self.rank.hosts == 1:
            return "127.0.0.1", "127.0.0.1"
        first = self.rank.first
        named = plan.address or (_resolved(first) if first else None)
        address = bracketed(named or addresses.own())
        return address, "*" if self.path else f"*:{port_of(self.rank, plan.ports)}"

    def publish(self, key: str, address: str, port: int) -> None:
        """Tell the other hosts of the broker of rank 0."""
        if self.path is not None and self.rank.hosts != 1:
            own = [addresses.own(), *interfaces.addresses().values()]
            others = [bracketed(a) for a in own if not addresses.is_loopback(a)]
            found = dict.fromkeys([address, *others])
            publish(self.path, Meeting(key, [f"tcp://{one}:{port}" for one in found]))

    def meeting(self, plan: Plan) -> Meeting | None:
        """The broker, as far as another rank knows it by now."""
        if self.path is not None:
            return read(self.path)
        port = port_of(self.rank, plan.ports)
        return Meeting(plan.key, [f"tcp://{bracketed(self.rank.first or '')}:{port}"])


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
    name = job.rank.host
    found: list[tuple[str, str]] = []

    def is_found() -> bool:
        meeting = job.meeting(plan)
        reachable = _reachable(meeting.addresses) if meeting else None
        if meeting and reachable:
            found.append((meeting.key, reachable))
        return bool(found)

    if not supervisor.wait(is_found, plan.patience_s, every_s=_POLL_S):
        where = f"in {job.path}" if job.path else f"at {job.rank.first}"
        raise LaunchError(
            f"host {name} has found no broker {where} in {plan.patience_s:.0f} s: look "
            "at the output of rank 0"
        )
    plan.key, address = found[0]
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    target = Target(name, "localhost")
    more = ("--with-broker",)
    program = start_host(supervisor, plan, target, host, int(port), *more)
    supervisor.wait(lambda: program.ready or program.failed, plan.patience_s)
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
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        with contextlib.suppress(OSError, ValueError):
            where = (host.strip("[]"), int(port))
            with socket.create_connection(where, _CONNECT_S) as connection:
                return f"tcp://{bracketed(str(connection.getpeername()[0]))}:{port}"
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


def publish(path: str, meeting: Meeting) -> None:
    """Leave the meeting there, whole at once, in the place of an older one.

    Raises:
      LaunchError: the file cannot be written.
    """
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd, draft = tempfile.mkstemp(dir=folder)  # which others cannot read
        with open(fd, "w") as file:
            json.dump(meeting._asdict(), file)
        os.replace(draft, path)
    except OSError as error:
        raise LaunchError(
            f"the file {path}, in which the other hosts find the broker, cannot be "
            f"written ({error.strerror}): name a directory that all hosts share with "
            "--rendezvous, or a key file with --key-file"
        ) from None


def read(path: str) -> Meeting | None:
    """The meeting that rank 0 has left there; None if there is none yet.

    Raises:
      LaunchError: others than this user could have written it.
    """
    # A file server tells a host that a new file is there once the directory is read.
    with contextlib.suppress(OSError):
        os.listdir(os.path.dirname(path))
    try:
        file = open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb")
    except OSError:
        return None
    with file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise LaunchError(
                f"{path} belongs to another user, or others may read it: remove it"
            )
        with contextlib.suppress(ValueError, TypeError, LookupError, RecursionError):
            content = json.loads(file.read(_MOST_BYTES))
            key, found = content["key"], [*content["addresses"]]
            if all(type(text) is str for text in (key, *found)):
                return Meeting(key, found)
    return None


# -- this process among those that were started together ---------------------------

_Environment = Mapping[str, str]


class Rank(NamedTuple):
    """This process among those that were started together.

    Args:
      launcher: what started it, as users call it.
      number: 0 runs the broker and the program.
      local: its number among those of the same host; only 0 runs a host.
      hosts: how many hosts there are, if that is known.
      first: a name or address of the host of number 0, if that is known;
        MOOACTOR_FIRST says it where it is not so.
      host: the name of this host.
      job: differs between jobs of one user that may run at the same time;
        MOOACTOR_JOB says it where nothing else does.
    """

    launcher: str
    number: int
    local: int
    hosts: int | None
    first: str | None
    host: str
    job: str


def rank_of(environ: _Environment) -> Rank | None:
    """This process's rank; None if nothing of the kind has started it. The innermost
    counts: mpirun inside a Slurm job is mpirun.

    Raises:
      LaunchError: the variables contradict themselves.
    """
    environ = _without_shell(environ)
    for launcher, signs, read in _LAUNCHERS:
        if all(sign in environ for sign in signs):
            try:
                number, local, hosts, first, job = read(environ)
            except (KeyError, ValueError) as error:
                raise LaunchError(
                    f"{' and '.join(signs)} are set, but {error} is missing or wrong: "
                    "name the hosts with --hosts, or use --local-only"
                ) from None
            first = environ.get("MOOACTOR_FIRST") or first
            job = environ.get("MOOACTOR_JOB") or job
            named = environ.get("SLURMD_NODENAME") if launcher == "srun" else None
            host = named or socket.gethostname()
            return Rank(launcher, int(number), int(local), hosts, first, host, job)
    if int(environ.get("SLURM_JOB_NUM_NODES") or 1) > 1:
        raise LaunchError(
            f"this Slurm job has {environ['SLURM_JOB_NUM_NODES']} nodes, and srun has "
            "not started this command: write srun --ntasks-per-node=1 mooactor run …, "
            "or use --local-only"
        )
    return None


# Rank, rank on the host, number of hosts, first host, job.
_Read = tuple[str, int | str, int | None, str | None, str]


def _torchrun(environ: _Environment) -> _Read:
    # It counts workers; its "groups" are the hosts. All jobs have the same run id but
    # for --rdzv-id, while no two have one port of one host.
    first, hosts = environ["MASTER_ADDR"], int(environ["GROUP_WORLD_SIZE"])
    job = f"{environ['MASTER_PORT']}-{environ.get('TORCHELASTIC_RUN_ID', '')}"
    return environ["RANK"], environ["LOCAL_RANK"], hosts, first, f"{first}-{job}"


def _open_mpi(environ: _Environment) -> _Read:
    local = environ["OMPI_COMM_WORLD_LOCAL_RANK"]
    here = int(environ["OMPI_COMM_WORLD_LOCAL_SIZE"])
    hosts = _hosts(int(environ["OMPI_COMM_WORLD_SIZE"]), here)
    job = environ.get("PMIX_NAMESPACE") or environ["OMPI_MCA_ess_base_jobid"]
    return environ["OMPI_COMM_WORLD_RANK"], local, hosts, None, job


def _hosts(size: int, here: int) -> int:
    """No MPI says how many hosts there are: all have as many processes, or users say
    --min-hosts."""
    return -(-size // here)


def _pmi(environ: _Environment) -> _Read:
    # MPICH's Hydra, Intel MPI, PALS on HPE Cray and others.
    size = int(environ["PMI_SIZE"])
    told = _told_local(environ) or ((0, 1) if size == 1 else None)
    if told is None:
        names = " or ".join(map(" and ".join, _LOCAL))
        raise LaunchError(
            f"PMI_SIZE={size}, but nothing says which of these processes are on one "
            f"host: set {names} for each (0 and 1 if there is one on each host), or "
            "name the hosts with --hosts"
        )
    named = (environ[name] for name in _JOBS if environ.get(name))
    job = hydra_port() or next(named, "mpiexec")
    return environ["PMI_RANK"], told[0], _hosts(size, told[1]), None, job


#: By launcher: a rank's number on its host, and the number of ranks there. Hydra and
#: Intel MPI, PALS by the way of PMI, and by its own.
_LOCAL = (
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
    ("PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"),
)
#: Where an mpiexec does not say which job this is: it hands on its own environment, so
#: a batch system's number reaches all ranks.
_JOBS = ("PMI_JOBID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "SLURM_JOB_ID")


def _told_local(environ: _Environment) -> tuple[int, int] | None:
    for rank, ranks in _LOCAL:
        if rank in environ and ranks in environ:
            return int(environ[rank]), int(environ[ranks])
    return None


def hydra_port() -> str | None:
    """``HOST:PORT`` of the mpiexec of MPICH, Hydra, that has started this process, or
    None. No variable tells its jobs apart, but each rank is a descendant of a proxy on
    its host, whose command line has that."""
    pid = os.getppid()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/cmdline", errors="replace") as file:
                words = file.read().split("\0")
            if os.path.basename(words[0]) == "hydra_pmi_proxy":
                return words[words.index("--control-port") + 1]
            with open(f"/proc/{pid}/stat", errors="replace") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])  # its parent
        except (OSError, ValueError, IndexError):
            break  # it has just ended, or belongs to another user
    return None


#: Slurm's numbers of the steps of salloc's shell (SLURM_INTERACTIVE_STEP) and of a
#: batch script: these have one task on the job's first node, whatever the job has.
_NO_STEPS = ("4294967290", "4294967291")


def _without_shell(environ: _Environment) -> _Environment:
    """The environment without what Slurm sets for a shell that it starts as a step. If
    it serves MPI to all steps, the shell is a rank of one, whose host nobody tells."""
    if environ.get("SLURM_STEP_ID") not in _NO_STEPS:
        return environ
    dropped = {"SLURM_STEP_ID"}
    if environ.get("PMI_SIZE") == "1" and _told_local(environ) is None:
        dropped.add("PMI_RANK")
    return {key: value for key, value in environ.items() if key not in dropped}


def _slurm(environ: _Environment) -> _Read:
    nodes = environ.get("SLURM_STEP_NODELIST") or environ["SLURM_JOB_NODELIST"]
    names = nodes_of(nodes)
    job = f"{environ['SLURM_JOB_ID']}.{environ['SLURM_STEP_ID']}"
    local = environ["SLURM_LOCALID"]
    return environ["SLURM_PROCID"], local, len(names), names[0], job


_PART = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
_MOST_NODES = 1 << 20  # a longer list is no list of a cluster


def nodes_of(text: str) -> list[str]:
    """The names of Slurm's short form, in order: ``n[1-3,05],gpu7`` (slurm.conf(5),
    NodeName).

    Raises:
      ValueError: the text has no such form.
    """
    parts = _PART.findall(text)
    names = [name for part in parts for name in _expanded(part)]
    if not names or ",".join(parts) != text or len(names) > _MOST_NODES:
        raise ValueError(f"{text!r} is no list of nodes")
    return names


def _expanded(part: str) -> Iterator[str]:
    """Groups may follow each other: ``rack[1-2]node[1-4]``."""
    head, bracket, rest = part.partition("[")
    if not bracket:
        yield part
        return
    group, _, tail = rest.partition("]")
    for word in group.split(","):
        first, dash, last = word.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"{word!r} is no range of nodes")
        for number in range(int(first), int(last or first) + 1)[:_MOST_NODES]:
            for more in _expanded(tail):
                yield head + str(number).zfill(len(first)) + more


def _kubernetes(environ: _Environment) -> _Read:
    # The pods of an indexed Job are called JOB-INDEX, and its headless Service makes
    # names of that. This asks the resolver, which may take its time.
    name, dot, domain = socket.getfqdn().partition(".")
    pod = re.sub(r"-\d+$", "-0", name) + dot + domain
    first = environ.get("MOOACTOR_FIRST") or pod
    hosts = int(environ.get("MOOACTOR_HOSTS") or 0) or None
    return environ["JOB_COMPLETION_INDEX"], 0, hosts, first, first


#: Launcher, the variables by which it is known, and what it says.
_LAUNCHERS: tuple[tuple[str, tuple[str, ...], Callable[[_Environment], _Read]], ...] = (
    ("torchrun", ("RANK", "WORLD_SIZE", "MASTER_ADDR"), _torchrun),
    ("mpirun", ("OMPI_COMM_WORLD_RANK",), _open_mpi),
    # Hydra sets the last two beside the first two; inside a Slurm job its proxies are
    # tasks of srun. srun --mpi=pmi2 sets the first two itself.
    ("mpiexec", ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"), _pmi),
    ("srun", ("SLURM_PROCID", "SLURM_STEP_ID"), _slurm),
    ("mpiexec", ("PMI_RANK", "PMI_SIZE"), _pmi),
    ("Kubernetes", ("JOB_COMPLETION_INDEX",), _kubernetes),
)
