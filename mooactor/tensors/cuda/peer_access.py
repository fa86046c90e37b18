# SPDX-License-Identifier: MIT
"""Peer access: which process can open another's GPU memory, probed once for each pair.

A container may forbid it, devices may be hidden from a process, two processes may run
on two hosts. So the first tensors between two processes go through host memory and
carry a *probe*: the handle of a small buffer, and its contents. The receiver opens it,
compares, and leaves its answer as a file in the session's directory, where the owner
finds it. Reads by RDMA are probed in the same way, see `direct`.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable
from typing import NamedTuple

from mooactor.tensors.cuda.driver import CudaError, Driver
from mooactor.tensors.cuda.pool import GRANULE

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
    """Answers of receivers about owners' memory, by the owner's device; as files."""

    def __init__(self, kind: str, directory: str, process_id: int) -> None:
        self._kind = kind
        self._directory = directory
        self._process_id = process_id
        self._heard: dict[tuple[int, bytes], str] = {}
        self._answered: set[tuple[int, bytes]] = set()
        self._lock = threading.Lock()

    def first(self, peer: int, uuid: bytes) -> str | None:
        """The answer of `peer` for that device; None: there is none yet."""
        text = self._heard.get((peer, uuid))
        return self.latest(peer, uuid) if text is None else text

    def latest(self, peer: int, uuid: bytes) -> str | None:
        """The same, read anew: the answer may have changed."""
        path = self._path(self._process_id, peer, uuid)
        try:
            with open(path) as file:
                text = file.read()
            os.unlink(path)
        except FileNotFoundError:  # nothing new; or another thread was quicker
            return self._heard.get((peer, uuid))
        self._heard[(peer, uuid)] = text
        return text

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
        """Tell `owner` a preliminary result: `judge` will try again."""
        with self._lock:
            self._answered.discard((owner, uuid))
        self.tell(owner, uuid, text)

    def tell(self, owner: int, uuid: bytes, text: str) -> None:
        """Leave an answer for `owner`; does nothing if the session has ended."""
        path = self._path(owner, self._process_id, uuid)
        try:
            with open(f"{path}.new", "w") as file:
                file.write(text)
            os.rename(f"{path}.new", path)
        except FileNotFoundError:
            pass

    def _path(self, owner: int, peer: int, uuid: bytes) -> str:
        name = f"{self._kind}-{owner:016x}-{peer:016x}-{uuid.hex()}"
        return os.path.join(self._directory, name)


class PeerAccess:
    """One process's view: its probes, and its answers to those of others."""

    def __init__(self, driver: Driver, directory: str, process_id: int) -> None:
        self._driver = driver
        self._results = ProbeResults("cuda", directory, process_id)
        self._probes: dict[int, Probe | None] = {}
        self._lock = threading.Lock()

    def may_open(self, peer: int, uuid: bytes) -> bool | None:
        """Whether `peer` can open memory of that device; None: it has not said yet."""
        text = self._results.first(peer, uuid)
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
