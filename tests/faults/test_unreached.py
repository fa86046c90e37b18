# SPDX-License-Identifier: MIT
"""Processes that others cannot connect to: what comes of calls to others."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.control.addresses import is_kept_here
from tests.clusters import Cluster, network

SOON_S = 60.0  # ten seconds, and what a busy machine adds


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A broker that listens everywhere, and this process as a driver beside it."""
    with network("bd") as net:
        made = Cluster(net, broker="d")
        made.start_broker("--listen", f"*:{made.port}")  # as by default, with a key
        try:
            made.start_host("b")
            for key, value in made.environment("d").items():
                monkeypatch.setenv(key, value)
            monkeypatch.setenv("MOOACTOR_HOST_NAME", "d")
            with net.inside("d"):
                yield made
        finally:
            moo.shutdown()
            made.close()


class Marks:
    """Writes what it does to a file, which is the same for all hosts here."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def mark(self) -> int:
        with self._path.open("a") as file:
            return file.write("x")

    def stream(self) -> Iterator[int]:
        yield from range(1000)


def ends_saying_why(get: Callable[[], Any], address: str) -> None:
    with pytest.raises(moo.ActorUnavailable) as caught:
        get()
    assert caught.value.delivered is None
    assert f"host b has no connection to here, at tcp://{address}:" in str(caught.value)
    assert "MOOACTOR_BIND" in str(caught.value)


@pytest.mark.slow
def test_calls_end_if_their_replies_cannot_come(
    here: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    port = here.address.rpartition(":")[2]
    # Debian gives a machine's own name the address 127.0.1.1.
    for name in ("127.0.0.1", "localhost", "127.0.1.1"):
        with moo.init(f"tcp://{name}:{port}"):
            far = moo.on(Marks, host="b").spawn(Path("/dev/null"))
            assert far.mark.remote().get(SOON_S) == 1
    monkeypatch.setenv("MOOACTOR_BIND", "127.0.0.1")  # where nobody else comes to
    path = tmp_path / "marks"
    with moo.init(here.address):
        far = moo.on(Marks, host="b").spawn(path)
        called, stream = far.mark.remote(), far.stream()
        for get in (lambda: called.get(SOON_S), lambda: next(stream)):
            ends_saying_why(get, "127.0.0.1")
        assert path.read_text() == "x"  # it ran, and once
        ends_saying_why(lambda: far.mark.remote().get(SOON_S), "127.0.0.1")
        assert moo.on(Marks, host="d").spawn(path).mark() == 1
        assert any(row["name"] == "b" for row in moo.hosts())


def test_whether_a_port_is_for_this_host_alone_is_known() -> None:
    def kept(*hosts: str) -> bool:
        first = socket.create_server((hosts[0], 0))
        port = first.getsockname()[1]
        rest = [socket.create_server((host, port)) for host in hosts[1:]]
        try:
            return is_kept_here(port)
        finally:
            for server in (first, *rest):
                server.close()

    assert kept("127.0.0.1") and kept("127.0.1.1", "127.0.0.1")
    assert not kept("0.0.0.0")
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        assert not is_kept_here(unheard.getsockname()[1])
