# SPDX-License-Identifier: MIT
"""``moo.init`` and hosts, beside brokers that refuse, or that are not there."""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mooactor.cli import main
from mooactor.cli.host import _News
from mooactor.control import secret
from mooactor.control.channel import Channel
from mooactor.control.node import Node
from mooactor.control.reach import Reach
from mooactor.host.addresses import Address
from mooactor.host.driver_joins import reach_of
from tests.cluster.clusters import Cluster, Command
from tests.conftest import at_best
from tests.processes import stop

NOBODY = "tcp://127.0.0.1:1"
DRIVER = """
import os, sys
import time
import mooactor as moo

began = time.monotonic()
try:
    with moo.init(sys.argv[1]):
        print("joined", flush=True)
except moo.MooError as error:
    print(f"{type(error).__name__}: {error}", flush=True)
    if "timed" in os.environ:
        print(time.monotonic() - began)
"""


class Refuser:
    """A broker that takes nobody."""

    def __init__(self, cluster: Cluster) -> None:
        self.refused = 0
        self.node = Node(cluster.key.secret)
        self.node.accept = lambda channel: self
        cluster.nodes.append(self.node)

    def handle(self, channel: Channel, message: dict[str, Any]) -> None:
        if message["op"] == "announce":
            self.refused += 1
            channel.post({"ev": "refused", "why": "install something else"})

    def channel_closed(self, channel: Channel, why: str) -> None: ...


def driver(
    cluster: Cluster,
    *brokers: str,
    key: secret.Key | None = None,
    **variables: str,
) -> Command:
    own = {"MOOACTOR_KEY_FILE": (key or cluster.key).source, **variables}
    words = [sys.executable, "-c", DRIVER, ",".join(brokers)]
    return cluster.command(words=words, **own)


def said_by(cluster: Cluster, program: Command) -> str:
    """The output of a driver, in the end."""
    assert cluster.until(lambda: program.ended, 60), program.text()
    assert program.wait() == 0, program.text()
    return "".join(program.out)


@pytest.mark.slow
def test_a_broker_that_refuses_does_not_speak_for_the_others(cluster: Cluster) -> None:
    broker, address = cluster.broker()
    refuser = Refuser(cluster)
    stop(broker.process.pid)  # so that it answers last
    program = driver(cluster, refuser.node.address, address)
    assert cluster.until(lambda: refuser.refused)
    broker.process.send_signal(signal.SIGCONT)
    assert said_by(cluster, program) == "joined\n"
    said = said_by(cluster, driver(cluster, NOBODY, refuser.node.address))
    assert said.startswith(f"VersionMismatch: the broker at {refuser.node.address}")
    assert "install something else" in said


@pytest.mark.slow
def test_the_name_of_one_broker_may_be_gone_with_its_machine(cluster: Cluster) -> None:
    _, address = cluster.broker()
    gone = "tcp://nowhere.invalid:4431"
    assert said_by(cluster, driver(cluster, gone, address)) == "joined\n"
    words = ("--name", "h", "--key-file", cluster.key.source)
    host = cluster.command("host", "--join", f"{gone},{address}", *words)
    assert cluster.until(lambda: "joined" in host.text()), host.text()
    said = said_by(cluster, driver(cluster, gone, "tcp://nowhere.invalid:4432"))
    assert f"there is no way to the broker at {gone} (" in said
    assert "tcp://nowhere.invalid:4432 (" in said


@pytest.mark.slow
def test_a_driver_says_what_it_waits_for_and_leaves_the_broker_its_port(
    cluster: Cluster,
) -> None:
    first = first_of_free_ports(4)
    address = f"tcp://127.0.0.1:{first}"
    own = {"MOOACTOR_BIND": "127.0.0.1", "MOOACTOR_PORTS": f"{first}-{first + 3}"}
    program = driver(cluster, address, **own)
    assert cluster.until(lambda: program.err), program.text()
    (line,) = program.err
    assert line.startswith(f"mooactor: waiting for a broker at {address}")
    assert re.search(r" within 2\.7 s: nothing listens there\), for 1\d s more$", line)
    cluster.broker(listen=address)
    assert said_by(cluster, program) == "joined\n"


