# SPDX-License-Identifier: MIT
"""Real brokers, and members that come, go, and outlive them."""

from __future__ import annotations

import contextlib
import random
import re
import signal
import socket
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mooactor.cluster.broker import MOST_BYTES, Standby
from mooactor.control import secret
from mooactor.host import brokerlink
from mooactor.host.brokerlink import BrokerLink
from tests.cluster.clusters import Cluster, Command, Member
from tests.conftest import at_best
from tests.process.programs import start
from tests.processes import stop

HOST = """
    import sys, time
    from mooactor.control.node import Node
    from mooactor.host.eventloop import EventLoop
    from mooactor.host.membership import Membership
    from tests.cluster.rows import row

    name, broker, key = sys.argv[1:]
    node, loop = Node(bytes.fromhex(key)), EventLoop()
    mine = row(name, node.id.hex(), address=node.address)
    joined = lambda address, notes: print("joined", flush=True)
    membership = Membership(node, [broker], lambda: mine, loop.later, on_joined=joined)
    loop.watch(node.fileno(), node.serve)
    while True:
        loop.serve(node.due())
        node.serve()
"""
ROOT = Path(__file__).parents[2]


@pytest.fixture
def host_program(tmp_path: Path) -> Path:
    """A host that can be killed: NAME BROKER KEY."""
    path = tmp_path / "host.py"
    path.write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n" + textwrap.dedent(HOST)
    )
    return path


def test_members_learn_of_each_other_and_of_each_change(cluster: Cluster) -> None:
    _, address = cluster.broker()
    a = cluster.member("a", address)
    assert cluster.until(lambda: a.joined == [address])
    assert cluster.until(lambda: a.names() == ["a"])
    b = cluster.member("b", address)
    assert cluster.until(lambda: a.names() == b.names() == ["a", "b"])
    b.row["actors"] = 7
    b.membership.changed()
    assert cluster.until(lambda: a.membership.hosts["b"]["actors"] == 7)
    cluster.leave(b)
    assert cluster.until(lambda: a.names() == ["a"])
    ((name, why),) = a.gone
    assert name == "b" and why


def test_the_log_tells_programs_from_hosts_and_losses_from_leaves(
    cluster: Cluster, host_program: Path
) -> None:
    broker, address = cluster.broker()
    b = cluster.member("b", address)
    program = cluster.member("b", address, kind="home", sessions=["5e55"])
    assert cluster.until(lambda: b.joined and program.joined)
    with start(host_program, "h", address, cluster.key.secret.hex()) as killed:
        assert cluster.until(lambda: "h" in b.membership.hosts)
        killed.kill()
        killed.communicate()
    assert cluster.until(lambda: said_of(broker, "host h has left"))
    cluster.leave(program)
    cluster.leave(b)
    assert cluster.until(lambda: said_of(broker, "host b has left"))
    _key, *lines = (line.removeprefix("mooactor broker: ") for line in broker.err)
    assert sorted(lines[:2]) == [
        f"a program on b (session 5e55) has joined from {program.row['address']}\n",
        f"host b has joined from {b.row['address']}\n",
    ]
    assert lines[2].startswith("host h has joined from tcp://127.0.0.1:")
    assert re.match("host h has left: (?!it has left)", lines[3])
    assert lines[4:] == [
        "the program on b (session 5e55) has ended\n",
        "host b has left\n",
    ]


def test_many_changes_are_announced_together(cluster: Cluster) -> None:
    _, address = cluster.broker()
    a, b = cluster.member("a", address), cluster.member("b", address)
    assert cluster.until(lambda: a.names() == b.names() == ["a", "b"])
    before = len(b.seen)
    for number in range(1, 101):
        a.row["actors"] = number
        a.membership.changed()
    assert cluster.until(lambda: b.membership.hosts["a"]["actors"] == 100)
    assert len(b.seen) - before <= 2  # the beat may come between


def test_a_killed_host_is_gone_and_takes_its_name_again_at_once(
    cluster: Cluster, host_program: Path
) -> None:
    _, address = cluster.broker()
    watching = cluster.member("w", address, kind="home")
    words = ("h", address, cluster.key.secret.hex())
    seen: list[str] = []
    for _ in range(2):
        with start(host_program, *words) as host:
            try:
                assert cluster.until(lambda: "h" in watching.membership.hosts)
                seen.append(watching.membership.hosts["h"]["id"])
            finally:
                host.kill()
                host.communicate()
        assert cluster.until(lambda: "h" not in watching.membership.hosts)
    assert len(set(seen)) == 2
    assert [name for name, _ in watching.gone] == ["h", "h"]


