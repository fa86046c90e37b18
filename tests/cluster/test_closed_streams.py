# SPDX-License-Identifier: MIT
"""Commands that are started with standard input, output or error closed."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tests.cluster.clusters import COMMAND, Cluster, Command
from tests.cluster.launched import Launched

ALL = "<&- >&- 2>&-"


def closing(closed: str) -> list[str]:
    """The words that run others so."""
    return ["/bin/sh", "-c", f'exec "$@" {closed}', "sh"]


def start(cluster: Cluster, closed: str, *words: str) -> Command:
    key = ("--key-file", cluster.key.source)
    return cluster.command(words=[*closing(closed), *COMMAND, *words, *key])


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


def test_run_runs_the_program(tmp_path: Path) -> None:
    script = "import os; open('out', 'w').write(str(list(map(os.fstat, (0, 1, 2)))))"
    (tmp_path / "script.py").write_text(f"{script}; raise SystemExit(7)")
    run = Launched(["--local-only", "script.py"], tmp_path, on=closing(ALL))
    assert run.end() == 7
    assert (tmp_path / "out").exists()
