# SPDX-License-Identifier: MIT
"""Processes that listen, and their end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mooactor.cli.listeners import Listeners

LISTEN = """
import socket, sys
server = socket.create_server((sys.argv[1], 0), family=int(sys.argv[2]))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
server.close()
print("closed", flush=True)
sys.stdin.close()
import time
time.sleep(float(sys.argv[3]))
"""


class Server:
    """It closes its socket when it is told to, and ends later."""

    def __init__(self, host: str, after_s: float) -> None:
        family = 10 if ":" in host else 2
        words = [sys.executable, "-c", LISTEN, host, str(family), str(after_s)]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        shown = f"[{host}]" if ":" in host else host
        self.address = f"tcp://{shown}:{self.process.stdout.readline().strip()}"

    def close_socket(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        assert self.process.stdout.readline() == "closed\n"

    def close(self) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait()


@pytest.fixture(params=["127.0.0.1", "0.0.0.0", "::1"])
def host(request: pytest.FixtureRequest) -> str:
    if request.param == "::1" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("needs IPv6")
    return str(request.param)


@pytest.fixture
def server(host: str) -> Iterator[Server]:
    server = Server(host, after_s=0.2)
    yield server
    server.close()


def test_the_end_of_a_process_is_awaited_that_has_closed_its_socket(
    server: Server,
) -> None:
    address = server.address.replace("0.0.0.0", "127.0.0.1")
    with closing(Listeners([address])) as listeners:
        server.close_socket()
        assert listeners.wait(20)
        assert server.process.poll() == 0


def test_a_process_that_goes_on_is_awaited_for_so_long(server: Server) -> None:
    with closing(Listeners([server.address])) as listeners:
        assert not listeners.wait(0.05)


def test_nobody_is_awaited_at_addresses_of_other_machines(server: Server) -> None:
    port = server.address.rpartition(":")[2]
    others = [f"tcp://192.0.2.1:{port}", "tcp://127.0.0.1:1"]
    with closing(Listeners(others)) as listeners:
        assert listeners.wait(0.0)