def test_a_name_in_use_is_refused_with_what_to_do(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokerlink, "NAME_PATIENCE_S", 0.5)
    _, address = cluster.broker()
    first = cluster.member("same", address)
    assert cluster.until(lambda: first.joined)
    second = cluster.member("same", address)
    assert cluster.until(lambda: second.refused)
    assert "another host is called 'same'" in second.refused[0]
    assert "--name" in second.refused[0]
    assert second.joined == [] and second.membership.brokers() == []
    cluster.leave(first)  # and then it gets in
    assert cluster.until(lambda: second.joined)
    assert len(second.refused) == 1


def test_another_wire_is_refused_and_other_versions_are_named(cluster: Cluster) -> None:
    broker, address = cluster.broker()
    a = cluster.member("a", address)
    assert cluster.until(lambda: a.joined)
    versions = {**a.row["versions"], "python": "3.99.0"}
    b = cluster.member("b", address, versions=versions)
    assert cluster.until(lambda: b.joined)
    assert b.notes == ["python is 3.99.0 here, 3.11.7 on a"]
    c = cluster.member("c", address, versions={**versions, "wire": 99})
    assert cluster.until(lambda: c.refused)
    assert "install the same mooactor on both" in c.refused[0]
    assert cluster.until(lambda: any("python is 3.99.0" in line for line in broker.err))


def test_a_broker_that_was_killed_and_started_again_knows_all_and_nobody_vanishes(
    cluster: Cluster,
) -> None:
    broker, address = cluster.broker()
    members = [cluster.member(name, address) for name in "abc"]
    assert cluster.until(lambda: all(m.names() == ["a", "b", "c"] for m in members))
    for _ in range(2):
        known = len(members[0].seen)
        broker.signal(signal.SIGKILL)
        assert cluster.until(lambda: all(m.membership.brokers() == [] for m in members))
        assert all(m.names() == ["a", "b", "c"] for m in members)
        broker, again = cluster.broker(listen=address)
        assert again == address
        assert cluster.until(lambda: all(m.membership.brokers() for m in members))
        listed = cluster.ask("status", "--connect", address, "--json").text()
        assert all(f'"name": "{name}"' in listed for name in "abc")
        assert all(m.gone == [] for m in members)
        assert len(members[0].seen) == known  # and nothing that was known is told anew
    late = cluster.member("d", address)
    assert cluster.until(lambda: late.names() == ["a", "b", "c", "d"])


def test_it_knows_all_again_within_two_seconds(cluster: Cluster) -> None:
    broker, address = cluster.broker()
    members = [cluster.member(f"m{number}", address) for number in range(12)]
    assert cluster.until(lambda: all(m.membership.brokers() for m in members))

    def restart() -> float:
        nonlocal broker
        broker.signal(signal.SIGKILL)
        assert cluster.until(lambda: not any(m.membership.brokers() for m in members))
        broker, _ = cluster.broker(listen=address)
        began = time.monotonic()
        assert cluster.until(lambda: all(m.membership.brokers() for m in members))
        return time.monotonic() - began

    assert at_best(restart, 2.0)


@pytest.mark.parametrize(("members", "bound_s"), [(10, 0.4), (1000, 1.4), (10000, 13)])
def test_how_long_the_last_one_waits_grows_with_their_number(
    members: int, bound_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "uniform", lambda least, most: most)
    link = BrokerLink.__new__(BrokerLink)
    link._members, link._failures = members, 0
    assert bound_s * 0.8 < link._delay_s() < bound_s


