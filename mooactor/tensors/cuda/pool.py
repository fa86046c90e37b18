# SPDX-License-Identifier: MIT
"""Device memory of this process that others may open: buffers, each lent once at a
time.

A buffer must become free even if its reader is killed. So each loan goes with a
*ticket*, a small block of the data plane that travels beside the
message like any array: the reader drops it when it has copied the buffer, and the plane
ends a dead process's hold on it, as on all its memory. A buffer is free again when
nobody else holds its ticket and this process can send it no more.

Buffers are never given back to the driver, because others may have them open.
"""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mooactor.tensors import tickets
from mooactor.tensors.cuda.driver import Driver
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
