# SPDX-License-Identifier: MIT
"""Who can open whose GPU memory: tried once for each pair, never guessed.

A container may forbid it, devices may be hidden from a process, two processes may run
on two hosts. So the first tensors between two processes go through host memory and
carry an *offer*: the handle of a small buffer, and what is in it. The receiver opens
that, looks, and leaves its verdict as a file in the session's directory, where the
owner finds it.
"""

from __future__ import annotations

import os
import secrets
import threading
from typing import NamedTuple

from mooactor.tensors.cuda_driver import CudaError, Driver
from mooactor.tensors.cuda_pool import GRANULE

_PATTERN_BYTES = 16
WELL = "can open it"


class Offer(NamedTuple):
    """Memory to try: what opens it, and what its first bytes are."""

    handle: bytes
    pattern: bytes


def new_offer(driver: Driver, device: int) -> Offer | None:
    """Memory for others to try; None if this device has none that could be opened."""
    pattern = secrets.token_bytes(_PATTERN_BYTES)
    try:
        address = driver.allocate(device, GRANULE)
        if address is None:
            return None
        driver.write(device, address, pattern)
        return Offer(driver.handle(device, address), pattern)
    except CudaError:
        return None


def tried(driver: Driver, device: int, offer: Offer) -> str:
    """Open another process's offer, and look: `WELL`, or what is wrong."""
    try:
        address = driver.open(device, offer.handle)
        try:
            found = driver.read(device, address, _PATTERN_BYTES)
        finally:
            driver.close(device, address)
    except CudaError as error:
        return str(error)
    return WELL if found == offer.pattern else "opened other memory"


class Verdicts:
    """One process's view: what it offers, and how it judges the offers of others."""

    def __init__(self, driver: Driver, directory: str, process_id: int) -> None:
        self._driver = driver
        self._directory = directory
        self._process_id = process_id
        self._heard: dict[tuple[int, bytes], str] = {}
        self._judged: set[tuple[int, bytes]] = set()
        self._offers: dict[int, Offer | None] = {}
        self._lock = threading.Lock()

    def may_open(self, peer: int, uuid: bytes) -> bool | None:
        """Whether `peer` can open memory of that device; None: it has not said yet."""
        text = self._heard.get((peer, uuid))
        if text is None:
            text = self._hear(peer, uuid)
        return None if text is None else text == WELL

    def reasons(self) -> dict[tuple[int, bytes], str]:
        """What each process said of each device, in its words."""
        return dict(self._heard)

    def offer(self, device: int) -> Offer | None:
        """What a receiver is to try; None if this device cannot be shared at all."""
        with self._lock:
            if device not in self._offers:
                self._offers[device] = new_offer(self._driver, device)
            return self._offers[device]

    def judge(self, owner: int, uuid: bytes, device: int | None, offer: Offer) -> None:
        """Try an offer of `owner`, once, and tell it.

        Args:
          device: the owner's device by its number here; None: it is not seen here.
        """
        with self._lock:
            if (owner, uuid) in self._judged:
                return
            self._judged.add((owner, uuid))
        if device is None:
            self._tell(owner, uuid, "does not see this GPU")
        else:
            self._tell(owner, uuid, tried(self._driver, device, offer))

    def _path(self, owner: int, peer: int, uuid: bytes) -> str:
        name = f"cuda-{owner:016x}-{peer:016x}-{uuid.hex()}"
        return os.path.join(self._directory, name)

    def _tell(self, owner: int, uuid: bytes, text: str) -> None:
        path = self._path(owner, self._process_id, uuid)
        try:
            with open(f"{path}.new", "w") as file:
                file.write(text)
            os.rename(f"{path}.new", path)
        except FileNotFoundError:
            pass  # the session has ended

    def _hear(self, peer: int, uuid: bytes) -> str | None:
        path = self._path(self._process_id, peer, uuid)
        try:
            with open(path) as file:
                text = file.read()
            os.unlink(path)
        except FileNotFoundError:  # not yet; or another thread was quicker
            return self._heard.get((peer, uuid))
        self._heard[(peer, uuid)] = text
        return text
