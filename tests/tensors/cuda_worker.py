# SPDX-License-Identifier: MIT
"""A process that lends and reads GPU memory through the fake driver, for the tests.

As `tests.tensors.worker`, with a role of its own.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

from tests.tensors.worker import KEY, Worker, serve


class Words:
    """Messages of planes to each other where no runtime carries them: files, in the
    order in which they were written."""

    def __init__(self, plane: Any) -> None:
        self._plane, self._number = plane, 0
        plane.tell = self._tell

    def _tell(self, peer: int, message: bytes) -> None:
        self._number += 1
        me = self._plane.process_id
        path = Path(self._plane.directory, f"{me:016x}-{self._number:08}-to-{peer:x}")
        path.with_suffix(".new").write_bytes(message)
        path.with_suffix(".new").rename(path)

    def collect(self) -> None:
        """Hear what has come."""
        me = self._plane.process_id
        for path in sorted(Path(self._plane.directory).glob(f"*-to-{me:x}")):
            self._plane.hear(int(path.name[:16], 16), path.read_bytes())
            path.unlink()


class GpuRole:
    """Requests to the other process. There is one device, number 0."""

    def __init__(self, directory: str, process_id: int) -> None:
        from mooactor.tensors import DataPlane
        from mooactor.tensors.cuda.direct import Direct, Landings
        from mooactor.tensors.cuda.driver import Driver
        from mooactor.tensors.cuda.peer_access import PeerAccess
        from mooactor.tensors.cuda.pool import Opened, Pool
        from mooactor.tensors.network import Network

        allowed = os.environ.get("TEST_TRANSPORTS")
        self.plane = DataPlane(
            directory,
            process_id,
            KEY,
            Network(tuple(allowed.split(","))) if allowed else None,
        )
        self.driver = Driver()
        self.pool = Pool(self.driver)
        self.words = Words(self.plane)
        self.access = PeerAccess(self.driver, self.plane)
        self.opened = Opened(self.driver)
        self.uuid = self.driver.uuid(0)
        self.message: Any = None
        # The fake device's memory is the host's, which any fabric takes; as a GPU's
        # it is refused where there is none.
        on_host = not os.environ.get("TEST_GPU_MEMORY")
        self.landings = Landings(self.driver)
        self.direct = Direct(
            self.plane, self.driver, self.pool, self.landings, on_host=on_host
        )

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
        """The pool's word after a look at what is free."""
        self.pool.sweep(self.plane)
        return self.pool.statistics()

    def probe(self) -> Any:
        return tuple(self.access.probe(0) or ())

    def answer_of(self, peer: int) -> tuple[bool | None, list[str]]:
        self.words.collect()
        found = self.access.may_open(peer, self.uuid)
        return found, list(self.access.reasons().values())

    def copies(self) -> int:
        return self.plane.statistics()["exports_copied"]

    # -- as reader ---------------------------------------------------------

    def read(
        self, owner: int, pid: int, handle: bytes, descriptor: bytes, nbytes: int
    ) -> bytes:
        """Take a loan, and look at what was in it."""
        from mooactor.tensors.cuda.pool import Lent

        ticket = self.plane.import_(descriptor)
        to = self.driver.allocate(0, nbytes)
        assert to is not None
        self.opened.copy(Lent(owner, pid, handle), 0, to, nbytes, 0, ticket)
        return self.driver.read(0, to, nbytes)

    def discard(self, descriptor: bytes) -> None:
        self.plane.discard(descriptor)

    def answer(self, owner: int, probe: Any, device: int | None, uuid: bytes) -> None:
        from mooactor.tensors.cuda.peer_access import Probe

        self.access.answer(owner, uuid, device, Probe(*probe))

    def opened_now(self) -> dict[str, int]:
        return self.opened.statistics()

    def close_opened(self) -> None:
        self.opened.close()

    # -- over a fabric -----------------------------------------------------

    def lend_direct(self, value: int, nbytes: int, peer: int) -> tuple[str, Any, bytes]:
        """The message to `peer`: ("loan", its source, the ticket's descriptor);
        ("probe", all of it but the ticket, its descriptor); or ("staged", why,
        nothing)."""
        from mooactor.tensors.cuda.direct import ReadProbe

        source = self.driver.allocate(0, nbytes)
        assert source is not None
        self.driver.write(0, source, patterned(value, nbytes))
        self.words.collect()
        found = self.direct.lend(peer, self.uuid, 0, source, nbytes, 0)
        if found is None:
            return "staged", self.direct.why, b""
        descriptor = self.plane.export(found.ticket, peer)
        if isinstance(found, ReadProbe):
            return "probe", found._replace(ticket=None), descriptor
        return "loan", found.source, descriptor

    def answer_read_probe(self, owner: int, read_probe: Any, descriptor: bytes) -> None:
        read_probe = read_probe._replace(ticket=self.plane.import_(descriptor))
        self.direct.answer(owner, self.uuid, 0, read_probe)

    def read_direct(
        self, owner: int, source: Any, descriptor: bytes, nbytes: int
    ) -> bytes:
        """Read a loan; a digest of what was in it."""
        to = self.driver.allocate(0, nbytes)
        assert to is not None
        ticket = self.plane.import_(descriptor)
        self.direct.copy(owner, self.uuid, source, ticket, 0, to, nbytes, 0)
        return digest(self.driver.read(0, to, nbytes))

    def statistics(self) -> dict[str, int]:
        return self.plane.statistics()

    def route(self, peer: int) -> str | None:
        return self.plane.route(peer)[0]


def patterned(value: int, nbytes: int) -> bytes:
    """Bytes of which no two chunks are alike."""
    block = bytes((value + n * 7) % 251 for n in range(251))
    return (block * (nbytes // 251 + 1))[:nbytes]


def digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


class GpuWorker(Worker):
    """The other process, seen from here."""

    program = __file__


if __name__ == "__main__":
    serve(GpuRole(sys.argv[1], int(sys.argv[2])))
