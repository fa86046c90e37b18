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
from mooactor.tensors.fabrics import BareEndpoint
from mooactor.tensors.network import Network
from mooactor.tensors.plane import DataPlane
from tests.bench.between import Side, running
from tests.bench.network import IMPORTER, KEY, OWNER

NAMES = ("net.fabric",)
PEER = "libfabric"
STAND_IN = "tcp;ofi_rxm"
BYTES = 256 << 20
PIECE = 1 << 20


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
