# SPDX-License-Identifier: MIT
"""Trials of the transports for arrays and tensors here, and the one that is chosen."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from mooactor.cli.doctor import rebuild
from mooactor.cli.doctor.finding import Finding, broken, note, ok
from mooactor.errors import MooError
from mooactor.tensors import network
from mooactor.tensors.network import VARIABLE, Network, choose
from mooactor.tensors.plane import DataPlane

INFINIBAND = Path("/sys/class/infiniband")
_BYTES = 4 << 20
_INSTALL_HEADERS = "apt-get install libfabric-dev, or your system's equivalent"
_INSTALL = (
    "apt-get install libfabric1 libfabric-bin rdma-core, or your system's equivalent"
)


def shared_memory() -> Finding:
    """The way on one host, by a descriptor that is really passed."""
    name = "shm"
    try:
        spent = _cross("shm")
    except (MooError, OSError, RuntimeError) as error:
        return broken(name, str(error), "see memfd, descriptors and directory above")
    return ok(name, f"4 MiB crossed without the network in {1e3 * spent:.1f} ms")


def tcp() -> Finding:
    """The way between hosts that is always available."""
    name = "tcp"
    try:
        spent = _cross("tcp")
    except (MooError, OSError, RuntimeError) as error:
        remedy = "bring the loopback interface up: ip link set lo up"
        return note(name, f"not on this machine: {error}", remedy)
    return ok(name, f"4 MiB there over the loopback in {1e3 * spent:.1f} ms")


def rdma() -> Finding:
    """InfiniBand, RoCE, EFA and the like, by way of libfabric."""
    name = "ofi"
    devices = sorted(path.name for path in INFINIBAND.glob("*"))
    found, lines = network.probe_fabric()
    if not found:
        detail = "; ".join(lines).removesuffix(rebuild.ADVICE)
        return note(name, detail, _remedy(devices, detail != "; ".join(lines)))
    fabric = ", ".join(lines[:2])
    try:
        spent = _cross("ofi")
    except (MooError, OSError, RuntimeError) as error:
        return note(name, f"{fabric}: {error}", _remedy(devices))
    return ok(name, f"{fabric}: 4 MiB crossed in {1e3 * spent:.1f} ms")


def _remedy(devices: list[str], to_rebuild: bool = False) -> str:
    if not devices and not to_rebuild:
        return ""  # no installation would add a device
    who = f"{', '.join(devices)} could be used" if devices else "if there is RDMA"
    if to_rebuild:
        return f"{who}: {_INSTALL_HEADERS}, then: {rebuild.command()}"
    return f"{who}: {_INSTALL}; raise ulimit -l"


def chosen() -> Finding:
    """The transport that a session started now would use."""
    name = "transport"
    try:
        choice = choose(None)
    except ValueError as error:
        return broken(name, str(error), f"unset {VARIABLE}, or correct it")
    if choice.transports is None:
        return ok(name, "auto: shared memory, as a session is on one host")
    try:
        used = _route(choice.transports)
    except (MooError, OSError, RuntimeError) as error:
        return broken(name, f"{VARIABLE}={choice}: {error}", f"unset {VARIABLE}")
    return ok(name, f"{VARIABLE}={choice}: on one host {used}")


def _cross(*transports: str) -> float:
    """Seconds for some data from one plane to another, with nothing set up before."""
    began = time.perf_counter()
    _route(transports)
    return time.perf_counter() - began


def _route(transports: tuple[str, ...]) -> str | None:
    """Send some data by the best of `transports`; return its name.

    Raises:
      MooError, OSError, RuntimeError: it did not get there.
    """
    with tempfile.TemporaryDirectory(prefix="moo-doctor-") as directory:
        key = os.urandom(16)
        planes = [
            DataPlane(directory, number << 16, key, Network(transports))
            for number in (1, 2)
        ]
        here, there = planes
        try:
            sent = os.urandom(_BYTES)
            received = there.import_(here.export(sent, there.process_id))
            if received != sent:
                raise RuntimeError("the received bytes differ from the sent bytes")
            return here.route(there.process_id)[0]
        finally:
            for plane in planes:
                plane.close()


CHECKS = (shared_memory, tcp, rdma, chosen)
