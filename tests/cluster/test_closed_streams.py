# SPDX-License-Identifier: MIT
"""Commands that are started with standard input, output or error closed."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from tests.cluster.clusters import COMMAND, Agent, Cluster, Command
from tests.cluster.launched import Launched

ALL = "<&- >&- 2>&-"


def closing(closed: str) -> list[str]:
    """The words that run others so."""
    return ["/bin/sh", "-c", f'exec "$@" {closed}', "sh"]


def start(cluster: Cluster, closed: str, *words: str) -> Command:
    key = ("--key-file", cluster.key.source)
    return cluster.command(words=[*closing(closed), *COMMAND, *words, *key])


def test_a_failure_is_json_alone_on_stdout_without_stderr(cluster: Cluster) -> None:
    status = start(cluster, "2>&-", "status", "--json", "--connect", "?")
    assert cluster.until(lambda: status.ended)
    assert status.wait() == 2
    (line,) = status.out
    assert list(json.loads(line)) == ["error"]


def test_top_goes_on_without_stdout(cluster: Cluster) -> None:
    _, address = cluster.broker()
    home = Agent(cluster.member("laptop", address, kind="home"))
    home.answers["status"] = [{"ev": "status", "session": "s1", "actors": []}]
    top = start(cluster, ">&-", "top", "--interval", "0.1", "--connect", address)
    assert cluster.until(lambda: len(home.asked) >= 3 or top.ended)
    assert top.signal(signal.SIGINT) == 0
    assert top.err == []


def test_a_broker_and_a_host_serve_without_any(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    broker = start(cluster, ALL, "broker", "--listen", listen)
    address = f"tcp://{listen}"
    a = cluster.member("a", address)
    assert cluster.until(lambda: a.joined)
    host = start(cluster, ALL, "host", "--join", address, "--name", "b")
    assert cluster.until(lambda: "b" in a.names())
    for command in (host, broker):
        own = [os.readlink(f"/proc/{command.process.pid}/fd/{fd}") for fd in (0, 1, 2)]
        assert own == [os.devnull] * 3
        assert command.signal() == 0


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&-", ALL])
def test_run_runs_the_program(closed: str, tmp_path: Path) -> None:
    script = "import os; open('out', 'w').write(str(list(map(os.fstat, (0, 1, 2)))))"
    (tmp_path / "script.py").write_text(f"{script}; raise SystemExit(7)")
    run = Launched(["--local-only", "script.py"], tmp_path, on=closing(closed))
    assert run.end() == 7
    assert (tmp_path / "out").exists()
