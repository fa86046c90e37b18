# SPDX-License-Identifier: MIT
"""status, top and logs: one real broker, and agents of the test."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from mooactor.control import secret
from mooactor.host.protocol import (
    End,
    LeftOut,
    Line,
    Logs,
    SessionStatus,
    Status,
    StatusRow,
)
from tests.cluster.clusters import COMMAND, Agent, Cluster

ACTOR: dict[str, Any] = {
    "id": "00ff",
    "label": "Player 'p'",
    "name": "p",
    "pid": 4242,
    "cores": [],
    "cuda_visible_devices": None,
    "threads": 1,
    "incarnation": 2,
    "state": "running",
    "owner": None,
    "detached": False,
    "host": "b",
    "restarts": 2,
    "mailbox": 7,
    "memory": 15_000_000,
}
STATUS = SessionStatus("s1", "train.py", [StatusRow(**ACTOR)])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker for all tests of the module."""
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    found.broker()
    yield found
    found.close()


@pytest.fixture
def address(running: Cluster) -> str:
    return running.commands[0].out[0].split()[-1]


@pytest.fixture
def cluster(running: Cluster, address: str) -> Iterator[Cluster]:
    """It has no member when a test begins."""
    yield running
    running.mend(1)
    watching = running.member("w", address, kind="home")
    assert running.until(lambda: watching.names() == ["w"])
    running.leave(watching)


@pytest.fixture
def home(cluster: Cluster, address: str) -> Agent:
    """The agent of a driver, with one actor."""
    member = cluster.member("laptop", address, kind="home")
    assert cluster.until(lambda: member.joined)
    agent = Agent(member)
    agent.answers[Status] = [STATUS]
    return agent


def ask(cluster: Cluster, address: str, *words: str, code: int = 0) -> list[str]:
    """The lines that a command prints."""
    command = cluster.ask(*words, "--connect", address)
    assert command.process.returncode == code, command.text()
    return command.out if code == 0 else command.err


def test_status_shows_hosts_and_the_actors_of_sessions(
    cluster: Cluster, address: str, home: Agent
) -> None:
    labels = {"rack": "b2\x1b[2J", "a": "1"}
    b = cluster.member("b", address, labels=labels)
    assert cluster.until(lambda: b.joined)
    text = "".join(ask(cluster, address, "status"))
    assert "laptop (driver)" in text
    assert "4 of 4" in text and "8.59 GB of 8.59 GB" in text
    assert "a=1 rack=b2�[2J" in text and "python 3.11.7" in text and "torch" not in text
    assert "session s1, train.py: 1 actor\n" in text
    assert "Player 'p'  b     4242  running  2         7        15 MB\n" in text
    heading, line, *_ = text.splitlines()
    load = float(line[heading.index("load (1 min)") :].split()[0])
    found = json.loads("".join(ask(cluster, address, "status", "--json")))
    # The average moves by a tenth or two in the seconds that this test takes.
    assert found["hosts"][0]["load"] == pytest.approx(load, rel=0.5, abs=1.0)
    assert [host["name"] for host in found["hosts"]] == ["b", "laptop"]
    assert all(host["alive"] for host in found["hosts"])
    assert found["sessions"] == [
        {
            "host": "laptop",
            "session": "s1",
            "driver": "train.py",
            "actors": [ACTOR],
            "answered": True,
        }
    ]


def test_status_of_an_empty_cluster_says_what_to_start(
    cluster: Cluster, address: str
) -> None:
    assert ask(cluster, address, "status") == [
        "no hosts: start one with `mooactor host --join ADDR`\n"
    ]
    # The address may come from the environment.
    words = ("status", "--json", "--key-file", cluster.key.source)
    command = cluster.command(*words, MOOACTOR_ADDRESS=address)
    assert command.wait() == 0
    assert json.loads("".join(command.out)) == {"hosts": [], "sessions": []}


def test_top_shows_the_same_again_and_again_until_ctrl_c(
    cluster: Cluster, address: str, home: Agent
) -> None:
    words = ("top", "--json", "--interval", "0.1", "--connect", address)
    top = cluster.command(*words, "--key-file", cluster.key.source)
    assert cluster.until(lambda: len(top.out) >= 3)
    assert top.signal(signal.SIGINT) == 0
    first, *_ = map(json.loads, top.out)
    assert first["sessions"][0]["actors"] == [ACTOR]
    assert top.err == []
    # It goes on though nobody reads what it prints.
    words = (*COMMAND, *words, "--key-file", cluster.key.source)
    lost = cluster.command(words=["sh", "-c", 'exec "$@" >&-', "-", *words])
    home.asked.clear()
    assert cluster.until(lambda: len(home.asked) >= 3 or lost.ended)
    assert lost.signal(signal.SIGINT) == 0 and lost.err == []


def test_logs_prints_each_stream_to_its_own(
    cluster: Cluster, address: str, home: Agent
) -> None:
    home.answers[Logs] = [
        Line("one", 1, "P", 5),
        Line("two", 2, "P", 5, host="b"),
        End(True),
    ]
    command = cluster.ask("logs", "p", "--connect", address)
    assert (command.process.returncode, command.out, command.err) == (
        0,
        ["(P pid=5 host=laptop) one\n"],
        ["(P pid=5 host=b) two\n"],
    )
    assert home.asked[-1] == Logs("p")
    lines = [json.loads(x) for x in ask(cluster, address, "logs", "p", "--json")]
    about = {"label": "P", "pid": 5, "session_host": "laptop"}
    assert lines == [
        {"line": "one", "stream": 1, "host": "laptop", **about},
        {"line": "two", "stream": 2, "host": "b", **about},
    ]


