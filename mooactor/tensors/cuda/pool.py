# SPDX-License-Identifier: MIT
"""GPU memory that processes of one host lend each other: the owner's `Pool` of buffers,
each lent once at a time, and what a receiver has `Opened` of others' buffers.

A buffer must become free even if its reader is killed. So each loan goes with a
*ticket*, a small block of the data plane that travels beside the message like any
array: the reader drops it when it has copied the buffer, and the plane ends a dead
process's hold on it, as on all its memory. A buffer is free again when nobody else
holds its ticket and this process can send it no more.

Buffers are never given back to the driver, because others may have them open. Opening
one takes long, so it stays open while its owner lives, and is closed with the next
tensor after the owner's death.
"""

from __future__ import annotations

import os
import select
import threading
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mooactor.errors import ActorDied
from mooactor.tensors import tickets
from mooactor.tensors.cuda.driver import CudaError, Driver
from mooactor.tensors.plane import DataPlane

# Smaller allocations share their pages, so opening one opens its neighbours, too.
GRANULE = 2 << 20
_LEAST_LIMIT = 256 << 20
_SHARE_OF_DEVICE = 16  # the pool may take a 16th of a device's memory
_LIMIT_VARIABLE = "MOOACTOR_CUDA_POOL"


class Loan(NamedTuple):
    """A buffer with a tensor's bytes in it, for as long as `ticket` is alive."""

    handle: bytes
    ticket: np.ndarray[Any, Any]
    address: int  # of the whole buffer, and its size
    nbytes: int


@dataclass
class _Buffer:
    device: int
    nbytes: int
    address: int
    handle: bytes
    ticket: Any = None  # memory of this session's plane
    # The array that the message was made of. While it lives it can be sent, again
    # perhaps, to somebody else.
    message: weakref.ref[Any] | None = None


