# SPDX-License-Identifier: MIT
"""A CUDA tensor read by RDMA from one GPU's memory into another's (GPUDirect).

The owner lends a buffer of its pool, as it does to a process that sees the same GPU,
but the buffer is registered with the fabric. The receiver reads it, by chunks, into two
slots on its own device, which are registered as well, and from there copies it within
the device to its target. Both registrations are made once, of memory that is never
given back to the driver, so that no key can come to name other memory. No byte stops in
main memory.

Whether a pair of processes can do that is tried: a fabric that offers device memory may
refuse to register it (no ``nvidia-peermem``, say), and registered memory may not be
readable. So the first tensors are staged, and carry a *probe*.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pickle import PickleBuffer
from typing import Any, NamedTuple

import numpy as np

from mooactor.errors import ActorDied, ActorUnavailable
from mooactor.tensors import tickets
from mooactor.tensors.cuda.driver import CudaError, Driver
from mooactor.tensors.cuda.peer_access import PATTERN_BYTES, ProbeResults
from mooactor.tensors.cuda.pool import GRANULE, Pool
from mooactor.tensors.fetches import Fetch
from mooactor.tensors.plane import DataPlane
from mooactor.tensors.tickets import Source, Ticket

#: Large enough that the word with the owner after each chunk (about 0.1 ms, while the
#: other chunk is under way) costs little.
SLOT = 16 << 20
#: For one slot. A death is noticed sooner; this is for an owner that is frozen, as
#: nobody else ends a read.
PATIENCE_S = 10.0
WELL = "can read it"
AGAIN = "was cut off, and will try again"


class ReadProbe(NamedTuple):
    """Memory to read, and its first bytes."""

    source: Source
    pattern: bytes
    ticket: Any  # a Ticket, at the receiver


class ReadGrant(NamedTuple):
    """The means to read a loan over the fabric, for as long as `ticket` is alive."""

    source: Source
    ticket: Any


class Landing:
    """Two slots on a device, one behind the other: while one is read into, the other
    is copied from. For all sessions of this process; use it with `lock` held."""

    def __init__(self, driver: Driver, device: int) -> None:
        address = driver.allocate(device, 2 * SLOT)
        if address is None:
            raise CudaError("the device has no room for the buffers of RDMA reads")
        self.address = address
        self.lock = threading.Lock()
        self._driver = driver
        self._device = device
        self._marks: list[Any] = [None, None]  # behind the last copy from each slot

    def look(self, source: Source, ticket: Ticket, nbytes: int) -> bytes:
        """A few bytes of a loan."""
        fetch = self._begin(0, source, ticket, 0, nbytes)
        try:
            fetch.result(PATIENCE_S)
            return self._driver.read(self._device, self.address, nbytes)
        finally:
            fetch.cancel()

    def read(
        self, source: Source, ticket: Ticket, to: int, nbytes: int, stream: int
    ) -> None:
        """Read a loan and copy it to [to, to + nbytes), behind the stream's queued
        work. Waits for the network, and until slots are free.

        Raises TimeoutError: a slot took longer than `PATIENCE_S`.
        """
        flying: list[tuple[int, int, int, Fetch]] = []
        try:
            for number, start in enumerate(range(0, nbytes, SLOT)):
                slot, size = number % 2, min(SLOT, nbytes - start)
                fetch = self._begin(slot, source, ticket, start, size)
                flying.append((slot, to + start, size, fetch))
                if len(flying) == 2:
                    self._take(stream, *flying.pop(0))
            while flying:
                self._take(stream, *flying.pop(0))
        finally:
            for *_, fetch in flying:
                fetch.cancel()

    def _begin(
        self, slot: int, source: Source, ticket: Ticket, offset: int, nbytes: int
    ) -> Fetch:
        mark, self._marks[slot] = self._marks[slot], None
        if mark is not None:
            self._driver.wait(self._device, mark)
        return ticket.begin(source, offset, self.address + slot * SLOT, nbytes)

    def _take(self, stream: int, slot: int, to: int, nbytes: int, fetch: Fetch) -> None:
        try:
            fetch.result(PATIENCE_S)
        finally:
            fetch.cancel()
        driver, device = self._driver, self._device
        driver.copy(device, to, self.address + slot * SLOT, nbytes, stream)
        self._marks[slot] = driver.record(device, stream)


class Landings:
    """The slots of all devices."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._made: dict[int, Landing] = {}
        self._lock = threading.Lock()

    def of(self, device: int) -> Landing:
        """Raises CudaError: the device has no room."""
        with self._lock:
            if device not in self._made:
                self._made[device] = Landing(self._driver, device)
            return self._made[device]


