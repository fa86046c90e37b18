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
from typing import NamedTuple

from mooactor.cluster.launch.launch import Launch, start_host, why_not_joined
from mooactor.cluster.launch.plan import LaunchError, Plan, Target, bracketed
from mooactor.cluster.launch.ranks import Rank
from mooactor.cluster.launch.supervisor import Supervisor
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