class Pool:
    """The buffers of one process. All methods may be called from any thread."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._buffers: list[_Buffer] = []
        self._lock = threading.Lock()

    def lend(
        self, plane: DataPlane, device: int, source: int, nbytes: int, stream: int
    ) -> Loan | None:
        """Copy [source, source + nbytes) into a buffer, behind what the stream does.

        Waits until that is done: then another process, which does not see this one's
        stream, may read it, and this one may die. None: there is no room.
        """
        with self._lock:
            buffer = self._free(plane, device, nbytes) or self._new(device, nbytes)
            if buffer is None:
                return None
            ticket = self._ticket(plane, buffer)
            buffer.message = weakref.ref(ticket)
        driver = self._driver
        driver.copy(device, buffer.address, source, nbytes, stream)
        driver.wait(device, driver.record(device, stream))
        return Loan(buffer.handle, ticket, buffer.address, buffer.nbytes)

    def end_session(self, plane: DataPlane) -> None:
        """The plane is about to close. A buffer that is still lent is given up for
        good: its readers are about to end, but their end can no longer be seen."""
        self.sweep(plane)
        with self._lock:
            self._buffers = [b for b in self._buffers if b.message is None]
            for buffer in self._buffers:
                buffer.ticket = None

    def statistics(self) -> dict[str, int]:
        """Counts of bytes and buffers, and of the buffers that were lent at the last
        look."""
        with self._lock:
            return {
                "bytes": sum(b.nbytes for b in self._buffers),
                "buffers": len(self._buffers),
                "lent": sum(b.message is not None for b in self._buffers),
            }

    def sweep(self, plane: DataPlane) -> None:
        """Note which buffers are free again."""
        with self._lock:
            for buffer in self._buffers:
                self._is_free(plane, buffer)

    def _free(self, plane: DataPlane, device: int, nbytes: int) -> _Buffer | None:
        for buffer in self._buffers:  # the smallest sufficient one comes first
            fits = buffer.device == device and buffer.nbytes >= nbytes
            if fits and self._is_free(plane, buffer):
                return buffer
        return None

    def _is_free(self, plane: DataPlane, buffer: _Buffer) -> bool:
        if buffer.message is None:
            return True
        # In this order: once the array is gone nobody can come to hold the ticket.
        if buffer.message() is not None or plane.is_held(buffer.ticket):
            return False
        buffer.message = None
        return True

    def _new(self, device: int, nbytes: int) -> _Buffer | None:
        size = _rounded(nbytes)
        taken = sum(b.nbytes for b in self._buffers if b.device == device)
        if taken + size > limit(self._driver, device):
            return None
        address = self._driver.allocate(device, size)
        if address is None:
            return None
        handle = self._driver.handle(device, address)
        buffer = _Buffer(device, size, address, handle)
        self._buffers.append(buffer)
        self._buffers.sort(key=lambda b: b.nbytes)
        return buffer

    def _ticket(self, plane: DataPlane, buffer: _Buffer) -> np.ndarray[Any, Any]:
        if buffer.ticket is None:
            buffer.ticket = plane.empty_buffer(1)
            buffer.ticket[0] = 0  # its value never matters, but it must not change
            tickets.mark(plane, buffer.ticket)
        return np.frombuffer(buffer.ticket, np.uint8)


def limit(driver: Driver, device: int) -> int:
    """Most bytes of a device that the pool takes; 0 means that nothing is lent.

    Raises:
      ValueError: the environment names something else than a number of bytes.
    """
    text = os.environ.get(_LIMIT_VARIABLE, "")
    if not text:
        return max(_LEAST_LIMIT, driver.memory(device) // _SHARE_OF_DEVICE)
    if not text.isdigit():
        raise ValueError(f"{_LIMIT_VARIABLE} must be a number of bytes, not {text!r}")
    return int(text)


def _rounded(nbytes: int) -> int:
    """The size of a buffer for so many bytes: at most a quarter more, so that tensors
    of about one size use one buffer."""
    step = max(GRANULE, 1 << max(0, nbytes.bit_length() - 3))
    return -(-nbytes // step) * step


class Lent(NamedTuple):
    """A buffer that another process lent to this one."""

    owner: int  # its process id in the session
    pid: int
    handle: bytes


class _Owner:
    """A process that has lent memory, watched by a descriptor of it."""

    def __init__(self, pid: int) -> None:
        self.pidfd = os.pidfd_open(pid)
        self._poll = select.poll()
        self._poll.register(self.pidfd, select.POLLIN)
        self.addresses: dict[tuple[int, bytes], int] = {}  # by device and handle
        self.reading = 0  # copies that are not known to be done

    def is_dead(self) -> bool:
        return bool(self._poll.poll(0))


class _Read(NamedTuple):
    device: int
    mark: Any
    owner: _Owner
    ticket: Any


class Opened:
    """The memory that one process has open. All methods may be called from any
    thread."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._owners: dict[int, _Owner] = {}
        self._reads: deque[_Read] = deque()
        self._returning = False
        self._closed = False
        self._lock = threading.Lock()

    def copy(
        self, lent: Lent, device: int, to: int, nbytes: int, stream: int, ticket: Any
    ) -> None:
        """Queue a copy of the first bytes of a buffer on a stream; does not wait.

        `ticket`, by which the owner knows that its buffer is in use, is held until the
        copy is done.

        Raises:
          ActorDied: the owner is gone, and its memory with it.
          CudaError: the driver refused.
        """
        with self._lock:
            self._close_dead()
            owner, address = self._open(lent, device)
            owner.reading += 1
        try:
            self._driver.copy(device, to, address, nbytes, stream)
            mark = self._driver.record(device, stream)
        except BaseException:
            with self._lock:
                owner.reading -= 1
            raise
        self._return_later(_Read(device, mark, owner, ticket))

    def close(self) -> None:
        """Close everything; memory with a copy under way, once that is done. No `copy`
        may follow."""
        with self._lock:
            self._closed = True
            self._close_all()

    def statistics(self) -> dict[str, int]:
        """Counts of owners, of open allocations, and of copies not known to be done."""
        with self._lock:
            return {
                "owners": len(self._owners),
                "open": sum(len(o.addresses) for o in self._owners.values()),
                "reading": len(self._reads),
            }

    def _open(self, lent: Lent, device: int) -> tuple[_Owner, int]:
        try:
            owner = self._owners.get(lent.owner) or _Owner(lent.pid)
        except ProcessLookupError:
            raise _gone() from None
        self._owners[lent.owner] = owner
        if owner.is_dead():  # and a copy is under way, or it would have been closed
            raise _gone()
        key = (device, lent.handle)
        address = owner.addresses.get(key)
        if address is None:
            try:
                address = self._driver.open(device, lent.handle)
            except CudaError as error:
                if owner.is_dead():
                    raise _gone() from error
                raise
            owner.addresses[key] = address
        return owner, address

    def _close_dead(self) -> None:
        for owner_id, owner in list(self._owners.items()):
            if owner.is_dead():
                self._close(owner_id)

    def _close_all(self) -> None:
        for owner_id in list(self._owners):
            self._close(owner_id)

    def _close(self, owner_id: int) -> None:
        owner = self._owners[owner_id]
        if owner.reading:
            return
        del self._owners[owner_id]
        os.close(owner.pidfd)
        for (device, _), address in owner.addresses.items():
            try:
                self._driver.close(device, address)
            except CudaError:
                pass  # memory of a process that died needs nothing more

    # -- giving back -------------------------------------------------------

    def _return_later(self, read: _Read) -> None:
        # The thread lives while there is something to give back: an occasional receiver
        # keeps no thread, and nobody has to end it.
        with self._lock:
            self._reads.append(read)
            start, self._returning = not self._returning, True
        if start:
            threading.Thread(
                target=self._return_all, name="mooactor-cuda-returns", daemon=True
            ).start()

    def _return_all(self) -> None:
        while self._return_one():
            pass

    def _return_one(self) -> bool:
        with self._lock:
            if not self._reads:
                self._returning = False
                return False
            read = self._reads[0]
        try:
            self._driver.wait(read.device, read.mark)
        except CudaError:
            # The device has failed, as the user's next call on it says, too. No copy
            # is under way any more, so the buffer is free all the same.
            pass
        with self._lock:
            self._reads.popleft()
            read.owner.reading -= 1
            if self._closed:
                self._close_all()
        return True


def _gone() -> ActorDied:
    return ActorDied(
        "the process that sent this CUDA tensor died before the tensor was read "
        "here, so its memory is gone; send `tensor.cpu()` if the tensor must "
        "outlive its sender"
    )
