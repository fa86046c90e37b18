# SPDX-License-Identifier: MIT
"""How processes that were started together find the broker, and get the key.

If the user named a key and the environment names the first host, both are known: the
broker is there, at a port that follows from the job. Otherwise the first process makes
a key, and leaves it with its addresses in a file that only this user can read, in a
directory that all hosts share, by default in the home directory. It removes the file at
the end. No key is ever on a command line.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from mooactor.cluster.launch.environment import Rank
from mooactor.cluster.launch.targets import LaunchError

BROKER_PORT = 4431
_FROM, _TO = 20000, 29999  # for the brokers of jobs that may share a host
_MOST_BYTES = 1 << 16


class Meeting(NamedTuple):
    """The broker of a job, as its hosts need to know it."""

    key: str
    addresses: list[str]  # tcp://ADDR:PORT, to be tried in this order


def directory(environ: Mapping[str, str] = os.environ) -> str:
    """Where the files of jobs lie, unless ``--rendezvous`` names another place."""
    base = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.config")
    return os.path.join(base, "mooactor", "runs")


def path_of(rank: Rank, folder: str) -> str:
    """The file of a job."""
    job = re.sub(r"[^\w.-]", "_", f"{rank.launcher}-{rank.job}")
    return os.path.join(folder, job)


def port_of(rank: Rank, ports: range | None) -> int:
    """The broker's port, where it must follow from the job: one of `ports`, or the
    usual one where each host of a job has a network of its own."""
    if ports is None and rank.launcher == "Kubernetes":
        return BROKER_PORT
    usable = ports or range(_FROM, _TO + 1)
    return usable[zlib.crc32(rank.job.encode()) % len(usable)]


def publish(path: str, meeting: Meeting) -> None:
    """Leave the meeting there, whole at once, in the place of an older one.

    Raises:
      LaunchError: the file cannot be written.
    """
    draft = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        with open(os.open(draft, flags, 0o600), "w") as file:
            json.dump(meeting._asdict(), file)
        os.replace(draft, path)
    except OSError as error:
        raise LaunchError(
            f"the file {path}, in which the other hosts find the broker, cannot be "
            f"written ({error.strerror}): name a directory that all hosts share with "
            "--rendezvous, or a key file with --key-file"
        ) from None


def withdraw(path: str) -> None:
    """Remove the file of a job that is over."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def read(path: str) -> Meeting | None:
    """What the first process has left there; None if that is not there yet.

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
        try:
            content = json.loads(file.read(_MOST_BYTES))
            key, found = content["key"], content["addresses"]
        except (ValueError, TypeError, LookupError, RecursionError):
            return None
    if type(key) is not str or type(found) is not list:
        return None
    return Meeting(key, found) if all(type(one) is str for one in found) else None
