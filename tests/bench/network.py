# SPDX-License-Identifier: MIT
"""Data between hosts, beside iperf3, and a small message beside a large transfer.

The owner of a block and its importer run on one host each; this process gives them
commands, by lines on their pipes.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import numpy as np

import mooactor as moo
from mooactor.cli.bench.measure import Effort, turn_about
from mooactor.cli.bench.report import Goal, Row, Skipped
from mooactor.tensors.network import Network
from mooactor.tensors.plane import DataPlane
from tests.bench.between import FAR, NEAR, Side, running, two_hosts, why_not
from tests.clusters import Network as Hosts

NAMES = ("net.tcp", "net.small")
PEER = "iperf3"
STREAMS = 2
GIB = 1 << 30
KEY = b"a key for this benchmark"
OWNER, IMPORTER = 1 << 16, 2 << 16


def rows(effort: Effort) -> Iterator[Row | Skipped]:
    """TCP between two namespaces; then calls while a large array is on its way."""
    why = why_not() or (shutil.which("iperf3") is None and "iperf3 is not installed")
    if why:
        yield Skipped("net.tcp", str(why))
    else:
        with two_hosts() as network, tempfile.TemporaryDirectory() as folder:
            yield _tcp(effort, network, folder)
    yield _small_beside_large(effort)


# -- TCP between two namespaces ---------------------------------------------------


def _tcp(effort: Effort, network: Hosts, folder: str) -> Row:
    with (
        _side(network, FAR, "own", folder) as owner,
        _side(network, NEAR, "import", folder) as reader,
    ):

        def fetched() -> float:
            """GB/s of one fetch of 1 GiB into memory that was used before."""
            return GIB / 1e9 / float(reader.ask(owner.ask("export")))

        ours, iperf = turn_about(
            effort.rounds, fetched, lambda: _iperf(network, effort)
        )
    work = f"1 GiB over TCP between two network namespaces, {STREAMS} streams"
    return Row(
        "net.tcp", work, "GB/s", ours, {PEER: iperf}, Goal("at least", 0.9, PEER)
    )


def _iperf(network: Hosts, effort: Effort) -> float:
    """GB/s that iperf3 receives with as many streams."""
    serve = [*network.on(NEAR), "iperf3", "--server", "--one-off", "--forceflush"]
    seconds = str(max(1, round(2 * effort.share)))
    with subprocess.Popen(serve, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it listens
        send = ["iperf3", "--client", network.address(NEAR), "--json"]
        send += ["--time", seconds, "--parallel", str(STREAMS)]
        done = subprocess.run(
            [*network.on(FAR), *send],
            check=True,
            capture_output=True,
        )
        process.stdout.read()
    return (
        float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]) / 8e9
    )


def _side(
    network: Hosts, host: str, role: str, folder: str
) -> AbstractContextManager[Side]:
    words = [sys.executable, "-m", __name__, role, folder, network.address(host)]
    return running([*network.on(host), *words])


def serve(role: str, folder: str, address: str) -> None:
    """Be one of the two processes, until killed."""
    id = OWNER if role == "own" else IMPORTER
    plane = DataPlane(folder, id, KEY, Network(("tcp",), bind=address, stripes=STREAMS))
    memory = np.ones(GIB, np.uint8)
    shared = plane.share(memory) if role == "own" else None
    for line in sys.stdin:
        if line == "ready?\n":
            answer = "yes"
        elif shared is not None:
            answer = plane.export(shared, IMPORTER).hex()
        else:
            began = time.perf_counter()
            plane.begin(bytes.fromhex(line), out=memory).wait(60)
            answer = str(time.perf_counter() - began)
        print(answer, flush=True)


# -- a small message beside a large transfer --------------------------------------


@moo.actor
class Sink:
    """Takes any argument."""

    @moo.method
    def take(self, values: object) -> None:
        return None

    @moo.method
    def echo(self, text: bytes) -> bytes:
        return text


def _small_beside_large(effort: Effort) -> Row:
    """The 99th percentile of calls with 64 bytes, on the way to the same process."""
    with moo.init(transport="tcp"):
        sink = moo.spawn(Sink)
        large = moo.put(np.ones(GIB, np.uint8))
        quiet = effort.repeats(2000)

        def idle() -> float:
            return _p99(sink, lambda spent: len(spent) < quiet)

        def beside() -> float:
            refs = [sink.take.remote(large) for _ in range(4)]
            found = _p99(sink, lambda spent: not refs[-1].done())
            moo.get(refs)
            return found

        ours, alone = turn_about(effort.rounds, beside, idle)
    work = "call with 64 bytes beside a transfer of 1 GiB to the same actor, p99"
    return Row(
        "net.small", work, "µs", ours, {"idle": alone}, Goal("at most", 2, "idle")
    )


def _p99(sink: Sink, go_on: Callable[[list[float]], bool]) -> float:
    # with a priority: calls of one keep their order, and the large one came first
    echo = sink.echo.options(priority=1)
    text, spent = bytes(64), list[float]()
    while go_on(spent):
        began = time.perf_counter()
        echo(text)
        spent.append(time.perf_counter() - began)
    return statistics.quantiles(spent, n=100)[98] * 1e6


if __name__ == "__main__":
    serve(*sys.argv[1:])