@pytest.mark.slow
def test_a_broker_that_is_killed_again_and_again_under_load_loses_no_change(
    cluster: Cluster,
) -> None:
    broker, address = cluster.broker()
    members = [cluster.member(f"m{number:02}", address) for number in range(12)]
    names = [member.row["name"] for member in members]
    assert cluster.until(lambda: all(m.names() == names for m in members))
    changes, changing = 0, [True]

    def change() -> None:
        nonlocal changes
        changes += 1
        member = members[changes % len(members)]
        member.row["actors"] = changes
        member.membership.changed()
        if changing:
            cluster.loop.later(0.005, change)

    change()
    for _ in range(3):
        done = changes
        assert cluster.until(lambda done=done: changes > done + 20)
        broker.signal(signal.SIGKILL)
        broker, _ = cluster.broker(listen=address)
        assert cluster.until(lambda: all(m.membership.brokers() for m in members))
    changing.clear()

    def agreed(member: Member) -> bool:
        view = member.membership.hosts
        return all(view[m.row["name"]] == m.row for m in members)

    assert cluster.until(lambda: all(map(agreed, members)))
    assert all(member.gone == [] for member in members)


@pytest.mark.slow
def test_a_broker_that_is_stopped_for_two_seconds_is_not_given_up(
    cluster: Cluster,
) -> None:
    broker, address = cluster.broker()
    a, b = cluster.member("a", address), cluster.member("b", address)
    assert cluster.until(lambda: a.names() == b.names() == ["a", "b"])
    stop(broker.process.pid)
    until = time.monotonic() + 2.0
    assert cluster.until(lambda: time.monotonic() > until)
    broker.process.send_signal(signal.SIGCONT)
    a.row["actors"] = 5
    a.membership.changed()
    assert cluster.until(lambda: b.membership.hosts["a"]["actors"] == 5)
    assert a.lost == b.lost == a.gone == b.gone == []


@pytest.mark.slow
def test_a_host_that_is_stopped_for_two_seconds_is_not_gone(
    cluster: Cluster, host_program: Path
) -> None:
    _, address = cluster.broker()
    a = cluster.member("a", address)
    with start(host_program, "h", address, cluster.key.secret.hex()) as host:
        try:
            assert cluster.until(lambda: "h" in a.membership.hosts)
            stop(host.pid)
            until = time.monotonic() + 2.0
            assert cluster.until(lambda: time.monotonic() > until)
            host.send_signal(signal.SIGCONT)
            until = time.monotonic() + 2.0  # the time in which it would be given up
            assert cluster.until(lambda: time.monotonic() > until)
            assert a.names() == ["a", "h"] and a.gone == []
        finally:
            host.kill()
            host.communicate()


@pytest.mark.slow
def test_a_stand_by_answers_when_the_first_broker_is_gone(cluster: Cluster) -> None:
    first, address = cluster.broker()
    a = cluster.member("a", address)  # it has never heard of a second one
    assert cluster.until(lambda: a.joined)
    _, other = cluster.broker("--standby-of", address)
    assert cluster.until(lambda: set(a.membership.brokers()) == {address, other})
    b = cluster.member("b", address)  # introduced when it joins
    assert cluster.until(lambda: set(b.membership.brokers()) == {address, other})
    first.signal(signal.SIGKILL)
    assert cluster.until(lambda: a.membership.brokers() == [other])
    c = cluster.member("c", address, other)  # takes the list
    assert cluster.until(lambda: c.names() == ["a", "b", "c"])
    assert cluster.until(lambda: a.names() == ["a", "b", "c"])
    status = cluster.ask("status", "--connect", f"{address},{other}", "--json")
    assert all(f'"name": "{name}"' in status.text() for name in "abc")
    assert a.gone == b.gone == c.gone == []
    # the first one comes back, and the stand-by is its stand-by again
    cluster.broker(listen=address)
    both = {address, other}
    for member in (a, b, c):
        assert cluster.until(lambda m=member: set(m.membership.brokers()) == both)
    d = cluster.member("d", address)
    assert cluster.until(lambda: set(d.membership.brokers()) == both)


def said_of(broker: Command, text: str) -> list[str]:
    return [line for line in broker.err if text in line]


