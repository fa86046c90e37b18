# SPDX-License-Identifier: MIT
"""Learner groups in network namespaces beside torch.distributed with gloo over TCP.

Each namespace stands for a host: it has memory of its own, and frames between the
agents and the group's master are all that goes by this process. This process gives the
ranks commands, by lines on their pipes; the slowest one's time counts.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from mooactor.cli.bench.measure import Effort, turn_about
from mooactor.cli.bench.report import Goal, Row, Skipped
from mooactor.tensors.collective import (
    DTYPES,
    OPS,
    SharedGroup,
    SharedWork,
    part_of,
)
from mooactor.tensors.network import Network as Ways
from tests.clusters import Network
from tests.learner.places import LoneAgent
from tests.networks import limit, why_not

#: The rows of so many ranks, and the namespaces that they are in.
HOSTS = {2: 2, 4: 2, 3: 3, 6: 3}
NAMES = (*(f"ring.{ranks}" for ranks in HOSTS), "ring.paced.2", "ring.paced.3")
SIZES_KB = (64, 256, 1024, 4 << 10, 16 << 10, 64 << 10, 256 << 10)
PEER = "gloo"
PACED_MBIT, BURST_KB, PACED_KB = 1000, 256, 64 << 10
# Of 1514 bytes on the link, 1448 are the stream's.
PAYLOAD = 1448 / 1514


def rows(effort: Effort) -> Iterator[Row | Skipped]:
    """1 and 2 ranks on each of 2 and 3 hosts, by sizes; and with slow links."""
    why = why_not()
    if importlib.util.find_spec("torch") is None:
        why = "torch is not installed, and gloo comes with it"
    if why:
        yield Skipped("ring", why)
        return
    for ranks, hosts in HOSTS.items():
        with _namespaces(hosts) as network:
            yield from _of(ranks, network, effort)
    for hosts in (2, 3):
        with _namespaces(hosts) as network:
            yield _paced(network, effort)


@contextmanager
def _namespaces(count: int) -> Iterator[Network]:
    network = Network("abc"[:count])
    try:
        yield network
    finally:
        network.close()


def _of(ranks: int, net: Network, effort: Effort) -> Iterator[Row]:
    with _group("ours", ranks, net) as ours, _group("gloo", ranks, net) as gloo:
        for kilobytes in SIZES_KB:
            repeats = effort.repeats(40 if kilobytes <= 1024 else 4)
            spent, peer = turn_about(
                effort.rounds,
                lambda: _timed(ours, kilobytes, repeats),
                lambda: _timed(gloo, kilobytes, repeats),
            )
            size = f"{kilobytes} KB" if kilobytes < 1024 else f"{kilobytes >> 10} MB"
            work = f"allreduce of {size}, {ranks} processes in {len(net.hosts)} "
            work += "network namespaces"
            goal = Goal("at most", 0.5, PEER)
            yield Row(f"ring.{ranks}", work, "ms", spent, {PEER: peer}, goal)


def _paced(net: Network, effort: Effort) -> Row:
    """Of the rate of the links, the part that an allreduce uses: it sends and receives
    2(n-1)/n of the tensor."""
    hosts = len(net.hosts)
    for host in net.hosts:
        limit(net.namespace[host], "up0", PACED_MBIT, BURST_KB)
    with _group("ours", hosts, net) as ours:
        (spent,) = turn_about(effort.rounds, lambda: _timed(ours, PACED_KB, 3))
    sent = 2 * (hosts - 1) / hosts * (PACED_KB << 10)
    bound = sent / PAYLOAD * 8 / (PACED_MBIT * 1e3)  # in ms
    work = f"allreduce of {PACED_KB >> 10} MB, {hosts} hosts, links of 1 Gbit/s: "
    work += "the part of their rate"
    goal = Goal("at least", 0.85)
    return Row(f"ring.paced.{hosts}", work, "of 1", bound / spent, goal=goal)


# -- from outside ------------------------------------------------------------------

Ranks = list["subprocess.Popen[str]"]


@contextmanager
def _group(kind: str, ranks: int, network: Network) -> Iterator[Ranks]:
    with ExitStack() as stack:
        where = stack.enter_context(tempfile.TemporaryDirectory())
        agent = LoneAgent()
        memory = {host: agent.memory(host) for host in network.hosts}
        stack.enter_context(_serving(agent))
        processes = []
        for rank in range(ranks):
            host = network.hosts[rank * len(network.hosts) // ranks]
            process = subprocess.Popen(
                [
                    *(*network.on(host), sys.executable, "-m", __name__, kind),
                    network.address(host),
                    *map(str, (rank, ranks, *memory[host])),
                    str(Path(where) / "gloo"),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                pass_fds=memory[host],
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            processes.append(process)
        yield processes


@contextmanager
def _serving(agent: LoneAgent) -> Iterator[None]:
    """Act for the agent, in a thread."""
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            agent.serve(0.1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        agent.close()


def _timed(processes: Ranks, kilobytes: int, repeats: int) -> float:
    """Milliseconds of one sum: the median of the slowest rank's."""
    for process in processes:
        print(kilobytes, repeats, file=process.stdin, flush=True)
    by_rank = []
    for process in processes:
        assert process.stdout is not None
        by_rank.append(json.loads(process.stdout.readline()))
    slowest: list[float] = [max(times) for times in zip(*by_rank, strict=True)]
    return statistics.median(slowest) * 1e3


