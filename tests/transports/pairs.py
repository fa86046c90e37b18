# SPDX-License-Identifier: MIT
"""Processes with data planes, joined by each of the transports.

Where namespaces can be made, the two of a pair are on two hosts with a cable between
them, which share their files and unix sockets; otherwise both are on this one.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mooactor import ActorUnavailable
from mooactor.tensors import DataPlane
from mooactor.tensors.network import Network
from tests.conftest import eventually
from tests.networks import Cable, why_not
from tests.transports.worker import Process, Worker

ALL = ("inproc", "shm", "tcp", "ofi")
NETWORKS = ("tcp", "ofi")
#: A stand-in for hardware, if the environment names none.
FABRIC = os.environ.get("MOOACTOR_FABRIC", "tcp;ofi_rxm")

_ids = itertools.count(1 << 24)


@functools.cache
def why_no_fabric() -> str:
    """Empty where libfabric and that provider work."""
    with tempfile.TemporaryDirectory(prefix="moo-matrix-") as path:
        try:
            DataPlane(path, 1, b"key", Network(("ofi",), provider=FABRIC)).close()
        except ActorUnavailable as error:
            return str(error)
    return ""


class Hosts:
    """Where the processes of a test run, and the processes.

    Args:
      cable: closed with this; None: all of them are on this host.
    """

    def __init__(self, cable: Cable | None) -> None:
        self.cable = cable
        self.directory = tempfile.mkdtemp(prefix="moo-matrix-")
        self.processes: list[Process] = []

    def process(
        self,
        host: str,
        before: Sequence[str] = (),
        environment: dict[str, str] | None = None,
    ) -> Process:
        """A new one on host "a" or "b"; `before`: words before its command."""
        on = self.cable.on(host) if self.cable else []
        self.processes.append(Process([*on, *before], environment))
        return self.processes[-1]

    def start(
        self,
        where: str | Process,
        *transports: str,
        directory: str | None = None,
        **options: Any,
    ) -> Worker:
        """One with a data plane, in a process or in a new one on a host.

        Options are those of `Worker`, and of `DataPlane`.
        """
        options.setdefault("bind", "*" if self.cable else None)
        if "ofi" in transports:
            options.setdefault("provider", FABRIC)
        if "tcp" in transports:  # as on a machine of many processors
            options.setdefault("threads", 2)
        return Worker(
            self.process(where) if isinstance(where, str) else where,
            directory or self.directory,
            next(_ids) << 16,
            transports=transports,
            **options,
        )

    def close(self) -> None:
        for process in self.processes:
            process.close()
        if self.cable:
            self.cable.close()
        shutil.rmtree(self.directory)


class Pair:
    """Two processes that stand through all tests of a module.

    `a` and `b` are one for the transport "inproc".
    """

    def __init__(
        self, transport: str, hosts: Hosts, processes: tuple[Process, Process]
    ) -> None:
        self.transport = transport
        self._hosts = hosts
        self._names = ("shm",) if transport == "inproc" else (transport,)
        self.a = hosts.start(processes[0], *self._names)
        self.b = self.a
        if transport != "inproc":
            self.b = hosts.start(processes[1], *self._names)
        self.both = {self.a.id: self.a, self.b.id: self.b}.values()

    def start(self, host: str, **options: Any) -> Worker:
        """Another process that uses the same transport."""
        return self._hosts.start(host, *self._names, **options)

    @property
    def cable(self) -> Cable:
        """The link between them; skips the test where there is none."""
        if self._hosts.cable is None:
            pytest.skip(str(why_not()))
        return self._hosts.cable

    def settled(self) -> bool:
        """Whether within five seconds neither holds anything of the other's."""
        for worker in self.both:
            worker.call("drop")
        return all(eventually(worker.settled) for worker in self.both)

    def close(self) -> None:
        for worker in self.both:
            worker.stop()


def over(*transports: Any) -> Callable[[Any], Any]:
    """Decorate a test that has a sense over these transports only."""

    def mark(test: Any) -> Any:
        test.transports = transports
        return test

    return mark
