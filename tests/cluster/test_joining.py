# SPDX-License-Identifier: MIT
"""What ``moo.init`` and hosts make of brokers that refuse, or that are not there."""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mooactor.cli.host import _News
from mooactor.control import secret
from mooactor.control.channel import Channel
from mooactor.control.node import Node
from mooactor.control.reach import Reach
from mooactor.host.addresses import Address
from mooactor.host.driver_joins import reach_of
from tests.cluster.clusters import Cluster, Command
from tests.processes import stop

pytestmark = pytest.mark.slow

DRIVER = """
import sys, time
import mooactor as moo

begun = time.monotonic()
try:
    with moo.init(sys.argv[1]):
        print("joined", flush=True)
except moo.MooError as error:
    print(f"{time.monotonic() - begun:.0f} {type(error).__name__}: {error}", flush=True)
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
    cluster: Cluster, *brokers: str, before: str = "", key: secret.Key | None = None
) -> Command:
    own = {
        "MOOACTOR_KEY_FILE": (key or cluster.key).source,
        "XDG_CONFIG_HOME": str(cluster.directory),
    }
    words = [sys.executable, "-c", before + DRIVER, ",".join(brokers)]
    command = Command(words=words, **own)
    cluster.commands.append(command)
    return command


def test_a_broker_that_refuses_does_not_speak_for_the_others(cluster: Cluster) -> None:
    broker, address = cluster.broker()
    refuser = Refuser(cluster)
    stop(broker.process.pid)  # so that it answers last
    program = driver(cluster, refuser.node.address, address)
    assert cluster.until(lambda: refuser.refused)
    broker.process.send_signal(signal.SIGCONT)
    assert cluster.until(lambda: program.ended), program.text()
    assert program.wait() == 0 and program.out == ["joined\n"], program.text()


def test_a_refusal_counts_once_the_others_are_known_not_to_answer(
    cluster: Cluster,
) -> None:
    refuser = Refuser(cluster)
    program = driver(cluster, "tcp://127.0.0.1:1", refuser.node.address)
    assert cluster.until(lambda: program.ended), program.text()
    (line,) = program.out
    seconds, said = line.split(" ", 1)
    assert said.startswith(f"VersionMismatch: the broker at {refuser.node.address}")
    assert "install something else" in said
    assert int(seconds) < 15  # of the 20 for brokers that may still come


def test_the_agents_own_error_is_the_programs(cluster: Cluster) -> None:
    _, address = cluster.broker()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        # The session's own process listens elsewhere: the agent alone finds no port.
        patch = (
            "from mooactor.host.driver_joins import Joining\n"
            "plain = Joining.plain\n"
            f"taken = {{'ports': [{port}, {port}]}}\n"
            "Joining.plain = lambda self: plain(self) | taken\n"
        )
        begun = time.monotonic()
        program = driver(cluster, address, before=patch)
        assert cluster.until(lambda: program.ended), program.text()
    assert time.monotonic() - begun < 19
    assert f"MooError: this session cannot join {address}: " in program.out[0]
    assert f"all 1 ports from {port} to {port} are taken" in program.out[0]
    assert "MOOACTOR_PORTS for a program" in program.out[0]


def test_the_name_of_one_broker_may_be_gone_with_its_machine(cluster: Cluster) -> None:
    _, address = cluster.broker()
    gone = "tcp://nowhere.invalid:4431"
    program = driver(cluster, gone, address)
    assert cluster.until(lambda: program.ended), program.text()
    assert program.wait() == 0 and program.out == ["joined\n"], program.text()
    words = ("--name", "h", "--key-file", cluster.key.source)
    host = cluster.command("host", "--join", f"{gone},{address}", *words)
    assert cluster.until(lambda: "joined" in host.text()), host.text()
    program = driver(cluster, gone, "tcp://nowhere.invalid:4432")
    assert cluster.until(lambda: program.ended), program.text()
    assert "there is no way to the broker at tcp://nowhere.invalid:4431 (" in (
        program.text()
    )
    assert "tcp://nowhere.invalid:4432 (" in program.text()


def test_a_driver_says_what_it_waits_for(cluster: Cluster) -> None:
    broker, address = cluster.broker()
    broker.signal(signal.SIGKILL)
    program = driver(cluster, address)
    assert cluster.until(lambda: program.err), program.text()
    (line,) = program.err
    assert line.startswith(f"mooactor: waiting for a broker at {address}")
    assert re.search(r" within 2\.7 s: nothing listens there\), for 1\d s more$", line)
    cluster.broker(listen=address)
    assert cluster.until(lambda: program.ended), program.text()
    assert program.out == ["joined\n"], program.text()


def test_a_driver_with_another_key_is_told_which_it_has_and_from_where(
    cluster: Cluster, tmp_path: Path
) -> None:
    _, address = cluster.broker()
    nobody, other = "tcp://127.0.0.1:1", secret.make(str(tmp_path / "other"))
    program = driver(cluster, nobody, address, key=other)
    assert cluster.until(lambda: program.ended, 60), program.text()
    program.wait()
    assert program.out[0].endswith(
        "the handshake failed, so what listens there holds another key or is no "
        "mooactor): copy the broker's key file here, or restart the broker with this "
        f"one; the key here is key {other.fingerprint} from {other.source}\n"
    ), program.text()
    assert "nothing listens there; no answer from" in program.out[0]


def host(cluster: Cluster, address: str, key: secret.Key) -> Command:
    words = ("host", "--name", "h", "--join", address, "--key-file", key.source)
    return cluster.command(*words)


def said_of(host: Command, beginning: str) -> list[str]:
    return [line for line in host.err if line.startswith(f"mooactor host: {beginning}")]


def test_a_host_says_its_key_and_once_why_there_is_no_broker_yet(
    cluster: Cluster,
) -> None:
    broker, address = cluster.broker()
    broker.signal(signal.SIGKILL)
    h = host(cluster, address, cluster.key)
    assert cluster.until(lambda: len(h.err) >= 2), h.text()
    assert h.err[0] == f"mooactor host: uses the {cluster.key}\n"
    assert h.err[1].startswith(f"mooactor host: no broker at {address} yet (no answer ")
    assert "nothing listens there): see whether `mooactor broker` runs" in h.err[1]
    assert h.err[1].endswith(f"; the key here is {cluster.key}\n")
    broker, _ = cluster.broker(listen=address)
    assert cluster.until(lambda: h.out), h.text()
    broker.signal(signal.SIGKILL)
    assert cluster.until(lambda: said_of(h, f"lost the broker at {address}: "))
    assert len(said_of(h, "no broker")) == 1


def test_a_host_with_another_key_says_so_and_goes_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    broker, address = cluster.broker()
    h = host(cluster, address, secret.make(str(tmp_path / "other")))
    assert cluster.until(lambda: said_of(h, f"no broker at {address} yet")), h.text()
    assert "holds another key or is no mooactor): copy the broker's key" in h.err[-1]
    broker.signal(signal.SIGKILL)
    assert cluster.until(lambda: len(said_of(h, "no broker")) == 2), h.text()
    assert "nothing listens there" in h.err[-1]
    assert not said_of(h, "lost the broker") and not h.out


def test_a_host_says_once_that_it_has_lost_a_broker(
    cluster: Cluster, tmp_path: Path
) -> None:
    broker, address = cluster.broker()
    h = host(cluster, address, cluster.key)
    assert cluster.until(lambda: h.out), h.text()
    broker.signal(signal.SIGKILL)
    assert cluster.until(lambda: said_of(h, "no broker")), h.text()  # a second try
    other = secret.make(str(tmp_path / "other"))
    words = ("--listen", address, "--key-file", other.source)
    broker = cluster.command("broker", *words)
    assert cluster.until(lambda: len(said_of(h, "no broker")) == 2), h.text()  # a third
    broker.signal(signal.SIGKILL)
    cluster.broker(listen=address)
    assert cluster.until(lambda: said_of(h, f"joined {address}")), h.text()
    assert len(said_of(h, f"lost the broker at {address}: ")) == 1, h.text()
    nothing, another = said_of(h, "no broker")
    assert "nothing listens there" in nothing and "holds another key" in another


def test_each_reason_why_a_lost_broker_is_not_there_is_said_once() -> None:
    said: list[str] = []
    serving: Any = SimpleNamespace(log=said.append, ready=said.append)
    news = _News(serving, "b", secret.Key(b"k" * 32, "FILE"))
    for _ in range(2):
        news.joined("tcp://10.0.0.1:4431")
        for why in ["it ended", "silence", "it ended", "silence", "another key"] * 2:
            news.lost("tcp://10.0.0.1:4431", why)
    lines = [line.partition("(")[0] for line in said]
    joined, lost, *none = lines[:4]
    assert "joined tcp" in joined and lost.endswith(" at tcp://10.0.0.1:4431: it ended")
    assert none == ["no broker at tcp://10.0.0.1:4431 yet "] * 2
    assert lines[4:] == ["joined tcp://10.0.0.1:4431", *lines[1:4]]


def first_of_free_ports(count: int) -> int:
    """The first of several ports in a row that are free, and below those that Linux
    gives to outgoing connections: one that has just ended would keep its port."""
    while True:
        first = random.randrange(21000, 31000)
        with contextlib.ExitStack() as taken, contextlib.suppress(OSError):
            for port in range(first, first + count):
                taken.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


def host_within(cluster: Cluster, ports: range, *brokers: str) -> Command:
    """A host that listens where the brokers do."""
    where = ("--ports", f"{ports[0]}-{ports[-1]}", "--bind", "127.0.0.1")
    words = ("host", "--name", "h", "--join", ",".join(brokers), *where)
    return cluster.command(*words, "--key-file", cluster.key.source)


def address_of(cluster: Cluster, broker: str) -> str:
    """The host's."""
    said = cluster.ask("status", "--connect", broker, "--json").out[0]
    (row,) = json.loads(said)["hosts"]
    return str(row["address"])


