# SPDX-License-Identifier: MIT
"""Other processes' GPU memory that this process has open.

Opening memory takes long, so it stays open while its owner lives. It is closed with the
next tensor after the owner's death.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from typing import Any, NamedTuple

from mooactor.errors import ActorDied
from mooactor.tensors.cuda.driver import CudaError, Driver


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
