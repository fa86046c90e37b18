# SPDX-License-Identifier: MIT
"""A broker of 10 000 hosts, on one core.

Some hundred members join a broker of its own process over real connections. The
cost of each, in processor time and memory, is measured there. All its threads keep to
one processor: over two, joins took them a fifth more time. The rest of the 10 000 is
simulated: their announcements go through the same code in this process, which shows
what a row takes of memory, and how much more time the last ones take than the first.
The rows below are the sum for 10 000. Beside the joins: as many new connections at raw
pyzmq, each with one message and its answer.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from mooactor import __version__
from mooactor.cli.bench.measure import Effort, keep_on, processor_time
from mooactor.cli.bench.report import Goal, Row, Skipped
from mooactor.cluster.registry import Registry, read
from mooactor.control import secret
from mooactor.control.channel import Channel
from mooactor.control.envelope import VERSION
from mooactor.control.messages import encode
from mooactor.control.node import Node
from mooactor.host import membership
from mooactor.host.members import (
    FROM_BROKER,
    TO_BROKER,
    Announce,
    AnnounceAgain,
    Joined,
    Refusal,
    Still,
)
from mooactor.process.system import resident_bytes
from tests.bench import pyzmq

NAMES = ("broker.beats", "broker.joins", "broker.memory")
HOSTS = 10_000
PEER = pyzmq.ZMQ
_JOINING = 20  # at a time: both ends share this machine
_PATIENCE_S = 60.0
_IDLE_S = 3.0  # less than the patience of a broker


def rows(effort: Effort) -> Iterator[Row | Skipped]:
    """Joins, then beats, of one sample; then the simulated rest."""
    sample = 100 * min(effort.rounds, 5)
    with _broker() as (pid, address, key):
        node = Node(key)
        try:
            members = _Members(node, address)
            idle_bytes = resident_bytes(pid)
            join_s = members.join(pid, sample)
            connection = (resident_bytes(pid) - idle_bytes) / sample
            beat_s = members.beat(pid, 40 * effort.rounds) + members.idle(pid)
        finally:
            node.close()
    raw_s = _raw_join(sample)
    row_bytes, more_s = _simulated(sample)
    yield Row(
        "broker.beats",
        f"a broker's work for the heartbeats of {HOSTS} hosts",
        "cores",
        HOSTS * beat_s,
        {},
        Goal("at most", 1),
    )
    yield Row(
        "broker.joins",
        "joins that a broker's core does, handshakes included",
        "hosts/s",
        1 / (join_s + more_s),
        {PEER: 1 / raw_s},
        Goal("at least", 1000),
    )
    memory = idle_bytes + HOSTS * (connection + row_bytes)
    yield Row("broker.memory", f"a broker of {HOSTS} hosts", "MB", memory / 1e6)


@contextlib.contextmanager
def _broker() -> Iterator[tuple[int, str, bytes]]:
    """Its process, its address and its key."""
    with tempfile.TemporaryDirectory() as directory:
        key = secret.make(f"{directory}/key")
        words = ["broker", "--listen", "127.0.0.1:0", "--key-file", key.source]
        process = subprocess.Popen(
            [sys.executable, "-m", "mooactor", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout is not None
            address = process.stdout.readline().rstrip().rpartition(" ")[2]
            keep_on(process.pid, {max(os.sched_getaffinity(0))})
            yield process.pid, address, key.secret
        finally:
            process.kill()
            process.communicate()


def _raw_join(count: int) -> float:
    """The processor time of a raw server for a new connection, its message and the
    answer to it; on one processor, as the broker's."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    with pyzmq.server(address) as pid:
        pyzmq.connect_all(address, 1, 1)  # it is up
        keep_on(pid, {max(os.sched_getaffinity(0))})
        before = processor_time(pid)
        pyzmq.connect_all(address, count, _JOINING)
        return (processor_time(pid) - before) / count


class _Members:
    """Many members at one node, each with a connection of its own."""

    def __init__(self, node: Node, address: str) -> None:
        self._node, self._address = node, address
        self._channels: list[Channel] = []
        self._answers = 0

    def handle(self, channel: Channel, data: bytes) -> None:
        message = FROM_BROKER.decode(data)
        if isinstance(message, Refusal):
            raise RuntimeError(f"the broker said {message}")
        self._answers += isinstance(message, Joined | AnnounceAgain)

    def channel_closed(self, channel: Channel, why: str) -> None:
        raise RuntimeError(f"the broker has closed a channel: {why}")

    def join(self, pid: int, count: int) -> float:
        """The broker's processor time for the join of each."""
        before = processor_time(pid)
        for number in range(count):
            channel = self._connect()
            channel.post(Announce(encode(_row(number))))
            self._channels.append(channel)
            self._until(number + 1 - _JOINING)
        self._until(count)
        return (processor_time(pid) - before) / count

    def beat(self, pid: int, rounds: int) -> float:
        """The broker's processor time for one heartbeat of one member."""
        stranger = self._connect()
        stranger.post(Still())  # it has no row, so this is answered
        self._until(self._answers + 1)
        before = processor_time(pid)
        for _ in range(rounds):
            for channel in [*self._channels, stranger]:
                channel.post(Still())
            self._until(self._answers + 1)
        # the broker's libzmq hands messages of all connections on in turn
        return (processor_time(pid) - before) / rounds / len(self._channels)

    def idle(self, pid: int) -> float:
        """The broker's processor time for one member in a second of silence: the
        heartbeats of libzmq, which go both ways."""
        before, began = processor_time(pid), time.monotonic()
        self._node.run_until(lambda: False, _IDLE_S)
        passed = time.monotonic() - began
        return (processor_time(pid) - before) / passed / len(self._channels)

    def _connect(self) -> Channel:
        return membership.connect(self._node, self._address, self)

    def _until(self, answers: int) -> None:
        if not self._node.run_until(lambda: self._answers >= answers, _PATIENCE_S):
            raise RuntimeError(f"{self._answers} of {answers} answers came")


def _simulated(sample: int) -> tuple[float, float]:
    """For the row of one host of 10 000: its bytes, and the seconds that it takes more
    than one of the first `sample`."""
    messages = [encode(Announce(encode(_row(n)))) for n in range(HOSTS)]
    registry = Registry(lambda watcher, message: None)
    bytes_before = resident_bytes(os.getpid())
    spent = [time.process_time()]
    for number, message in enumerate(messages):
        announce = TO_BROKER.decode(message)
        assert isinstance(announce, Announce)
        registry.announce(number, read(announce))
        if number + 1 in (sample, HOSTS - sample, HOSTS):
            spent.append(time.process_time())
    grown = resident_bytes(os.getpid()) - bytes_before
    first, last = spent[1] - spent[0], spent[3] - spent[2]
    return max(0.0, grown / HOSTS), max(0.0, (last - first) / sample)


def _row(number: int) -> dict[str, Any]:
    amounts = {"cpus": 64, "gpus": 8, "memory": 512 << 30}
    versions = {"mooactor": __version__, "python": "3.11.7", "torch": "2.13.0"}
    return {
        "name": f"host-{number:05}.cluster.example",
        "id": f"{number:016x}",
        "address": f"tcp://10.0.{number >> 8}.{number & 255}:20000",
        "kind": "host",
        **amounts,
        "labels": {"rack": f"r{number // 40}", "zone": "a"},
        "free": amounts,
        "versions": {**versions, "wire": VERSION},
        "sessions": ["0123456789abcdef"],
        "actors": 64,
    }
