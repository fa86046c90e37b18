# SPDX-License-Identifier: MIT
"""Strangers in masses at a broker's port."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Iterator

import pytest

from mooactor.process.system import resident_bytes
from tests.cluster.clusters import Cluster

WANTED = 10_000


@pytest.fixture
def strangers() -> Iterator[int]:
    """How many connections this process can have, up to ten thousand."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = WANTED + 1000
    most = room if hard == resource.RLIM_INFINITY else min(room, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    yield most - 1000
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def waiting(port: int) -> int:
    """How many connections the kernel keeps for whoever listens at the port."""
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file]
    (queues,) = (r[4] for r in rows if r[1].endswith(f":{port:04X}") and r[3] == "0A")
    return int(queues.partition(":")[2], 16)


@pytest.mark.slow
def test_ten_thousand_half_open_connections_keep_no_member_out(
    cluster: Cluster, strangers: int
) -> None:
    broker, address = cluster.broker()
    a = cluster.member("a", address)
    assert cluster.until(lambda: a.joined)
    said = len(broker.err)
    pid, port = broker.process.pid, int(address.rpartition(":")[2])
    before, opened = resident_bytes(pid), descriptors(pid)
    with contextlib.ExitStack() as stack:
        for number in range(strangers):
            stranger = stack.enter_context(socket.socket())
            stranger.setblocking(False)
            stranger.connect_ex(("127.0.0.1", port))
            if number % 200 == 0:  # as fast as the broker takes them in
                assert cluster.until(lambda: waiting(port) == 0)
        b = cluster.member("b", address)
        assert cluster.until(lambda: a.names() == b.names() == ["a", "b"])
        assert resident_bytes(pid) - before < 100e6
    assert cluster.until(lambda: descriptors(pid) <= opened + 1)
    assert a.lost == a.gone == []
    assert [line for line in broker.err[said:] if "host b has" not in line] == []
