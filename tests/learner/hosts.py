# SPDX-License-Identifier: MIT
"""Hosts for the tests of learner groups: network namespaces joined by a cable.

`Cable` is two hosts and the link between them. `Ranks` are processes on these hosts
which are members of one group and do what they are told; this module is also the
program that they run. They know nothing of sessions: a group needs its segment only.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from typing import Any

import numpy as np

from mooactor.tensors import collective
from mooactor.tensors.collective import Outcome, SharedGroup, SharedWork

HOSTS = "ab"
_numbers = itertools.count()


def why_not() -> str | None:
    """Why there can be no namespaces here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need `ip` (package iproute2)"
    name = f"moo-probe-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return "this machine allows no network namespaces"
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return None


def ip(*arguments: str) -> str:
    """Run `ip`, and return what it prints."""
    return subprocess.run(
        ["ip", *arguments], check=True, capture_output=True, text=True
    ).stdout


class Cable:
    """Two namespaces, "a" and "b", with a link between them.

    Args:
      families: 4, 6 or both: which addresses the ends have.
    """

    def __init__(self, families: tuple[int, ...] = (4,)) -> None:
        number = f"{os.getpid() % 10000}-{next(_numbers)}"
        self.namespace = {host: f"moo-{host}-{number}" for host in HOSTS}
        for name in self.namespace.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        self.add_link("up0", 1, families)

    def add_link(
        self, name: str, subnet: int, families: tuple[int, ...] = (4,)
    ) -> None:
        """Another link: an interface `name` at both ends."""
        a, b = self.namespace.values()
        ip(*f"link add {name} netns {a} type veth peer name {name} netns {b}".split())
        for index, space in enumerate((a, b), 1):
            if 4 in families:
                address = f"10.99.{subnet}.{index}/24"
                ip("-n", space, "addr", "add", address, "dev", name)
            if 6 in families:
                address = f"fd99:{subnet}::{index}/64"
                ip("-n", space, "addr", "add", address, "dev", name, "nodad")
            ip("-n", space, "link", "set", name, "up")

    def set(self, state: str, name: str = "up0") -> None:
        """Pull the cable ("down"), or plug it in ("up")."""
        ip("-n", self.namespace["a"], "link", "set", name, state)

    def sent(self, host: str, name: str = "up0") -> int:
        """Bytes that `host` has sent over the link."""
        found = json.loads(
            ip("-j", "-s", "-n", self.namespace[host], "link", "show", name)
        )
        return int(found[0]["stats64"]["tx"]["bytes"])

    def close(self) -> None:
        for name in self.namespace.values():
            ip("netns", "delete", name)


class Ranks:
    """Processes in one group, in rank order.

    Args:
      where: each one's namespace.
      hosts: each one's host identity.
    """

    def __init__(
        self, where: list[str], hosts: list[str], *, timeout: float = 30.0
    ) -> None:
        self._segment = os.memfd_create("group")
        os.ftruncate(self._segment, collective.segment_bytes())
        self.processes: list[subprocess.Popen[str]] = []
        for namespace, host in zip(where, hosts, strict=True):
            numbers = (self._segment, len(self.processes), len(where), timeout)
            self.processes.append(
                subprocess.Popen(
                    [
                        *("ip", "netns", "exec", namespace),
                        *(sys.executable, "-m", __name__, host),
                        *map(str, numbers),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    pass_fds=[self._segment],
                )
            )
            # Ranks are given in the order of joining.
            assert self._answer(len(self.processes) - 1) == "joined"

    def tell(self, *command: Any) -> None:
        """Have all that live begin to do something."""
        for process in self.processes:
            if process.poll() is None:
                print(json.dumps(command), file=process.stdin, flush=True)

    def _answer(self, rank: int) -> Any:
        out = self.processes[rank].stdout
        assert out is not None
        return json.loads(out.readline() or "null")

    def answers(self) -> list[Any]:
        """What each said; None from the dead."""
        return [self._answer(rank) for rank in range(len(self.processes))]

    def do(self, *command: Any) -> list[Any]:
        self.tell(*command)
        return self.answers()

    def close(self) -> None:
        for process in self.processes:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.close()
        for process in self.processes:
            process.wait(20)
            assert process.stdout is not None
            process.stdout.close()
        os.close(self._segment)


# -- what a rank does ------------------------------------------------------


def finish(work: SharedWork) -> Outcome:
    """Wait until it is over, well or not."""
    while (outcome := work.wait(0.1)) is None:
        pass
    return outcome


def barrier(group: SharedGroup) -> Outcome:
    """Wait for all."""
    return finish(group.submit("barrier"))


def reduce(group: SharedGroup, array: np.ndarray[Any, Any]) -> Outcome:
    """The sum of all members' arrays, in place."""
    address = array.__array_interface__["data"][0]
    return finish(
        group.submit(
            "allreduce",
            dtype=collective.DTYPES[array.dtype.name],
            op=collective.OPS["sum"],
            inputs=[address],
            outputs=[address],
            sizes=[array.nbytes],
            memory=array,
        )
    )


def do_sum(group: SharedGroup, elements: int) -> list[Any]:
    """Sum an array whose elements tell the ranks; the status and a digest."""
    rank = group.describe().rank
    array = (np.arange(elements) % 1000 + rank).astype(np.float32)
    outcome = reduce(group, array)
    return [outcome.status, float(array[:7].sum()), float(array[-7:].sum())]


def do_sum_until_failure(group: SharedGroup, elements: int) -> list[Any]:
    """How often it went well, how it ended, and for how long that took."""
    array = np.ones(elements, np.float32)
    for count in itertools.count():
        began = time.monotonic()
        outcome = reduce(group, array)
        if outcome.status:
            return [count, *outcome, time.monotonic() - began]
    raise AssertionError


def do_status(group: SharedGroup) -> list[Any]:
    """Of a barrier, and what the member knows."""
    began = time.monotonic()
    outcome = barrier(group)
    info = group.describe()
    took = time.monotonic() - began
    return [outcome.status, outcome.text, info.rank, info.size, info.epoch, took]


def do_sockets(group: SharedGroup) -> int:
    """How many sockets this process has."""
    links = [os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(x) and "socket" in os.readlink(x) for x in links)


def main(host: str, segment: int, rank: int, size: int, timeout: float) -> None:
    """Join, and do as the lines on the standard input say."""
    names = os.environ.get("MOOACTOR_TRANSPORT", "auto")
    mask = collective.transport_mask(names)
    group = SharedGroup(segment, rank, 1, timeout, host=host, transports=mask)
    print(json.dumps("joined"), flush=True)
    seen = 0
    while seen < size:
        while not group.ready(0.1):
            pass
        seen = group.describe().size
        assert barrier(group).status == collective.OK
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(globals()[f"do_{name}"](group, *arguments)), flush=True)
    group.leave()


if __name__ == "__main__":
    main(
        sys.argv[1],
        int(sys.argv[2]),
        int(sys.argv[3]),
        int(sys.argv[4]),
        float(sys.argv[5]),
    )
