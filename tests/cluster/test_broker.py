# SPDX-License-Identifier: MIT
"""Real brokers, and members that come, go, and outlive them."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from mooactor.cli import main
from mooactor.cluster.broker import MOST_BYTES
from mooactor.host import membership
from tests.cluster.clusters import Cluster, Command


def said_of(broker: Command, text: str) -> list[str]:
    return [line for line in broker.err if text in line]


def test_members_learn_of_each_other_and_of_each_change(cluster: Cluster) -> None:
    _, address = cluster.broker()
    a = cluster.member("a", address)
    assert cluster.until(lambda: a.joined == [address])
    assert cluster.until(lambda: a.names() == ["a"])
    b = cluster.member("b", address)
    assert cluster.until(lambda: a.names() == b.names() == ["a", "b"])
    before = len(a.seen)
    for number in range(1, 101):
        b.row.actors = number
        b.membership.changed()
    assert cluster.until(lambda: a.membership.hosts["b"].actors == 100)
    assert len(a.seen) - before <= 2  # told together; the beat may come between
    cluster.leave(b)
    assert cluster.until(lambda: a.names() == ["a"])
    ((name, why),) = a.gone
    assert name == "b" and why


def test_the_log_tells_programs_from_hosts_and_a_killed_one_from_one_that_leaves(
    cluster: Cluster,
) -> None:
    broker, address = cluster.broker()
    b = cluster.member("b", address)
    program = cluster.member("b", address, kind="home", sessions=["5e55"])
    assert cluster.until(lambda: b.joined and program.joined)
    seen = []
    for number in (1, 2):  # it takes its name again at once
        key = {"MOOACTOR_KEY_FILE": cluster.key.source}
        killed = cluster.command("host", "--name", "h", "--join", address, **key)
        assert cluster.until(lambda: "h" in b.membership.hosts)
        seen.append(b.membership.hosts["h"].id)
        killed.signal(signal.SIGKILL)
        left = lambda n=number: len(said_of(broker, "host h has left")) == n  # noqa: E731
        assert cluster.until(left)
        assert cluster.until(lambda: "h" not in b.membership.hosts)
    assert len(set(seen)) == 2 and [name for name, _ in b.gone] == ["h", "h"]
    cluster.leave(program)
    cluster.leave(b)
    assert cluster.until(lambda: said_of(broker, "host b has left"))
    said = [line.removeprefix("mooactor broker: ") for line in broker.err]
    _key, *lines = [line for line in said if not line.startswith("host h: ")]  # notes
    assert sorted(lines[:2]) == [
        f"a program on b (session 5e55) has joined from {program.row.address}\n",
        f"host b has joined from {b.row.address}\n",
    ]
    assert lines[2].startswith("host h has joined from tcp://127.0.0.1:")
    assert re.match("host h has left: (?!it has left)", lines[3])
    assert lines[6:] == [
        "the program on b (session 5e55) has ended\n",
        "host b has left\n",
    ]


def test_a_name_in_use_is_refused_with_what_to_do(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "NAME_PATIENCE_S", 0.5)
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


def test_a_broker_that_was_killed_and_started_again_knows_all_and_nobody_vanishes(
    cluster: Cluster,
) -> None:
    broker, address = cluster.broker()
    members = [cluster.member(name, address) for name in "abc"]
    assert cluster.until(lambda: all(m.names() == ["a", "b", "c"] for m in members))
    known = len(members[0].seen)
    broker.signal(signal.SIGKILL)
    assert cluster.until(lambda: all(m.membership.brokers() == [] for m in members))
    assert all(m.names() == ["a", "b", "c"] for m in members)
    cluster.broker(listen=address)
    assert cluster.until(lambda: all(m.membership.brokers() for m in members))
    listed = cluster.ask("status", "--connect", address, "--json").text()
    assert all(f'"name": "{name}"' in listed for name in "abc")
    assert all(m.gone == [] for m in members)
    assert len(members[0].seen) == known  # and nothing that was known is told anew
    late = cluster.member("d", address)
    assert cluster.until(lambda: late.names() == ["a", "b", "c", "d"])


def test_a_stand_by_answers_when_the_first_broker_is_gone(cluster: Cluster) -> None:
    first, address = cluster.broker()
    a = cluster.member("a", address)  # it has never heard of a second one
    assert cluster.until(lambda: a.joined)
    standby, other = cluster.broker("--standby-of", address)
    both = {address, other}
    assert cluster.until(lambda: set(a.membership.brokers()) == both)
    b = cluster.member("b", address)  # introduced when it joins
    assert cluster.until(lambda: set(b.membership.brokers()) == both)
    first.signal(signal.SIGKILL)
    assert cluster.until(lambda: a.membership.brokers() == [other])
    c = cluster.member("c", address, other)  # takes the list
    assert cluster.until(lambda: c.names() == a.names() == ["a", "b", "c"])
    assert a.gone == b.gone == c.gone == []
    # the first one comes back, and the stand-by is its stand-by again
    cluster.broker(listen=address)
    for member in (a, b, c):
        assert cluster.until(lambda m=member: set(m.membership.brokers()) == both)
    d = cluster.member("d", address)
    assert cluster.until(lambda: set(d.membership.brokers()) == both)
    joined = f"has joined the first broker at {address}\n"
    assert len(said_of(standby, joined)) == 2
    assert len(said_of(standby, f"the first broker at {address} is gone: ")) == 1


def test_a_list_whose_first_broker_is_not_there_is_no_obstacle(
    cluster: Cluster,
) -> None:
    _, address = cluster.broker()
    a = cluster.member("a", "tcp://127.0.0.1:1", address)
    assert cluster.until(lambda: a.joined == [address])
    assert a.refused == []


def test_nonsense_from_a_holder_of_the_key_is_answered_and_harms_nobody(
    cluster: Cluster,
) -> None:
    _, address = cluster.broker()
    a = cluster.member("a", address)
    assert cluster.until(lambda: a.joined)
    channel, hearing = cluster.visit(address)
    nonsense: list[Any] = [{}, 7, {"type": "Dance"}, {"type": ["x"]}]
    nonsense += [{"type": "Announce"}, {"type": "StandBy"}]
    nonsense += [{"type": "Still", "load": "heavy"}, {"type": "Still", "x": 1}]
    for message in nonsense:
        channel.post(message)
    assert cluster.until(lambda: len(hearing.messages) == len(nonsense))
    assert {message["type"] for message in hearing.messages} == {"Refusal"}
    # One that is too large is not even put together.
    channel.post({"type": "Still", "x": bytes(MOST_BYTES // 2)})
    assert cluster.until(lambda: len(hearing.messages) > len(nonsense))
    channel.post({"type": "Still", "x": bytes(MOST_BYTES)})
    assert cluster.until(lambda: hearing.closed)
    assert f"{MOST_BYTES} are taken" in hearing.closed[0]
    assert cluster.until(lambda: a.names() == ["a"])


def test_strangers_leave_no_trace(cluster: Cluster) -> None:
    broker, address = cluster.broker()
    a = cluster.member("a", address)
    assert cluster.until(lambda: a.joined and said_of(broker, "host a has joined"))
    port = int(address.rpartition(":")[2])
    said = list(broker.err)
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)  # no CURVE
    datas = (b"", b"\x00" * 500, b"GET / HTTP/1.1\r\n\r\n", greeting, b"\xff" * 9)
    with contextlib.ExitStack() as stack:
        for data in datas * 20:
            stranger = stack.enter_context(socket.socket())
            stranger.connect(("127.0.0.1", port))
            with contextlib.suppress(OSError):
                stranger.sendall(data)
        b = cluster.member("b", address)  # others get in meanwhile
        assert cluster.until(lambda: b.names() == ["a", "b"])
    cluster.leave(b)
    assert cluster.until(lambda: a.names() == ["a"])
    new = [line for line in broker.err[len(said) :] if "host b has" not in line]
    assert new == []


# -- the command -----------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_reports_its_members_and_ends_on_a_signal_with_0(
    cluster: Cluster, number: int
) -> None:
    broker, address = cluster.broker()
    a = cluster.member("a", address)
    assert cluster.until(lambda: a.joined)
    broker.process.send_signal(signal.SIGUSR1)
    assert cluster.until(lambda: said_of(broker, "members 1"))
    assert cluster.until(lambda: said_of(broker, "host a at tcp://"))
    assert broker.signal(number) == 0
    assert broker.out == [f"mooactor broker at {address}\n"]
    assert "Traceback" not in broker.text()


def test_a_port_in_use_is_refused(cluster: Cluster) -> None:
    _, address = cluster.broker()
    second = cluster.ask("broker", "--listen", address)
    assert second.wait() == 2 and second.out == []
    (said,) = second.err
    assert "another program does" in said and "`mooactor status`" in said
    assert "`mooactor broker --listen :PORT`" in said


def test_a_broker_is_no_stand_by_of_itself(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ("--listen", f"127.0.0.1:{port}", "--standby-of", f"localhost:{port}")
    broker = cluster.command("broker", *words, "--key-file", cluster.key.source)
    why = f"the broker tcp://localhost:{port}: a broker is no stand-by of itself\n"
    assert cluster.until(lambda: said_of(broker, why)), broker.text()
    assert not said_of(broker, "has joined")


def test_a_wrong_address_or_key_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key"
    assert main(["keygen", str(key)]) == 0
    capsys.readouterr()

    def refused(*words: str) -> str:
        assert main(["broker", "--key-file", str(key), *words]) == 2
        out, err = capsys.readouterr()
        (line,) = err.splitlines()
        assert line.startswith("mooactor broker: ") and out == ""
        return line

    assert "write ADDR:PORT" in refused("--listen", "a b")
    for first in ("a,b", "*", "a b"):
        words = ("--listen", "127.0.0.1:0", "--standby-of", first)
        assert "--standby-of takes one address" in refused(*words)
    key.chmod(0o644)
    assert f"chmod 600 {key}" in refused("--listen", "127.0.0.1:0")


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


def test_with_a_key_it_listens_on_all_addresses(cluster: Cluster) -> None:
    words = ("--ports", "20000-29999", "--key-file", cluster.key.source)
    broker = cluster.command("broker", *words)
    assert cluster.until(lambda: broker.out)
    told = broker.out[0].split()[-1]
    assert "0.0.0.0" not in told and "*" not in told
    members = [
        cluster.member("a", f"tcp://127.0.0.1:{told.rpartition(':')[2]}"),
        cluster.member("b", told),
    ]
    assert cluster.until(lambda: all(m.joined for m in members))
    assert broker.signal() == 0