# -- one rank ----------------------------------------------------------------------


class Rank(NamedTuple):
    """The commands of a rank: wait for all, and sum a tensor in place."""

    barrier: Callable[[], object]
    reduce: Callable[[Any], object]


def _ours(address: str, rank: int, ranks: int, segment: int, bell: int) -> Rank:
    ways = Ways(("shm", "tcp"), bind=address)
    group = SharedGroup(segment, bell, rank, ranks, 60.0, network=ways)
    while not group.ready(1.0):
        pass

    def finish(work: SharedWork) -> None:
        while (outcome := work.wait(1.0)) is None:
            pass
        if outcome.status:
            raise RuntimeError(f"an operation failed: {outcome}")

    def reduce(tensor: Any) -> None:
        spans = [tensor.data_ptr(), tensor.data_ptr(), tensor.nbytes]
        part = part_of("allreduce", DTYPES["float32"], OPS["sum"], spans=spans)
        finish(group.submit(SharedWork(tensor), [part]))

    return Rank(
        lambda: finish(group.submit(SharedWork(), [part_of("barrier")])), reduce
    )


def _gloo(rank: int, ranks: int, where: str) -> Rank:
    import torch.distributed as distributed

    names = [name for _, name in socket.if_nameindex()]
    os.environ["GLOO_SOCKET_IFNAME"] = next(name for name in names if name != "lo")
    distributed.init_process_group(
        "gloo", init_method=f"file://{where}", rank=rank, world_size=ranks
    )
    return Rank(distributed.barrier, distributed.all_reduce)


def serve(
    kind: str, address: str, rank: int, ranks: int, segment: int, bell: int, at: str
) -> None:
    """Be one rank, until the commands end."""
    import torch

    torch.set_num_threads(1)
    if kind == "ours":
        me = _ours(address, rank, ranks, segment, bell)
    else:
        me = _gloo(rank, ranks, at)
    for line in sys.stdin:
        kilobytes, repeats = map(int, line.split())
        tensor, times = torch.ones(kilobytes << 8), []
        for _ in range(repeats):
            me.barrier()
            began = time.perf_counter()
            me.reduce(tensor)
            times.append(time.perf_counter() - began)
            tensor.fill_(1)
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    _, its_kind, its_address, *numbers, its_file = sys.argv
    rank_of, ranks_of, segment_of, bell_of = map(int, numbers)
    serve(its_kind, its_address, rank_of, ranks_of, segment_of, bell_of, its_file)