@pytest.mark.slow
def test_a_stand_by_says_once_what_is_with_the_first_broker(
    cluster: Cluster, tmp_path: Path
) -> None:
    first, address = cluster.broker()
    first.signal(signal.SIGKILL)
    standby, _ = cluster.broker("--standby-of", address)
    none = f"mooactor broker: is no stand-by of {address} yet ("
    assert cluster.until(lambda: said_of(standby, none)), standby.text()
    other = secret.make(str(tmp_path / "other"))
    words = ("broker", "--listen", address, "--key-file", other.source)
    another = cluster.command(*words)
    assert cluster.until(lambda: len(said_of(standby, none)) == 2), standby.text()
    another.signal(signal.SIGKILL)
    first, _ = cluster.broker(listen=address)
    joined = f"has joined the first broker at {address}\n"
    assert cluster.until(lambda: said_of(standby, joined)), standby.text()
    first.signal(signal.SIGKILL)
    gone = f"the first broker at {address} is gone: "
    assert cluster.until(lambda: said_of(standby, gone)), standby.text()
    cluster.broker(listen=address)
    assert cluster.until(lambda: len(said_of(standby, joined)) == 2), standby.text()
    assert len(said_of(standby, gone)) == 1
    nothing, key, *_ = said_of(standby, none)
    assert "nothing listens there" in nothing and "holds another key" in key
    assert "is `mooactor broker` running there, with the same key?" in nothing


@pytest.mark.slow
def test_a_first_broker_whose_name_is_unknown_is_named(cluster: Cluster) -> None:
    standby, _ = cluster.broker("--standby-of", "nowhere.invalid")
    why = "no address was found for the name nowhere.invalid"
    assert cluster.until(lambda: said_of(standby, why)), standby.text()


