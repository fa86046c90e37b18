# SPDX-License-Identifier: MIT
"""Who can open whose GPU memory: tried once for each pair, never guessed.

A container may forbid it, devices may be hidden from a process, two processes may run
on two hosts. So the first tensors between two processes go through host memory and
carry an *offer*: the handle of a small buffer, and what is in it. The receiver opens
that, looks, and leaves its verdict as a file in the session's directory, where the
owner finds it. Reads by RDMA are tried in the same way, see `direct`.
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


class Offer(NamedTuple):
    """Memory to try: what opens it, and what its first bytes are."""

    handle: bytes
    pattern: bytes


def new_offer(driver: Driver, device: int) -> Offer | None:
    """Memory for others to try; None if this device has none that could be opened."""
    pattern = secrets.token_bytes(PATTERN_BYTES)
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
            found = driver.read(device, address, PATTERN_BYTES)
        finally:
            driver.close(device, address)
    except CudaError as error:
        return str(error)
    return WELL if found == offer.pattern else "opened other memory"


class Opinions:
    """What receivers think of owners' memory, by the owner's device; as files."""

    def __init__(self, kind: str, directory: str, process_id: int) -> None:
        self._kind = kind
        self._directory = directory
        self._process_id = process_id
        self._heard: dict[tuple[int, bytes], str] = {}
        self._judged: set[tuple[int, bytes]] = set()
        self._lock = threading.Lock()

    def first(self, peer: int, uuid: bytes) -> str | None:
        """What `peer` said of that device; None: it has not said anything yet."""
        text = self._heard.get((peer, uuid))
        return self.latest(peer, uuid) if text is None else text

    def latest(self, peer: int, uuid: bytes) -> str | None:
        """The same where it may have changed its mind."""
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
        """What each process said of each device, in its words."""
        return dict(self._heard)

    def judge(self, owner: int, uuid: bytes, trial: Callable[[], str]) -> None:
        """Tell `owner` what `trial` finds; once for each of its devices."""
        with self._lock:
            if (owner, uuid) in self._judged:
                return
            self._judged.add((owner, uuid))
        self.tell(owner, uuid, trial())

    def reopen(self, owner: int, uuid: bytes, text: str) -> None:
        """Tell `owner` something for now: `judge` will try again."""
        with self._lock:
            self._judged.discard((owner, uuid))
        self.tell(owner, uuid, text)

    def tell(self, owner: int, uuid: bytes, text: str) -> None:
        """Leave word for `owner`; nothing happens if the session has ended."""
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


class Verdicts:
    """One process's view: what it offers, and how it judges the offers of others."""

    def __init__(self, driver: Driver, directory: str, process_id: int) -> None:
        self._driver = driver
        self._opinions = Opinions("cuda", directory, process_id)
        self._offers: dict[int, Offer | None] = {}
        self._lock = threading.Lock()

    def may_open(self, peer: int, uuid: bytes) -> bool | None:
        """Whether `peer` can open memory of that device; None: it has not said yet."""
        text = self._opinions.first(peer, uuid)
        return None if text is None else text == WELL

    def reasons(self) -> dict[tuple[int, bytes], str]:
        """What each process said of each device, in its words."""
        return self._opinions.reasons()

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

        def trial() -> str:
            if device is None:
                return "does not see this GPU"
            return tried(self._driver, device, offer)

        self._opinions.judge(owner, uuid, trial)
