# SPDX-License-Identifier: MIT
"""Peer access: which process can open another's GPU memory, probed once for each pair.

A container may forbid it, devices may be hidden from a process, two processes may run
on two hosts. So the first tensors between two processes go through host memory and
carry a *probe*: the handle of a small buffer, and what is in it. The receiver opens
that, looks, and tells the owner by a message. Reads by RDMA are probed in the same way,
see `direct`.

``python -m`` of this module prints the answer of a second process to a probe of the
first, for device 0.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import NamedTuple

from mooactor.tensors.cuda.driver import CudaError, Driver, driver
from mooactor.tensors.cuda.pool import GRANULE
from mooactor.tensors.plane import DataPlane

PATTERN_BYTES = 16
WELL = "can open it"


class Probe(NamedTuple):
    """Memory to try: its handle, and its first bytes."""

    handle: bytes
    pattern: bytes


def new_probe(driver: Driver, device: int) -> Probe | None:
    """Memory for others to try; None if this device has none that others could open."""
    pattern = secrets.token_bytes(PATTERN_BYTES)
    try:
        address = driver.allocate(device, GRANULE)
        if address is None:
            return None
        driver.write(device, address, pattern)
        return Probe(driver.handle(device, address), pattern)
    except CudaError:
        return None


def run_probe(driver: Driver, device: int, probe: Probe) -> str:
    """Open another process's probe, and compare: `WELL`, or the failure."""
    try:
        address = driver.open(device, probe.handle)
        try:
            found = driver.read(device, address, PATTERN_BYTES)
        finally:
            driver.close(device, address)
    except CudaError as error:
        return str(error)
    return WELL if found == probe.pattern else "opened other memory"


class ProbeResults:
    """Answers of receivers about owners' memory, by the owner's device; as messages
    from plane to plane. All methods may be called from any thread."""

    def __init__(self, kind: bytes, plane: DataPlane) -> None:
        """`kind`: one byte, the same at owner and receiver."""
        self._kind = kind
        self._plane = plane
        self._heard: dict[tuple[int, bytes], str] = {}
        self._answered: set[tuple[int, bytes]] = set()
        self._lock = threading.Lock()
        plane.hearers[kind[0]] = self._hear

    def of(self, peer: int, uuid: bytes) -> str | None:
        """The last answer of `peer` for that device; None: there is none yet."""
        return self._heard.get((peer, uuid))

    def reasons(self) -> dict[tuple[int, bytes], str]:
        """The answer of each process for each device, in its words."""
        return dict(self._heard)

    def answer(self, owner: int, uuid: bytes, run: Callable[[], str]) -> None:
        """Tell `owner` the result of `run`; once for each of its devices."""
        with self._lock:
            if (owner, uuid) in self._answered:
                return
            self._answered.add((owner, uuid))
        self.tell(owner, uuid, run())

    def reopen(self, owner: int, uuid: bytes, text: str) -> None:
        """Tell `owner` something for now: `answer` will try again."""
        with self._lock:
            self._answered.discard((owner, uuid))
        self.tell(owner, uuid, text)

    def tell(self, owner: int, uuid: bytes, text: str) -> None:
        """Tell `owner` something that holds until it is told something else."""
        head = self._kind + bytes([len(uuid)])
        self._plane.tell(owner, head + uuid + text.encode())

    def _hear(self, peer: int, message: bytes) -> None:
        end = 1 + message[0] if message else 0
        uuid, text = message[1:end], message[end:]
        self._heard[(peer, uuid)] = text.decode(errors="replace")


class PeerAccess:
    """One process's view: its probes, and its answers to those of others."""

    def __init__(self, driver: Driver, plane: DataPlane) -> None:
        self._driver = driver
        self._results = ProbeResults(b"c", plane)
        self._probes: dict[int, Probe | None] = {}
        self._lock = threading.Lock()

    def may_open(self, peer: int, uuid: bytes) -> bool | None:
        """Whether `peer` can open memory of that device; None: it has not said yet."""
        text = self._results.of(peer, uuid)
        return None if text is None else text == WELL

    def reasons(self) -> dict[tuple[int, bytes], str]:
        """The answer of each process for each device, in its words."""
        return self._results.reasons()

    def probe(self, device: int) -> Probe | None:
        """The probe for a receiver to run; None if this device cannot be shared at
        all."""
        with self._lock:
            if device not in self._probes:
                self._probes[device] = new_probe(self._driver, device)
            return self._probes[device]

    def answer(self, owner: int, uuid: bytes, device: int | None, probe: Probe) -> None:
        """Run a probe of `owner`, once, and tell it.

        Args:
          device: the owner's device by its number here; None: it is not seen here.
        """

        def run() -> str:
            if device is None:
                return "does not see this GPU"
            return run_probe(self._driver, device, probe)

        self._results.answer(owner, uuid, run)


_TIMEOUT_S = 60.0


def main(handle: str = "", pattern: str = "") -> str:
    """Make a probe and have it run; with arguments, try that one."""
    import torch

    torch.cuda.current_device()  # CUDA is initialised from here on
    found = driver()
    if found is None:
        return "no such driver"
    if handle:
        return run_probe(found, 0, Probe(bytes.fromhex(handle), bytes.fromhex(pattern)))
    probe = new_probe(found, 0)
    if probe is None:
        return "this device has no memory that could be opened"
    command = [sys.executable, "-m", __spec__.name, *(part.hex() for part in probe)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    return done.stdout.strip() or "the second process failed"


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