ABOUT: dict[str, Any] = {"label": "Talk", "pid": 12, "id": "00aa", "incarnation": 0}


def test_logs_of_several_actors_say_whose_they_are(
    cluster: Cluster, address: str, home: Agent
) -> None:
    other = {**ABOUT, "label": "Ta\x1blk", "pid": 13, "id": "00bb", "host": "c"}
    home.answers[Logs] = [
        Line("one", 1, **ABOUT),
        Line("one", 1, **other),
        End(True),
    ]
    assert ask(cluster, address, "logs", "Talk") == [
        "(Talk pid=12 host=laptop) one\n",
        "(Ta�lk pid=13 host=c) one\n",
    ]


def test_logs_of_one_actor_each_of_two_sessions_say_whose_they_are(
    cluster: Cluster, address: str, home: Agent
) -> None:
    member = cluster.member("desktop", address, kind="home")
    assert cluster.until(lambda: member.joined)
    for agent, line in ((home, "one"), (Agent(member), "two")):
        agent.answers[Logs] = [
            Line(line, 1, **ABOUT),
            End(True),
        ]
    assert sorted(ask(cluster, address, "logs", "Talk")) == [
        "(Talk pid=12 host=desktop) two\n",
        "(Talk pid=12 host=laptop) one\n",
    ]


def test_logs_says_where_lines_are_left_out(
    cluster: Cluster, address: str, home: Agent
) -> None:
    home.answers[Logs] = [LeftOut(7), Line("one", 1, "P", 5), End(True)]
    command = cluster.ask("logs", "p", "--connect", address)
    assert command.out == ["(P pid=5 host=laptop) one\n"]
    (line,) = command.err
    assert line.startswith("mooactor logs: 7 lines are left out here")
    gap, _ = map(json.loads, ask(cluster, address, "logs", "p", "--json"))
    assert gap == {"left_out": 7, "session_host": "laptop"}


def test_logs_that_follow_say_how_the_actor_ended(
    cluster: Cluster, address: str, home: Agent
) -> None:
    home.answers[Logs] = [End(True, "Player:p", "killed\x1b[2J")]
    command = cluster.ask("logs", "p", "-f", "--connect", address)
    assert (command.process.returncode, command.out) == (0, [])
    assert command.err == ["mooactor logs: Player:p has ended: killed�[2J\n"]


def test_logs_that_follow_a_session_that_is_lost_fail(
    cluster: Cluster, address: str, home: Agent
) -> None:
    home.answers[Logs] = [Line("one", 1, "P", 5)]
    words = ("logs", "p", "-f", "--connect", address)
    words = (*words, "--key-file", cluster.key.source)
    command, another = cluster.command(*words), cluster.command(*words)
    assert cluster.until(lambda: len(command.out) == len(another.out) == 1)
    assert home.asked[-1] == Logs("p", True)
    assert another.signal(signal.SIGINT) == 0
    cluster.leave(home.member)
    assert cluster.until(lambda: command.ended)
    assert command.wait() == 1
    (line,) = command.err
    assert "the session of laptop, which has 'p', cannot be heard any more" in line
    assert "`mooactor status`" in line


def test_logs_of_nobody_says_so(cluster: Cluster, address: str, home: Agent) -> None:
    home.answers[Logs] = [End(False)]
    (line,) = ask(cluster, address, "logs", "nobody", code=1)
    assert "no session has an actor called 'nobody'" in line


@pytest.mark.slow
def test_a_failure_is_one_sentence_and_with_json_an_object_too(
    cluster: Cluster, address: str
) -> None:
    nobody = "127.0.0.1:1"
    for said in ("status", "logs p"):
        command = cluster.ask(*said.split(), "--json", "--connect", nobody)
        assert command.process.returncode == 2
        (line,), (text,) = command.out, command.err
        ((key, why),) = json.loads(line).items()
        assert key == "error"
        assert why.startswith(f"no broker answers at tcp://{nobody} ")
        assert "nothing listens there): start one with `mooactor broker`, or nam" in why
        assert why.endswith(f"; the key here is {cluster.key}")
        assert text == f"mooactor {said.split()[0]}: {why}\n"
    other = secret.make(str(cluster.directory / "other"))
    command = cluster.command("stop", "--connect", address, "--key-file", other.source)
    assert cluster.until(lambda: command.ended) and command.wait() == 2
    (line,) = command.err
    assert (
        f"another key, {cluster.key.fingerprint}, and this side {other.fingerprint}"
        in line
    )
    assert ": copy the broker's key file here, or" in line
    assert "start one" not in line and line.endswith(f"the key here is {other}\n")
    assert ask(cluster, address, "status")  # the broker is still there


def test_a_session_that_is_gone_is_no_answer_and_the_next_step_is_said(
    cluster: Cluster, address: str, home: Agent
) -> None:
    # It closes what is opened to it, as an agent does that ends just now.
    home.handle = lambda channel, message: channel.close("it ends")  # type: ignore[method-assign]
    command = cluster.ask("logs", "p", "--json", "--connect", address)
    assert command.process.returncode == 1
    (line,) = command.out
    why = json.loads(line)["error"]
    assert why.startswith("1 of 1 sessions did not answer") and "try again" in why
