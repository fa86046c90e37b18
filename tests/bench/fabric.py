# SPDX-License-Identifier: MIT
"""Reads through libfabric, beside libfabric used as its own benchmark does.

The owner of a block and its importer are two processes of this machine; this one gives
them commands, by lines on their pipes.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import numpy as np

from mooactor.cli.bench.measure import Effort, turn_about
from mooactor.cli.bench.report import Goal, Row, Skipped
from mooactor.errors import ActorUnavailable
from mooactor.tensors.extension import ffi, lib, missing, why_missing
from mooactor.tensors.failures import error_for
from mooactor.tensors.network import Network, probe_fabric
from mooactor.tensors.plane import DataPlane
from tests.bench.between import Side, running
from tests.bench.network import IMPORTER, KEY, OWNER

NAMES = ("net.fabric",)
PEER = "libfabric"
STAND_IN = "tcp;ofi_rxm"
BYTES = 256 << 20
PIECE = 1 << 20
_WHY_BYTES = 256


def rows(effort: Effort) -> Iterator[Row | Skipped]:
    """256 MiB read by another process of this machine, by the fabric that is named."""
    provider = os.environ.get("MOOACTOR_FABRIC") or STAND_IN
    try:
        BareEndpoint(provider, 1)
    except (ActorUnavailable, RuntimeError) as error:
        yield Skipped("net.fabric", str(error))
    else:
        yield _reads(provider, effort)


def _reads(provider: str, effort: Effort) -> Row:
    with (
        tempfile.TemporaryDirectory(prefix="moo-bench-") as folder,
        _side("own", provider, folder) as owner,
        _side("import", provider, folder) as reader,
    ):
        offer = owner.ask("offer")

        def fetched() -> float:
            return BYTES / 1e9 / float(reader.ask(f"fetch {owner.ask('export')}"))

        def bare() -> float:
            owner.ask("serve")
            seconds = float(reader.ask(f"read {offer}"))
            owner.ask("stop")
            return BYTES / 1e9 / seconds

        ours, alone = turn_about(effort.rounds, fetched, bare)
    work = f"256 MiB over {provider} to another process"
    return Row(
        "net.fabric", work, "GB/s", ours, {PEER: alone}, Goal("at least", 0.8, PEER)
    )


def _side(role: str, provider: str, folder: str) -> AbstractContextManager[Side]:
    command = [sys.executable, "-m", __name__, role, provider, folder]
    return running(command)


class BareEndpoint:
    """libfabric's own speed: reads as its benchmark `fi_rma_bw` does them.

    The runtime takes no part. Both sides keep a core busy while they work. One thread
    at a time; all methods release the GIL.
    """

    def __init__(self, provider: str, size: int) -> None:
        """Open one with `size` bytes of memory, to be read or to read into.

        Raises:
          ActorUnavailable: there is no such fabric on this machine.
          RuntimeError: the data plane does not exist on this platform.
        """
        if missing is not None:
            raise RuntimeError(why_missing()) from missing
        if not hasattr(lib, "moo_bare_open"):  # built without libfabric
            raise ActorUnavailable(probe_fabric()[1][0])
        out, why = ffi.new("moo_bare **"), ffi.new("char[]", _WHY_BYTES)
        err = lib.moo_bare_open(provider.encode(), size, out, why, _WHY_BYTES)
        if err == lib.MOO_EUNREACHABLE:
            raise ActorUnavailable(ffi.string(why).decode(errors="replace"))
        if err:
            raise error_for(err, f"cannot open an endpoint of {provider}")
        self._bare = ffi.gc(out[0], lib.moo_bare_close)

    def offer(self) -> bytes:
        """The address and key for a reader of this memory."""
        out = ffi.new("uint8_t[]", lib.MOO_BARE_OFFER_BYTES)
        if err := lib.moo_bare_offer(self._bare, out):
            raise error_for(err, "the endpoint has no name")
        return bytes(ffi.buffer(out))

    def serve(self, until: int) -> None:
        """Let others read until the descriptor `until` is readable."""
        lib.moo_bare_serve(self._bare, until)

    def read(self, offer: bytes, piece: int, timeout: float = 60.0) -> None:
        """Read all of the memory offered, `piece` bytes at a time, 64 under way.

        Raises:
          RuntimeError: the other side hung up, or `timeout` seconds have passed.
          ValueError: this is no offer, or one of less memory.
        """
        if len(offer) != lib.MOO_BARE_OFFER_BYTES:
            raise ValueError("this is no offer")
        err = lib.moo_bare_read(self._bare, offer, piece, int(timeout * 1e3))
        if err:
            raise error_for(err, "libfabric's reads failed")


# -- one of the two processes ------------------------------------------------------


def answer(role: str, provider: str, folder: str) -> None:
    """Be one of them: a line for a line, until killed."""
    id = OWNER if role == "own" else IMPORTER
    plane = DataPlane(folder, id, KEY, Network(("ofi",), provider=provider))
    memory = np.ones(BYTES, np.uint8)
    shared = plane.share(memory) if role == "own" else None
    bare = BareEndpoint(provider, BYTES)
    for line in sys.stdin:
        order, _, given = line.strip().partition(" ")
        if order == "export" and shared is not None:
            said = plane.export(shared, IMPORTER).hex()
        elif order == "fetch":
            what = bytes.fromhex(given)
            said = _seconds(lambda: plane.begin(what, out=memory).wait(60))
        elif order == "offer":
            said = bare.offer().hex()
        elif order == "read":
            offer = bytes.fromhex(given)
            said = _seconds(lambda: bare.read(offer, PIECE))
        else:
            said = "yes"
        print(said, flush=True)
        if order == "serve":  # until the next order
            bare.serve(sys.stdin.fileno())


def _seconds(work: Callable[[], object]) -> str:
    began = time.perf_counter()
    work()
    return str(time.perf_counter() - began)


if __name__ == "__main__":
    answer(*sys.argv[1:])