class Direct:
    """One process's reads, and its loans for others' reads, in one session.

    All methods may be called from any thread.
    """

    def __init__(
        self,
        plane: DataPlane,
        driver: Driver,
        pool: Pool,
        landings: Landings,
        *,
        on_host: bool = False,
    ) -> None:
        """`on_host`: for tests, "device" memory is memory of the host."""
        self._plane = plane
        self._driver = driver
        self._pool = pool
        self._landings = landings
        self._on_host = on_host
        self._results = ProbeResults(b"d", plane)
        self._probes: dict[int, ReadProbe | str] = {}  # by device; why there is none
        self._lock = threading.Lock()
        #: The last result of each possible way: `WELL`, or the failure.
        self.why = ""

    # -- as owner ----------------------------------------------------------

    def lend(
        self, peer: int, uuid: bytes, device: int, source: int, nbytes: int, stream: int
    ) -> ReadGrant | ReadProbe | None:
        """Lend `peer` a copy of [source, source + nbytes), behind what the stream does.

        A `ReadProbe`: it is not known yet whether `peer` can read it; send the probe
        with the next staged bytes. None: it has to be staged, see `why`.
        """
        told = self._results.of(peer, uuid)
        if told is None or told == AGAIN:
            return self._probe(device)
        self.why = told
        if told != WELL:
            return None
        loan = self._pool.lend(self._plane, device, source, nbytes, stream)
        if loan is None:
            return None
        try:
            return ReadGrant(
                self._share(device, loan.address, loan.nbytes), loan.ticket
            )
        except ActorUnavailable as error:
            self.why = str(error)
            return None

    def _probe(self, device: int) -> ReadProbe | None:
        with self._lock:
            if device not in self._probes:
                self._probes[device] = self._new_probe(device)
            found = self._probes[device]
        if isinstance(found, ReadProbe):
            return found
        self.why = found
        return None

    def _new_probe(self, device: int) -> ReadProbe | str:
        pattern = secrets.token_bytes(PATTERN_BYTES)
        try:
            address = self._driver.allocate(device, GRANULE)
            if address is None:
                return "the device has no room for a probe"
            self._driver.write(device, address, pattern)
            source = self._share(device, address, GRANULE)
        except (CudaError, ActorUnavailable) as error:
            return str(error)
        ticket = self._plane.empty_buffer(1)
        ticket[0] = 0
        tickets.mark(self._plane, ticket)
        buffer: Any = np.frombuffer(ticket, np.uint8)
        return ReadProbe(source, pattern, PickleBuffer(buffer))

    def _share(self, device: int, address: int, nbytes: int) -> Source:
        if self._on_host:
            return tickets.share(self._plane, address, nbytes)
        with self._driver.within(device):  # some providers ask the driver
            return tickets.share(self._plane, address, nbytes, device)

    # -- as receiver -------------------------------------------------------

    def answer(self, owner: int, uuid: bytes, device: int, probe: ReadProbe) -> None:
        """Try the probe of `owner`, once, and tell it the result."""
        self._results.answer(owner, uuid, lambda: self._run_probe(device, probe))

    def _run_probe(self, device: int, probe: ReadProbe) -> str:
        if not isinstance(probe.ticket, Ticket):
            return "it did not come over the fabric"
        try:
            with closing(probe.ticket), self._landing(device) as landing:
                found = landing.look(probe.source, probe.ticket, PATTERN_BYTES)
        except Exception as error:  # tell the owner of every failure
            return f"a probe failed: {error}"
        return WELL if found == probe.pattern else "read other memory"

    def copy(
        self,
        owner: int,
        uuid: bytes,
        source: Source,
        ticket: Any,
        device: int,
        to: int,
        nbytes: int,
        stream: int,
    ) -> None:
        """Read the first bytes of a loan to [to, to + nbytes), ahead of all later work
        of the stream. Waits for the network; then gives the ticket back.

        Raises:
          ActorDied: the owner is gone, was cut off, or froze for `PATIENCE_S`.
          ActorUnavailable: the fabric refused; from now on the owner stages.
          CudaError: the driver refused.
        """
        try:
            if not isinstance(ticket, Ticket):
                raise ValueError("its ticket did not come over the fabric")
            with closing(ticket), self._landing(device) as landing:
                landing.read(source, ticket, to, nbytes, stream)
        except (ActorDied, TimeoutError):
            self._results.reopen(owner, uuid, AGAIN)
            raise ActorDied(
                "the process that sent this CUDA tensor died, was cut off or froze "
                "before the tensor was read; send `tensor.cpu()` if the tensor must "
                "outlive its sender"
            ) from None
        except (ActorUnavailable, OSError, RuntimeError, ValueError) as error:
            self._results.tell(owner, uuid, f"a read failed: {error}")
            if isinstance(error, CudaError):
                raise
            raise ActorUnavailable(
                f"a CUDA tensor could not be read over the fabric ({error}); call "
                "again: the next tensors go through main memory, as with "
                "MOOACTOR_GPUDIRECT=0"
            ) from error

    @contextmanager
    def _landing(self, device: int) -> Iterator[Landing]:
        """The slots of a device, registered, and used by no other thread meanwhile."""
        landing = self._landings.of(device)
        with landing.lock:
            self._share(device, landing.address, 2 * SLOT)
            yield landing
