# SPDX-License-Identifier: MIT
"""Data between hosts, beside iperf3, and a small message beside a large transfer.

Two network namespaces stand for two hosts. The owner of a block and its importer run in
one each; this process gives them commands, by lines on their pipes.
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
from contextlib import AbstractContextManager, contextmanager

import numpy as np

import mooactor as moo
from mooactor.cli.bench.measure import Effort, turn_about
from mooactor.cli.bench.namespaces import Host, obstacle, two_namespaces
from mooactor.cli.bench.row import Goal, Row, Skipped
from mooactor.tensors.network import Network
from mooactor.tensors.plane import DataPlane

NAMES = ("net.tcp", "net.small")
PEER = "iperf3"
STREAMS = 2
GIB = 1 << 30
KEY = b"a key for this benchmark"
OWNER, IMPORTER = 1 << 16, 2 << 16


def rows(effort: Effort) -> Iterator[Row | Skipped]:
    """TCP between two namespaces; then calls while a large array is on its way."""
    why = obstacle() or (shutil.which("iperf3") is None and "iperf3 is not installed")
    if why:
        yield Skipped("net.tcp", str(why))
    else:
        yield from _between_hosts(effort)
    yield _small_beside_large(effort)


# -- TCP between two namespaces ---------------------------------------------------


def _between_hosts(effort: Effort) -> Iterator[Row | Skipped]:
    try:
        with two_namespaces() as (here, there), tempfile.TemporaryDirectory() as folder:
            yield _tcp(effort, here, there, folder)
    except OSError as error:
        yield Skipped("net.tcp", f"no network namespaces here: {error}")


def _tcp(effort: Effort, here: Host, there: Host, folder: str) -> Row:
    with _side(there, "own", folder) as owner, _side(here, "import", folder) as reader:

        def fetched() -> float:
            """GB/s of one fetch of 1 GiB into memory that was used before."""
            return GIB / 1e9 / float(reader.ask(owner.ask("export")))

        ours, iperf = turn_about(
            effort.rounds, fetched, lambda: _iperf(here, there, effort)
        )
    work = f"1 GiB over TCP between two network namespaces, {STREAMS} streams"
    return Row(
        "net.tcp", work, "GB/s", ours, {PEER: iperf}, Goal("at least", 0.9, PEER)
    )


def _iperf(server: Host, client: Host, effort: Effort) -> float:
    """GB/s that iperf3 receives with as many streams."""
    serve = server.command("iperf3", "--server", "--one-off", "--forceflush")
    seconds = str(max(1, round(2 * effort.share)))
    with subprocess.Popen(serve, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it listens
        send = ["iperf3", "--client", server.address, "--json", "--time", seconds]
        done = subprocess.run(
            client.command(*send, "--parallel", str(STREAMS)),
            check=True,
            capture_output=True,
        )
        process.stdout.read()
    return (
        float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]) / 8e9
    )


class Side:
    """A process in a namespace that answers a line with a line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextmanager
def running(
    command: list[str], name: str, env: dict[str, str] | None = None
) -> Iterator[Side]:
    """A process that answers, from its first answer on; killed at the end."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=env, **pipes) as process:  # type: ignore[call-overload]
        side = Side(process)
        try:
            if side.ask("ready?") != "yes":
                raise RuntimeError(f"{name} did not start")
            yield side
        finally:
            process.kill()


def _side(host: Host, role: str, folder: str) -> AbstractContextManager[Side]:
    module = "mooactor.cli.bench.network"
    command = host.command(sys.executable, "-m", module, role, folder, host.address)
    return running(command, f"the {role} process in {host.name}")


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
