# SPDX-License-Identifier: MIT
"""Processes with data planes, joined by each of the transports.

Where namespaces can be made, two processes that are to use a network are on two
hosts with a cable between them; otherwise both are on this one.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

from mooactor import ActorUnavailable
from mooactor.tensors import DataPlane
from tests.conftest import eventually
from tests.networks import Cable, why_not
from tests.transports.worker import Worker

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
            DataPlane(path, 1, b"key", transports=["ofi"], provider=FABRIC).close()
        except ActorUnavailable as error:
            return str(error)
    return ""


class Hosts:
    """Where the processes of a test run: each gets a data plane of its own.

    Args:
      cable: closed with this; None: all of them are on this host.
    """

    def __init__(self, cable: Cable | None) -> None:
        self.cable = cable
        self.directory = tempfile.mkdtemp(prefix="moo-matrix-")
        self.workers: list[Worker] = []

    def start(self, host: str, *transports: str, **options: Any) -> Worker:
        """A process on host "a" or "b"; see `Worker`, and `DataPlane`."""
        options.setdefault("bind", "*" if self.cable else None)
        if "ofi" in transports:
            options.setdefault("provider", FABRIC)
        self.workers.append(
            Worker(
                options.pop("directory", self.directory),
                next(_ids) << 16,
                self.cable.on(host) if self.cable else (),
                transports=transports,
                **options,
            )
        )
        return self.workers[-1]

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        if self.cable:
            self.cable.close()
        shutil.rmtree(self.directory)


class Pair:
    """Two processes that stand through all tests of a module.

    `a` and `b` are one process for the transport "inproc".
    """

    def __init__(self, transport: str, hosts: Hosts) -> None:
        self.transport = transport
        self.hosts = hosts
        self.names = ("shm",) if transport == "inproc" else (transport,)
        self.a = self.start("a")
        self.b = self.a if transport == "inproc" else self.start("b")
        self.both = {self.a.id: self.a, self.b.id: self.b}.values()

    def start(self, host: str, **options: Any) -> Worker:
        """Another process that uses the same transport."""
        return self.hosts.start(host, *self.names, **options)

    @property
    def cable(self) -> Cable:
        """The link between them; skips the test where there is none."""
        if self.hosts.cable is None:
            pytest.skip(str(why_not()))
        return self.hosts.cable

    def settled(self) -> bool:
        """Whether within five seconds neither holds anything of the other's."""
        for worker in self.both:
            worker.call("drop")
        return all(eventually(worker.settled) for worker in self.both)


def over(*transports: str) -> Callable[[Any], Any]:
    """Decorate a test that has a sense over these transports only."""

    def mark(test: Any) -> Any:
        test.transports = transports
        return test

    return mark