def test_a_broker_is_no_stand_by_of_itself(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ("--listen", f"127.0.0.1:{port}", "--standby-of", f"localhost:{port}")
    broker = cluster.ask("broker", *words)
    assert broker.process.returncode == 1
    assert broker.err[-1] == (
        f"mooactor broker: --standby-of tcp://localhost:{port} is the address of this "
        "broker itself: name the first broker, or leave --standby-of out to start that "
        "one\n"
    )
    assert not said_of(broker, "joined")


class Alias:
    """The channel to an address that leads to a broker, or to this node."""

    is_open = True

    def __init__(self, peer: bytes) -> None:
        self.peer = peer
        self.posted: list[dict[str, Any]] = []
        self.closed = ""

    def post(self, message: dict[str, Any]) -> None:
        self.posted.append(message)

    def close(self, why: str) -> None:
        self.closed = why


def test_a_stand_by_stays_if_the_first_address_leads_to_it_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channels = [Alias(b"first"), Alias(b"second"), Alias(b"second")]
    monkeypatch.setattr(brokerlink, "connect", lambda *_: channels.pop(0))
    timers: list[tuple[float, Callable[[], None]]] = []
    said: list[str] = []
    node: Any = SimpleNamespace(id=b"second", address="tcp://10.0.0.2:4431")
    standby = Standby(
        node,
        "tcp://10.0.0.1:4431",
        lambda delay, action: timers.append((delay, action)),
        said.append,
        lambda: said.append("stop"),
    )
    first: Any = standby._channel
    assert [m["op"] for m in first.posted] == ["standby", "peers"]
    peers = {"ev": "peers", "first": None}
    for _ in range(2):
        standby.handle(first, {**peers, "standbys": [{"id": b"second".hex()}, 3]})
    standby.channel_closed(first, "it is gone")
    for _ in range(2):
        timers.pop()[1]()
        own: Any = standby._channel
        standby.handle(own, {**peers, "standbys": []})
        assert own.closed
    joined, gone, none = said
    assert joined == "has joined the first broker at tcp://10.0.0.1:4431"
    assert gone == "the first broker at tcp://10.0.0.1:4431 is gone: it is gone"
    assert "is this broker itself" in none and standby.refusal is None
    assert standby.first()["id"] != node.id.hex()


@pytest.mark.slow
def test_a_stand_by_at_an_interface_that_members_lack_costs_them_nothing(
    cluster: Cluster,
) -> None:
    _, address = cluster.broker()
    a = cluster.member("a", address)
    channel, _ = cluster.visit(address)
    for zone in ("br-lan", "eth0"):
        channel.post({"op": "standby", "address": f"tcp://[fe80::1%{zone}]:4431"})
    known = lambda: a.membership._told.get(address)  # noqa: E731
    assert cluster.until(lambda: known() == ["tcp://[fe80::1%eth0]:4431"])
    assert cluster.until(lambda: a.names() == ["a"])  # its row may come behind that
    assert a.membership.brokers() == [address]


def test_a_message_of_a_broker_that_cannot_be_acted_on_costs_that_link_only(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, address = cluster.broker()
    _, other = cluster.broker()

    def introduced(broker: str, addresses: list[str]) -> None:
        if broker == address:
            raise ValueError("no address")

    a = cluster.member("a", address, other)
    with monkeypatch.context() as patched:
        patched.setattr(a.membership, "introduced", introduced)
        assert cluster.until(lambda: address in a.lost)
        assert other not in a.lost
    assert cluster.until(lambda: set(a.membership.brokers()) == {address, other})


def test_a_list_whose_first_broker_is_not_there_is_no_obstacle(
    cluster: Cluster,
) -> None:
    _, address = cluster.broker()
    a = cluster.member("a", "tcp://127.0.0.1:1", address)
    assert cluster.until(lambda: a.joined == [address])
    assert a.refused == []
    assert cluster.until(lambda: a.lost)  # said, and tried again
    assert set(a.lost) == {"tcp://127.0.0.1:1"}


def test_a_stand_by_of_the_list_by_another_name_is_joined_once(
    cluster: Cluster,
) -> None:
    _, address = cluster.broker()
    port = address.rpartition(":")[2]
    a = cluster.member("a", address, f"tcp://localhost:{port}")
    assert cluster.until(lambda: len(a.joined) == 2)
    assert len(a.membership.brokers()) == 1
    b = cluster.member("b", address)
    assert cluster.until(lambda: a.names() == b.names() == ["a", "b"])


def test_nonsense_from_a_holder_of_the_key_is_answered_and_harms_nobody(
    cluster: Cluster,
) -> None:
    _, address = cluster.broker()
    a = cluster.member("a", address)
    assert cluster.until(lambda: a.joined)
    channel, hearing = cluster.visit(address)
    nonsense = [{}, {"op": "dance"}, {"op": ["x"]}, {"op": "announce"}, {"op": "hosts"}]
    nonsense += [{"op": "still", "load": "heavy"}]
    for message in nonsense:
        channel.post(message)
    assert cluster.until(lambda: len(hearing.messages) == len(nonsense))
    assert {message["ev"] for message in hearing.messages} == {"refused"}
    assert cluster.until(lambda: a.names() == ["a"])


def test_a_message_that_is_too_large_for_a_broker_ends_its_channel(
    cluster: Cluster,
) -> None:
    """It is not decoded, which would take a broker ten seconds for each 100 MB."""
    _, address = cluster.broker()
    a = cluster.member("a", address)
    assert cluster.until(lambda: a.joined)
    channel, hearing = cluster.visit(address)
    channel.post({"op": "still", "x": bytes(MOST_BYTES // 2)})
    assert cluster.until(lambda: hearing.messages)
    channel.post({"op": "still", "x": bytes(MOST_BYTES)})
    assert cluster.until(lambda: hearing.closed)
    assert f"{MOST_BYTES} are taken" in hearing.closed[0]
    assert cluster.until(lambda: a.names() == ["a"])


def test_strangers_leave_no_trace(cluster: Cluster) -> None:
    broker, address = cluster.broker()
    a = cluster.member("a", address)
    assert cluster.until(lambda: a.joined)
    assert cluster.until(
        lambda: any("host a has joined" in line for line in broker.err)
    )
    port = int(address.rpartition(":")[2])
    said = list(broker.err)
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)  # no CURVE
    for data in (b"", b"\x00" * 500, b"GET / HTTP/1.1\r\n\r\n", greeting, b"\xff" * 9):
        strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        for stranger in strangers:
            with contextlib.suppress(OSError):
                stranger.sendall(data)
        b = cluster.member("b", address)  # others get in meanwhile
        assert cluster.until(lambda b=b: b.names() == ["a", "b"])
        for stranger in strangers:
            stranger.close()
        cluster.leave(b)
        assert cluster.until(lambda: a.names() == ["a"])
    new = [line for line in broker.err[len(said) :] if "host b has" not in line]
    assert new == []


def test_sigusr1_reports_the_members(cluster: Cluster) -> None:
    broker, address = cluster.broker()
    a = cluster.member("a", address)
    assert cluster.until(lambda: a.joined)
    broker.process.send_signal(signal.SIGUSR1)
    assert cluster.until(lambda: any("members 1" in line for line in broker.err))
    assert cluster.until(lambda: any("host a at tcp://" in line for line in broker.err))


# -- the command -----------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_ends_on_a_signal_with_0(cluster: Cluster, number: int) -> None:
    broker, address = cluster.broker()
    a = cluster.member("a", address)
    assert cluster.until(lambda: a.joined)
    assert broker.signal(number) == 0
    assert broker.out == [f"mooactor broker at {address}\n"]
    assert "Traceback" not in broker.text()


def refused(cluster: Cluster, *words: str, **environment: str) -> str:
    """The one sentence with which the command refuses to begin."""
    command = cluster.command(*words, **environment)
    assert command.wait() == 2, command.text()
    assert command.out == []
    (line,) = command.err
    assert line.startswith(f"mooactor {words[0]}: ")
    return line


def test_a_port_in_use_is_refused(cluster: Cluster) -> None:
    _, address = cluster.broker()
    words = ("broker", "--listen", address, "--key-file", cluster.key.source)
    said = refused(cluster, *words)
    assert "another program does" in said and "`mooactor status`" in said
    assert "`mooactor broker --listen :PORT`" in said


def test_off_host_without_a_key_is_refused_with_the_command_to_run(
    cluster: Cluster, tmp_path: Path
) -> None:
    for listen in ("*:0", "0.0.0.0:0"):
        line = refused(
            cluster, "broker", "--listen", listen, XDG_CONFIG_HOME=str(tmp_path)
        )
        assert "run `mooactor keygen`" in line
    assert [path.name for path in tmp_path.iterdir()] == ["key"]  # none was made


@pytest.mark.slow
def test_a_wrong_address_or_key_file_is_refused(cluster: Cluster) -> None:
    assert "write ADDR:PORT" in refused(cluster, "broker", "--listen", "a b")
    for words in ("a,b", "*", ""):
        command = ("broker", "--listen", "127.0.0.1:0", "--standby-of", words or "a b")
        assert "--standby-of takes one address" in refused(cluster, *command)
    key = Path(cluster.key.source)
    key.chmod(0o644)
    words = ("broker", "--listen", "127.0.0.1:0", "--key-file", str(key))
    assert f"chmod 600 {key}" in refused(cluster, *words)
    key.chmod(0o600)
    nowhere = ("broker", "--listen", "10.99.99.99:0", "--key-file", str(key))
    assert "no such address" in refused(cluster, *nowhere)


def test_without_a_key_it_stays_on_the_loopback_interface_and_says_so(
    cluster: Cluster, tmp_path: Path
) -> None:
    config = str(tmp_path / "config")
    for attempt in range(2):
        broker = cluster.command(
            "broker", "--ports", "20000-29999", XDG_CONFIG_HOME=config
        )
        assert cluster.until(lambda b=broker: b.out)
        assert re.fullmatch(
            r"mooactor broker at tcp://127\.0\.0\.1:2\d{4}\n", broker.out[0]
        )
        where = f"{config}/mooactor/local-key"
        assert broker.signal() == 0
        (line,) = (line for line in broker.err if where in line)
        assert ("made key" in line) == (attempt == 0)
        assert "mooactor keygen" in line
    assert Path(where).stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [("--ports", "20000-29999"), ("--listen", "*:0"), ("--listen", "0.0.0.0:0")],
)
def test_with_a_key_it_listens_on_all_addresses(
    cluster: Cluster, words: tuple[str, str]
) -> None:
    broker = cluster.command("broker", *words, "--key-file", cluster.key.source)
    assert cluster.until(lambda: broker.out)
    told = broker.out[0].split()[-1]
    assert "0.0.0.0" not in told and "*" not in told
    members = [
        cluster.member("a", f"tcp://127.0.0.1:{told.rpartition(':')[2]}"),
        cluster.member("b", told),
    ]
    assert cluster.until(lambda: all(m.joined for m in members))
    assert broker.signal() == 0


@pytest.mark.parametrize("listen", ["localhost:0", "[::1]:0"])
def test_it_listens_on_a_name_and_on_ipv6(cluster: Cluster, listen: str) -> None:
    if listen.startswith("["):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("this machine has no IPv6 address of its own")
    _, address = cluster.broker(listen=listen)
    a = cluster.member("a", address)
    assert cluster.until(lambda: a.joined)