def test_a_host_leaves_its_port_to_a_broker_that_starts_later(
    cluster: Cluster,
) -> None:
    first = first_of_free_ports(3)
    brokers = [f"tcp://127.0.0.1:{first + number}" for number in (0, 1)]
    h = host_within(cluster, range(first, first + 3), *brokers)
    assert cluster.until(lambda: said_of(h, "no broker")), h.text()
    cluster.broker(listen=brokers[0])
    assert cluster.until(lambda: h.out), h.text()
    assert address_of(cluster, brokers[0]) == f"tcp://127.0.0.1:{first + 2}"


def test_a_host_leaves_out_the_port_of_a_broker_between_its_own(
    cluster: Cluster,
) -> None:
    first = first_of_free_ports(3)
    broker = f"tcp://127.0.0.1:{first + 1}"
    with socket.create_server(("127.0.0.1", first)):
        h = host_within(cluster, range(first, first + 3), broker)
        assert cluster.until(lambda: said_of(h, "no broker")), h.text()
        cluster.broker(listen=broker)
        assert cluster.until(lambda: h.out), h.text()
        assert address_of(cluster, broker) == f"tcp://127.0.0.1:{first + 2}"


def test_a_driver_leaves_its_port_to_a_broker_that_starts_later(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = first_of_free_ports(4)
    address = f"tcp://127.0.0.1:{first}"
    monkeypatch.setenv("MOOACTOR_BIND", "127.0.0.1")
    monkeypatch.setenv("MOOACTOR_PORTS", f"{first}-{first + 3}")
    program = driver(cluster, address)
    assert cluster.until(lambda: program.err), program.text()
    cluster.broker(listen=address)
    assert cluster.until(lambda: program.ended), program.text()
    assert program.out == ["joined\n"], program.text()


def test_ports_that_are_the_brokers_are_none_for_others(cluster: Cluster) -> None:
    words = ("--join", "127.0.0.1:4000,127.0.0.1:4001", "--ports", "4000-4001")
    h = cluster.ask("host", "--name", "h", *words)
    assert h.process.returncode == 2
    assert "the ports 4000-4001 of --ports or MOOACTOR_PORTS are those of" in h.err[-1]
    assert h.err[-1].endswith(": give a larger range\n")


def test_brokers_of_other_machines_cost_no_port() -> None:
    far, unknown = Address("192.0.2.7", 4001), Address("nowhere.invalid", 4003)
    with socket.create_server(("127.0.0.1", 0)) as here:
        near = Address("127.0.0.1", here.getsockname()[1])
        reach = reach_of([near, far], None, range(4000, 4009), local=False)
        assert (reach["ports"], reach["spared"]) == ([4000, 4008], [])
        reach = reach_of([near, unknown], None, range(4000, 4009), local=False)
        assert (reach["ports"], reach["spared"]) == ([4000, 4008], [4003])
        assert Reach.of_plain(reach) == Reach.of_plain(Reach.of_plain(reach).plain())


@pytest.mark.parametrize(
    "op", ["announce", "still", "hosts", "watch", "standby", "peers"]
)
def test_a_host_says_that_it_is_no_broker(cluster: Cluster, op: str) -> None:
    _, broker = cluster.broker()
    h = host(cluster, broker, cluster.key)
    assert cluster.until(lambda: h.out), h.text()
    channel, recorder = cluster.visit(address_of(cluster, broker))
    channel.post({"op": op})
    assert cluster.until(lambda: recorder.closed)
    assert recorder.closed == ["this is a host, no broker"]
    assert h.signal() == 0
    assert not any("a session ends" in line for line in h.err), h.text()


def test_a_host_whose_name_is_taken_ends_and_takes_no_name_later(
    cluster: Cluster,
) -> None:
    _, address = cluster.broker()
    first = cluster.member("b", address)
    assert cluster.until(lambda: first.joined)
    second = cluster.ask("host", "--join", address, "--name", "b")
    assert second.process.returncode == 1
    assert second.out == []
    assert "another host is called 'b'" in second.err[-1]
    assert "choose a name with --name, or stop that one" in second.err[-1]


@pytest.mark.parametrize("joined", ["before", "meanwhile", "never"])
def test_a_host_that_has_joined_any_broker_stays(joined: str) -> None:
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
    news.taken("tcp://10.0.0.2:4431", "there is another one")
    if joined == "meanwhile":
        news.joined("tcp://10.0.0.1:4431")
    for action in timers:
        action()
    assert ("stop" in said) == (news.refusal is not None) == (joined == "never")
    refusal = (
        "the broker at tcp://10.0.0.2:4431 refuses this host: there is another one"
    )
    assert news.refusal == (refusal if joined == "never" else None)