@pytest.mark.slow
def test_a_driver_with_another_key_is_told_which_it_has_and_from_where(
    cluster: Cluster, tmp_path: Path
) -> None:
    broker, address = cluster.broker()
    other = secret.make(str(tmp_path / "other"))
    said = said_by(cluster, driver(cluster, NOBODY, address, key=other))
    keys = f"{cluster.key.fingerprint}, and this side {other.fingerprint}"
    assert said == (
        f"AuthError: no way in at {address}: it holds another key, {keys}: copy the "
        "broker's key file here, or restart the broker with this one; the key here is "
        f"{other}\n"
    )
    assert broker.err[1:] == [
        "mooactor broker: a program on 127.0.0.1 holds another key, "
        f"{other.fingerprint}, and is not let in; the key here is {cluster.key}\n"
    ]


@pytest.mark.quiet
def test_another_key_is_known_within_two_seconds(
    cluster: Cluster, tmp_path: Path
) -> None:
    _, address = cluster.broker()
    other = secret.make(str(tmp_path / "other"))

    def attempt() -> float:
        said = said_by(cluster, driver(cluster, address, key=other, timed="1"))
        assert said.startswith("AuthError")
        return float(said.split()[-1])

    assert at_best(attempt, 2.0)


# -- hosts -----------------------------------------------------------------------


def host(cluster: Cluster, address: str, key: secret.Key, *more: str) -> Command:
    words = ("host", "--name", "h", "--join", address, "--key-file", key.source)
    return cluster.command(*words, *more)


def said_of(host: Command, beginning: str) -> list[str]:
    return [line for line in host.err if line.startswith(f"mooactor host: {beginning}")]


@pytest.mark.slow
def test_a_host_says_each_thing_about_its_broker_once_and_goes_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    first, address = cluster.broker()
    first.signal(signal.SIGKILL)
    h = host(cluster, address, cluster.key, "--wait")
    assert cluster.until(lambda: len(h.err) >= 2), h.text()
    assert h.err[0] == f"mooactor host: uses the {cluster.key}\n"
    assert h.err[1].startswith(f"mooactor host: no broker at {address} yet (no answer ")
    assert "nothing listens there): see whether `mooactor broker` runs" in h.err[1]
    assert h.err[1].endswith(f"; the key here is {cluster.key}\n")
    other = secret.make(str(tmp_path / "other"))
    words = ("broker", "--listen", address, "--key-file", other.source)
    stranger = cluster.command(*words)
    refused = f"the broker at {address} refuses this host: it holds another key, "
    assert cluster.until(lambda: said_of(h, refused)), h.text()
    assert h.err[-1].endswith(
        f"{other.fingerprint}, and this side {cluster.key.fingerprint}\n"
    )
    stranger.signal(signal.SIGKILL)
    broker, _ = cluster.broker(listen=address)
    assert cluster.until(lambda: h.out), h.text()
    broker.signal(signal.SIGKILL)
    assert cluster.until(lambda: said_of(h, f"lost the broker at {address}: "))
    cluster.broker(listen=address)
    assert cluster.until(lambda: said_of(h, f"joined {address}")), h.text()
    assert len(said_of(h, "lost the broker")) == 1


def test_a_host_with_another_key_than_its_broker_ends(
    cluster: Cluster, tmp_path: Path
) -> None:
    _, address = cluster.broker()
    other = secret.make(str(tmp_path / "other"))
    h = host(cluster, address, other)
    assert cluster.until(lambda: h.ended), h.text()
    assert h.wait() == 1 and not h.out
    assert h.err[-1] == (
        f"mooactor host: the broker at {address} refuses this host: it holds another "
        f"key, {cluster.key.fingerprint}, and this side {other.fingerprint}: copy the "
        "broker's key file here, or restart the broker with this one; the key here is "
        f"{other}; with --wait it goes on trying\n"
    )


