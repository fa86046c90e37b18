# SPDX-License-Identifier: MIT
"""Hosts that are lost and come back, and processes that others cannot connect to."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import mooactor as moo
from mooactor.control.addresses import is_kept_here
from tests.clusters import Cluster, cluster
from tests.conftest import eventually
from tests.faults.cast import WAIT_S, Victim, driving
from tests.processes import stop


@pytest.fixture
def fragile() -> Iterator[Cluster]:
    """A cluster of the test's own."""
    with cluster("ab") as made, driving(made):
        yield made


class Saved:
    """Its count survives it."""

    def __init__(self, mark: Path) -> None:
        self.count, self.mark = 0, mark

    def add(self) -> int:
        self.count += 1
        Path(f"{self.mark}-{self.count}").touch()
        return self.count

    def __snapshot__(self) -> int:
        return self.count

    def __restore__(self, count: int) -> None:
        self.count = count


class Parent:
    """Has an actor of its own on the same host."""

    def adopt(self) -> None:
        self.child = moo.on(Victim, host="b").spawn()


@pytest.mark.slow
def test_the_loss_of_a_host_undoes_no_state_that_a_caller_has_seen(
    fragile: Cluster, tmp_path: Path
) -> None:
    """Among what is lost is an actor that is not born yet, of another one there."""
    saved = moo.on(Saved, host="b", restart=moo.Restart(max=100))
    counter, parent = saved.spawn(tmp_path / "n"), moo.on(Parent, host="b").spawn()
    assert [counter.add(), counter.add(), parent.adopt()] == [1, 2, None]
    stop(fragile.zygote("b"))  # it forks nobody
    parent.adopt()
    stop(fragile.members["b"].pid)  # the actors go on
    third = counter.add.remote()
    assert eventually((tmp_path / "n-3").exists)
    fragile.members["b"].kill()
    with pytest.raises((moo.ActorRestarted, moo.ActorDied)):
        third.get(timeout=WAIT_S)
    with pytest.raises(moo.ActorDied):
        parent.adopt()
    fragile.start_host("b")
    assert counter.add.options(retries=10).remote().get(timeout=WAIT_S) == 3


@pytest.mark.slow
def test_calls_end_and_say_why_if_their_replies_cannot_come(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MOOACTOR_BIND", "127.0.0.1")  # where nobody else comes to
    order, begun = tmp_path / "order", tmp_path / "begun"
    order.write_text("go_on")
    with cluster("b") as made, driving(made):
        far = moo.on(Victim, host="b").spawn()
        called, stream = far.obey.remote(order, begun), far.items(order)
        for get in (called.get, lambda: next(stream), far.echo.remote().get):
            with pytest.raises(moo.ActorUnavailable) as caught:
                get()
            assert caught.value.delivered is None
            why = "host b has no connection to here, at tcp://127.0.0.1:"
            assert why in str(caught.value) and "MOOACTOR_BIND" in str(caught.value)
        assert begun.exists()  # it ran
        assert [row["name"] for row in moo.hosts()] == ["b"]


def test_whether_a_port_is_for_this_host_alone_is_known() -> None:
    def kept(*hosts: str) -> bool:
        """For one of some ports: somebody else may have one at another address."""
        for _ in range(5):
            with contextlib.ExitStack() as servers, contextlib.suppress(OSError):
                port = 0
                for host in hosts:
                    server = servers.enter_context(socket.create_server((host, port)))
                    port = server.getsockname()[1]
                if is_kept_here(port):
                    return True
        return False

    assert kept("127.0.0.1") and kept("127.0.1.1", "127.0.0.1")
    assert not kept("0.0.0.0")
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        assert not is_kept_here(unheard.getsockname()[1])
