# SPDX-License-Identifier: MIT
"""A process that lends and reads GPU memory through the fake driver, for the tests.

As `tests.tensors.worker`, with a role of its own.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from tests.tensors.worker import KEY, Worker, serve


class GpuRole:
    """What the other process can be asked to do. There is one device, number 0."""

    def __init__(self, directory: str, process_id: int) -> None:
        from mooactor.tensors import DataPlane
        from mooactor.tensors.cuda_driver import Driver
        from mooactor.tensors.cuda_opened import Opened
        from mooactor.tensors.cuda_pool import Pool
        from mooactor.tensors.cuda_verdicts import Verdicts

        self.plane = DataPlane(directory, process_id, KEY)
        self.driver = Driver()
        self.pool = Pool(self.driver)
        self.verdicts = Verdicts(self.driver, directory, process_id)
        self.opened = Opened(self.driver)
        self.uuid = self.driver.uuid(0)
        self.message: Any = None

    def pid(self) -> int:
        return os.getpid()

    # -- as owner ----------------------------------------------------------

    def lend(self, value: int, nbytes: int, peer: int) -> tuple[bytes, bytes] | None:
        """Make a tensor, lend it and forget the message, as one that was sent.

        Returns the handle of the buffer and the descriptor of the ticket.
        """
        sent = self.write_message(value, nbytes)
        descriptor = self.send_message(peer) if sent else b""
        self.message = None
        return (sent, descriptor) if sent else None

    def write_message(self, value: int, nbytes: int) -> bytes | None:
        """Lend, and keep the message."""
        source = self.driver.allocate(0, nbytes)
        assert source is not None
        self.driver.write(0, source, bytes([value]) * nbytes)
        loan = self.pool.lend(self.plane, 0, source, nbytes, 0)
        if loan is None:
            return None
        self.message = loan.ticket
        return loan.handle

    def send_message(self, peer: int) -> bytes:
        return self.plane.export(self.message, peer)

    def pool_now(self) -> dict[str, int]:
        """What the pool says after a look at what is free."""
        self.pool.sweep(self.plane)
        return self.pool.statistics()

    def offer(self) -> Any:
        return tuple(self.verdicts.offer(0) or ())

    def verdict(self, peer: int) -> tuple[bool | None, list[str]]:
        found = self.verdicts.may_open(peer, self.uuid)
        return found, list(self.verdicts.reasons().values())

    def copies(self) -> int:
        return self.plane.statistics()["exports_copied"]

    # -- as reader ---------------------------------------------------------

    def read(
        self, owner: int, pid: int, handle: bytes, descriptor: bytes, nbytes: int
    ) -> bytes:
        """Take a loan, and look at what was in it."""
        from mooactor.tensors.cuda_opened import Lent

        ticket = self.plane.import_(descriptor)
        to = self.driver.allocate(0, nbytes)
        assert to is not None
        self.opened.copy(Lent(owner, pid, handle), 0, to, nbytes, 0, ticket)
        return self.driver.read(0, to, nbytes)

    def discard(self, descriptor: bytes) -> None:
        self.plane.discard(descriptor)

    def judge(self, owner: int, offer: Any, device: int | None, uuid: bytes) -> None:
        from mooactor.tensors.cuda_verdicts import Offer

        self.verdicts.judge(owner, uuid, device, Offer(*offer))

    def opened_now(self) -> dict[str, int]:
        return self.opened.statistics()

    def close_opened(self) -> None:
        self.opened.close()


class GpuWorker(Worker):
    """The other process, seen from here."""

    program = __file__


if __name__ == "__main__":
    serve(GpuRole(sys.argv[1], int(sys.argv[2])))