@pytest.mark.parametrize("joined", ["before", "meanwhile", "never"])
def test_a_host_whose_name_is_taken_ends_unless_it_has_joined_any_broker(
    joined: str,
) -> None:
    timers: list[Callable[[], None]] = []
    said: list[str] = []
    serving: Any = SimpleNamespace(
        loop=SimpleNamespace(later=lambda delay, action: timers.append(action)),
        log=said.append,
        ready=said.append,
        stop=lambda: said.append("stop"),
    )
    news = _News(serving, "b", secret.Key(b"k" * 32, "FILE"))
    if joined == "before":
        news.joined("tcp://10.0.0.1:4431")
    news.hopeless("tcp://10.0.0.2:4431", "there is another one")
    if joined == "meanwhile":
        news.joined("tcp://10.0.0.1:4431")
    for action in timers:
        action()
    assert ("stop" in said) == (news.refusal is not None) == (joined == "never")


@pytest.mark.slow
def test_a_host_says_that_it_is_no_broker(cluster: Cluster) -> None:
    _, broker = cluster.broker()
    h = host(cluster, broker, cluster.key)
    assert cluster.until(lambda: h.out), h.text()
    for op in ("announce", "still", "hosts", "watch", "standby", "peers"):
        channel, recorder = cluster.visit(address_of(cluster, broker))
        channel.post({"op": op})
        assert cluster.until(lambda r=recorder: r.closed)
        assert recorder.closed == ["this is a host, no broker"]
    assert h.signal() == 0
    assert not any("a session ends" in line for line in h.err), h.text()


# -- ports -----------------------------------------------------------------------


def first_of_free_ports(count: int) -> int:
    """The first of several ports in a row that are free, and below those that Linux
    gives to outgoing connections: one that has just ended would keep its port."""
    while True:
        first = random.randrange(21000, 31000)
        with contextlib.ExitStack() as taken, contextlib.suppress(OSError):
            for port in range(first, first + count):
                taken.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


def address_of(cluster: Cluster, broker: str) -> str:
    """The host's."""
    said = cluster.ask("status", "--connect", broker, "--json").out[0]
    (row,) = json.loads(said)["hosts"]
    return str(row["address"])


@pytest.mark.slow
def test_a_host_leaves_the_ports_of_its_brokers_to_them(cluster: Cluster) -> None:
    first = first_of_free_ports(4)
    brokers = [f"tcp://127.0.0.1:{first + number}" for number in (0, 2)]
    where = ("--ports", f"{first}-{first + 3}", "--bind", "127.0.0.1")
    words = ("host", "--name", "h", "--join", ",".join(brokers), *where)
    with socket.create_server(("127.0.0.1", first + 1)):
        h = cluster.command(*words, "--key-file", cluster.key.source)
        assert cluster.until(lambda: said_of(h, "no broker")), h.text()
        cluster.broker(listen=brokers[1])
        assert cluster.until(lambda: h.out), h.text()
        assert address_of(cluster, brokers[1]) == f"tcp://127.0.0.1:{first + 3}"


def test_ports_that_are_the_brokers_are_none_for_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = secret.make(str(tmp_path / "key")).source
    words = ("--join", "127.0.0.1:4000,127.0.0.1:4001", "--ports", "4000-4001")
    assert main(["host", "--name", "h", "--key-file", key, *words]) == 2
    said = capsys.readouterr().err
    assert "the ports 4000-4001 of --ports or MOOACTOR_PORTS are those of" in said
    assert said.endswith(": give a larger range\n")


def test_brokers_of_other_machines_cost_no_port() -> None:
    far, unknown = Address("192.0.2.7", 4001), Address("nowhere.invalid", 4003)
    with socket.create_server(("127.0.0.1", 0)) as here:
        near = Address("127.0.0.1", here.getsockname()[1])
        reach = reach_of([near, far], None, range(4000, 4009), local=False)
        assert (reach["ports"], reach["spared"]) == ([4000, 4008], [])
        reach = reach_of([near, unknown], None, range(4000, 4009), local=False)
        assert (reach["ports"], reach["spared"]) == ([4000, 4008], [4003])
        assert Reach.of_plain(reach) == Reach.of_plain(Reach.of_plain(reach).plain())
