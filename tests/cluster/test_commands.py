# SPDX-License-Identifier: MIT
"""status, top, logs and stop: a real broker, and agents of the test."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.cli import main
from mooactor.cli.stop import GONE_S
from mooactor.control import secret
from mooactor.host.session import current_session
from tests.cluster.clusters import COMMAND, Agent, Cluster

ACTOR = {
    "id": "00ff",
    "label": "Player 'p'",
    "name": "p",
    "pid": 4242,
    "state": "running",
    "restarts": 2,
    "owner": None,
    "detached": False,
    "host": "b",
    "mailbox": 7,
    "memory": 15_000_000,
}
STATUS = {"ev": "status", "session": "s1", "driver": "train.py", "actors": [ACTOR]}


@pytest.fixture
def address(cluster: Cluster) -> str:
    return cluster.broker()[1]


@pytest.fixture
def home(cluster: Cluster, address: str) -> Agent:
    """The agent of a driver, with one actor."""
    member = cluster.member("laptop", address, kind="home")
    assert cluster.until(lambda: member.joined)
    agent = Agent(member)
    agent.answers["status"] = [STATUS]
    return agent


def ask(cluster: Cluster, address: str, *words: str, code: int = 0) -> list[str]:
    """The lines that a command prints."""
    command = cluster.ask(*words, "--connect", address)
    assert command.process.returncode == code, command.text()
    return command.out if code == 0 else command.err


def test_status_shows_hosts_and_the_actors_of_sessions(
    cluster: Cluster, address: str, home: Agent
) -> None:
    b = cluster.member("b", address, labels={"rack": "b2\x1b[2J", "a": "1"})
    assert cluster.until(lambda: b.joined)
    text = "".join(ask(cluster, address, "status"))
    assert "laptop (driver)" in text
    assert "4 of 4" in text and "8.59 GB of 8.59 GB" in text
    assert "a=1 rack=b2�[2J" in text and "python 3.11.7" in text and "torch" not in text
    assert "session s1, train.py: 1 actor\n" in text
    assert "Player 'p'  b     4242  running  2         7        15 MB\n" in text
    found = json.loads("".join(ask(cluster, address, "status", "--json")))
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


def test_status_shows_the_load_of_each_machine(cluster: Cluster, address: str) -> None:
    b = cluster.member("b", address)
    assert cluster.until(lambda: b.joined)
    (host,) = json.loads("".join(ask(cluster, address, "status", "--json")))["hosts"]
    # The average moves by a tenth or two in the seconds that this test takes.
    assert host["load"] == pytest.approx(os.getloadavg()[0], rel=0.5, abs=1.0)
    heading, line = "".join(ask(cluster, address, "status")).splitlines()
    start = heading.index("load (1 min)")
    assert float(line[start:].split()[0]) == pytest.approx(
        host["load"], rel=0.5, abs=1.0
    )


def test_json_shows_fields_of_later_versions_whatever_they_are(
    cluster: Cluster, address: str
) -> None:
    b = cluster.member("b", address, digest=b"\x01\xff")
    assert cluster.until(lambda: b.joined)
    (line,) = ask(cluster, address, "status", "--json")
    assert json.loads(line)["hosts"][0]["digest"] == "01ff"


def test_status_of_an_empty_cluster_says_what_to_start(
    cluster: Cluster, address: str
) -> None:
    assert ask(cluster, address, "status") == [
        "no hosts: start one with `mooactor host --join ADDR`\n"
    ]


@pytest.mark.slow
def test_a_driver_that_does_not_answer_is_shown_as_such(
    cluster: Cluster, address: str, home: Agent
) -> None:
    home.answers.clear()
    text = "".join(ask(cluster, address, "status"))
    assert "a session of laptop does not answer" in text


def test_the_address_may_come_from_the_environment(
    cluster: Cluster, address: str
) -> None:
    words = ("status", "--json", "--key-file", cluster.key.source)
    command = cluster.command(*words, MOOACTOR_ADDRESS=address)
    assert command.wait() == 0
    assert json.loads("".join(command.out)) == {"hosts": [], "sessions": []}


@pytest.mark.slow
def test_no_broker_and_a_wrong_key_are_one_sentence(
    cluster: Cluster, address: str, tmp_path: Any
) -> None:
    nobody = "127.0.0.1:1"
    (line,) = ask(cluster, nobody, "status", code=2)
    assert line.startswith(f"mooactor status: no broker answers at tcp://{nobody} ")
    assert "nothing listens there): start one with `mooactor broker`, or name" in line
    assert line.endswith(f"; the key here is {cluster.key}\n")
    other = secret.make(str(tmp_path / "other"))
    command = cluster.command("stop", "--connect", address, "--key-file", other.source)
    assert command.wait() == 2
    (line,) = command.err
    assert "holds another key or is no mooactor): copy the broker's key file" in line
    assert "start one" not in line and line.endswith(f"the key here is {other}\n")
    assert ask(cluster, address, "status")  # the broker is still there


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


@pytest.mark.slow
def test_top_outlives_a_broker_that_is_started_again(
    cluster: Cluster, address: str
) -> None:
    words = ("top", "--json", "--interval", "0.1", "--connect", address)
    top = cluster.command(*words, "--key-file", cluster.key.source)
    assert cluster.until(lambda: top.out)
    cluster.commands[0].signal(signal.SIGKILL)
    assert cluster.until(lambda: top.err)
    assert cluster.until(lambda: "error" in json.loads(top.out[-1]))
    why = json.loads(top.out[-1])["error"]
    assert f"mooactor top: {why}\n" in top.err
    cluster.broker(listen=address)
    a = cluster.member("a", address)
    assert cluster.until(lambda: a.joined)
    assert cluster.until(lambda: '"name": "a"' in top.out[-1])
    assert "error" not in json.loads(top.out[-1]) and "error" not in top.out[0]
    assert top.signal(signal.SIGINT) == 0


def test_logs_prints_each_stream_to_its_own(
    cluster: Cluster, address: str, home: Agent
) -> None:
    home.answers["logs"] = [
        {"ev": "log", "line": "one", "stream": 1},
        {"ev": "log", "line": "two", "stream": 2, "host": "b"},
        {"ev": "end"},
    ]
    command = cluster.ask("logs", "p", "--connect", address)
    assert (command.process.returncode, command.out, command.err) == (
        0,
        ["one\n"],
        ["two\n"],
    )
    assert home.asked[-1] == {"op": "logs", "name": "p", "follow": False}
    lines = [json.loads(x) for x in ask(cluster, address, "logs", "p", "--json")]
    assert lines == [
        {"line": "one", "stream": 1, "host": "laptop", "session_host": "laptop"},
        {"line": "two", "stream": 2, "host": "b", "session_host": "laptop"},
    ]


ABOUT = {"label": "Talk", "pid": 12, "id": "00aa", "incarnation": 0}


def test_logs_of_one_actor_say_whose_they_are_as_json_only(
    cluster: Cluster, address: str, home: Agent
) -> None:
    again = {**ABOUT, "pid": 13, "incarnation": 1}
    home.answers["logs"] = [
        {"ev": "meant", "actors": ["00aa"]},
        {"ev": "log", "line": "one", "stream": 1, **ABOUT},
        {"ev": "log", "line": "two", "stream": 1, **again},
        {"ev": "end"},
    ]
    assert ask(cluster, address, "logs", "Talk") == ["one\n", "two\n"]
    lines = [json.loads(x) for x in ask(cluster, address, "logs", "Talk", "--json")]
    host = {"host": "laptop", "session_host": "laptop"}
    assert lines == [
        {"line": "one", "stream": 1, **host, **ABOUT},
        {"line": "two", "stream": 1, **host, **again},
    ]


def test_logs_of_several_actors_say_whose_they_are_from_the_first_line_on(
    cluster: Cluster, address: str, home: Agent
) -> None:
    other = {**ABOUT, "label": "Ta\x1blk", "pid": 13, "id": "00bb", "host": "c"}
    home.answers["logs"] = [
        {"ev": "meant", "actors": ["00aa", "00bb"]},
        {"ev": "log", "line": "one", "stream": 1, **ABOUT},
        {"ev": "log", "line": "one", "stream": 1, **other},
        {"ev": "end"},
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
        agent.answers["logs"] = [
            {"ev": "meant", "actors": ["00aa"]},
            {"ev": "log", "line": line, "stream": 1, **ABOUT},
            {"ev": "end"},
        ]
    assert sorted(ask(cluster, address, "logs", "Talk")) == [
        "(Talk pid=12 host=desktop) two\n",
        "(Talk pid=12 host=laptop) one\n",
    ]


@pytest.mark.slow
def test_logs_wait_only_so_long_for_whom_a_silent_session_has(
    cluster: Cluster, address: str, home: Agent
) -> None:
    silent = Agent(cluster.member("desktop", address, kind="home"))
    assert cluster.until(lambda: silent.member.joined)
    home.answers["logs"] = [{"ev": "log", "line": "one", "stream": 1, **ABOUT}]
    words = ("logs", "Talk", "-f", "--connect", address)
    command = cluster.command(*words, "--key-file", cluster.key.source)
    assert cluster.until(lambda: command.out == ["one\n"])
    assert silent.asked and command.signal(signal.SIGINT) == 0


def test_letters_that_the_encoding_lacks_are_escapes(
    cluster: Cluster, address: str, home: Agent
) -> None:
    log = {"ev": "log", "line": "täglich €", "stream": 1}
    home.answers["logs"] = [log, {**log, "stream": 2}, {"ev": "end"}]
    home.answers["status"] = [{**STATUS, "actors": [{**ACTOR, "label": "tälk"}]}]
    own = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    for words, said in (
        (("logs", "p"), "t\\xe4glich \\u20ac\n"),
        (("status",), "\\xe4lk"),
    ):
        rest = ("--connect", address, "--key-file", cluster.key.source)
        command = cluster.command(*words, *rest, **own)
        assert cluster.until(lambda: command.ended)
        assert command.wait() == 0
        assert said in "".join(command.out)
        assert command.err == ([said] if words[0] == "logs" else [])


def test_a_broker_serves_though_nobody_reads_where_it_is(cluster: Cluster) -> None:
    words = ("broker", "--listen", "127.0.0.1:0", "--key-file", cluster.key.source)
    program = [*COMMAND, *words]
    broker = cluster.command(words=["sh", "-c", 'exec "$@" >/dev/full', "-", *program])
    assert cluster.until(lambda: any("broker at tcp:" in x for x in broker.err))
    (line,) = (x for x in broker.err if "broker at tcp:" in x)
    address = re.search("tcp://[^ ]*", line)
    assert address is not None and ask(cluster, address[0], "status")
    assert broker.signal() == 0


def test_logs_says_where_lines_are_left_out(
    cluster: Cluster, address: str, home: Agent
) -> None:
    log = {"ev": "log", "line": "one", "stream": 1}
    home.answers["logs"] = [{"ev": "left_out", "lines": 7}, log, {"ev": "end"}]
    command = cluster.ask("logs", "p", "--connect", address)
    assert command.out == ["one\n"]
    (line,) = command.err
    assert line.startswith("mooactor logs: 7 lines are left out here")
    gap, _ = map(json.loads, ask(cluster, address, "logs", "p", "--json"))
    assert gap == {"left_out": 7, "session_host": "laptop"}


def test_logs_follows_until_ctrl_c(cluster: Cluster, address: str, home: Agent) -> None:
    home.answers["logs"] = [{"ev": "log", "line": "one", "stream": 1}]
    words = ("logs", "p", "-f", "--connect", address)
    command = cluster.command(*words, "--key-file", cluster.key.source)
    assert cluster.until(lambda: command.out == ["one\n"])
    assert home.asked[-1]["follow"] is True
    assert command.signal(signal.SIGINT) == 0


def test_logs_that_follow_say_how_the_actor_ended(
    cluster: Cluster, address: str, home: Agent
) -> None:
    end = {"ev": "end", "found": True, "label": "Player:p", "why": "killed\x1b[2J"}
    home.answers["logs"] = [end]
    command = cluster.ask("logs", "p", "-f", "--connect", address)
    assert (command.process.returncode, command.out) == (0, [])
    assert command.err == ["mooactor logs: Player:p has ended: killed�[2J\n"]


def test_logs_that_follow_a_session_that_is_lost_fail(
    cluster: Cluster, address: str, home: Agent
) -> None:
    home.answers["logs"] = [{"ev": "log", "line": "one", "stream": 1}]
    words = ("logs", "p", "-f", "--connect", address)
    command = cluster.command(*words, "--key-file", cluster.key.source)
    assert cluster.until(lambda: command.out == ["one\n"])
    cluster.leave(home.member)
    assert cluster.until(lambda: command.ended)
    assert command.wait() == 1
    (line,) = command.err
    assert "the session of laptop, which has 'p', cannot be heard any more" in line
    assert "`mooactor status`" in line


def test_logs_of_nobody_says_so(cluster: Cluster, address: str, home: Agent) -> None:
    home.answers["logs"] = [{"ev": "end", "found": False}]
    (line,) = ask(cluster, address, "logs", "nobody", code=1)
    assert "no session has an actor called 'nobody'" in line


def test_stop_ends_sessions_then_hosts_then_the_broker(
    cluster: Cluster, home: Agent, address: str
) -> None:
    host = Agent(cluster.member("b", address))
    assert cluster.until(lambda: host.member.joined)
    order: list[str] = []
    for agent in (home, host):

        def stop(agent: Agent = agent) -> None:
            order.append(agent.member.row["name"])
            cluster.loop.later(0.01, lambda: cluster.leave(agent.member))

        agent.on_stop = stop
    lines = ask(cluster, address, "stop")
    assert lines == ["stopped 1 session, 1 host and the broker\n"]
    assert order == ["laptop", "b"]
    assert cluster.until(lambda: cluster.commands[0].ended)
    assert cluster.commands[0].wait() == 0


def test_stop_as_json_counts_what_has_ended(
    cluster: Cluster, address: str, home: Agent
) -> None:
    home.on_stop = lambda: cluster.loop.later(0.01, lambda: cluster.leave(home.member))
    (line,) = ask(cluster, address, "stop", "--json")
    assert json.loads(line) == {"sessions": 1, "hosts": 0, "brokers": 1}


@pytest.mark.slow
@pytest.mark.parametrize("words", [("status",), ("top",), ("logs", "p"), ("stop",)])
def test_with_json_a_failure_is_an_object_too(
    cluster: Cluster, words: tuple[str, ...]
) -> None:
    command = cluster.ask(*words, "--json", "--connect", "127.0.0.1:1")
    assert command.process.returncode == 2
    (line,), (said,) = command.out, command.err
    (key,), (why,) = zip(*json.loads(line).items(), strict=True)
    assert key == "error" and "start one with `mooactor broker`" in why
    assert said == f"mooactor {words[0]}: {why}\n"


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


def test_stop_ends_the_stand_by_too(cluster: Cluster, address: str) -> None:
    a = cluster.member("a", address)
    standby, other = cluster.broker("--standby-of", address)
    assert cluster.until(lambda: set(a.membership.brokers()) == {address, other})
    cluster.leave(a)
    assert ask(cluster, address, "stop") == [
        "stopped 0 sessions, 0 hosts and 2 brokers\n"
    ]
    assert cluster.until(lambda: all(c.ended for c in cluster.commands))
    assert standby.wait() == 0


def test_stop_returns_when_the_processes_of_this_machine_have_ended(
    cluster: Cluster, address: str
) -> None:
    key = ("--key-file", cluster.key.source)
    host = cluster.command("host", "--join", address, "--name", "b", *key)
    a = cluster.member("a", address)
    assert cluster.until(lambda: "b" in a.names() or host.ended)
    cluster.leave(a)
    begun = time.monotonic()
    ask(cluster, address, "stop")
    waited = time.monotonic() - begun
    assert (host.ended and cluster.commands[0].ended) or waited > GONE_S
    assert host.wait() == cluster.commands[0].wait() == 0


PROGRAM = """
import os
import mooactor as moo
from mooactor.process import deaths
deaths._GRACE_S = 60.0  # news of the actor's death does not come before the end
class Waits:
    def forever(self):
        print("waits", flush=True)
        while True: pass
    def ping(self):
        return "pong"
moo.init()
moo.actor(Waits)
handle = moo.spawn(Waits)
try:
    handle.forever()
except moo.ActorUnavailable as error:
    del os.environ["MOOACTOR_ADDRESS"]
    with moo.init():
        print("another one:", moo.spawn(Waits).ping(), flush=True)
    print("ended:", error, flush=True)
"""


def test_a_call_that_stop_cuts_short_says_so(cluster: Cluster, address: str) -> None:
    program = cluster.command(
        words=[sys.executable, "-c", PROGRAM],
        MOOACTOR_ADDRESS=address,
        MOOACTOR_KEY_FILE=cluster.key.source,
    )
    assert cluster.until(lambda: any("waits" in line for line in program.out))
    (line,) = ask(cluster, address, "stop")
    assert line == "stopped 1 session, 0 hosts and the broker\n"
    assert program.wait() == 0
    why = "because mooactor stop ended it; moo.init() starts another one"
    assert program.out[-2] == "another one: pong\n"  # at once, as the error says
    assert program.out[-1] == f"ended: the session has ended, {why}\n"


def test_stop_by_the_stand_by_ends_the_first_broker_too(
    cluster: Cluster, address: str
) -> None:
    first = cluster.commands[0]
    _, other = cluster.broker("--standby-of", address)
    (line,) = ask(cluster, other, "stop", "--json")
    assert json.loads(line) == {"sessions": 0, "hosts": 0, "brokers": 2}
    assert cluster.until(lambda: first.ended) and first.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_stop_says_what_is_with_a_first_broker_that_does_not_answer(
    cluster: Cluster, address: str, number: int
) -> None:
    first = cluster.commands[0]
    a = cluster.member("a", address)
    _, other = cluster.broker("--standby-of", address)
    assert cluster.until(lambda: other in a.membership.brokers())
    cluster.leave(a)
    first.process.send_signal(number)
    both = f"{other},{address}"
    if number == signal.SIGKILL:
        first.wait()
        (line,) = ask(cluster, both, "stop")
        assert line.startswith("stopped 0 sessions, 0 hosts and the broker; nothing ")
        assert address in line
    else:
        (line,) = ask(cluster, both, "stop", code=1)
        assert f"but not the broker at {address} (no answer" in line
        assert "end it there with SIGTERM" in line


def test_stop_leaves_the_broker_to_a_host_that_it_does_not_reach(
    cluster: Cluster, address: str, home: Agent
) -> None:
    home.on_stop = lambda: cluster.loop.later(0.01, lambda: cluster.leave(home.member))
    lost = cluster.member("b", address)
    lost.row["address"] = "tcp://127.0.0.1:1"  # where nobody listens
    lost.membership.changed()
    shown = ""
    while "tcp://127.0.0.1:1" not in shown:
        shown = "".join(ask(cluster, address, "status", "--json"))
    (line,) = ask(cluster, address, "stop", code=1)
    assert "stopped 1 session and 0 hosts, but not host b at tcp://127.0.0.1:1" in line
    assert "The broker still runs: try again" in line
    assert not cluster.commands[0].ended
    assert lost.membership.brokers() == [address]


def test_a_driver_without_a_host_of_its_own_is_listed_by_its_session_only(
    cluster: Cluster, address: str, home: Agent
) -> None:
    home.member.row["cpus"] = 0
    home.member.membership.changed()
    text = ""
    while "no hosts" not in text:
        text = "".join(ask(cluster, address, "status"))
    assert "(driver)" not in text and "session s1" in text


def test_keygen_makes_a_key_and_keeps_one_that_is_there(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "key")
    assert main(["keygen", path]) == 0
    made = secret.read(path)
    out, err = capsys.readouterr()
    assert out == f"mooactor key {made.fingerprint} in {path}\n"
    assert "copy it to every host" in err and "--key-file" in err
    assert f"scp -p {path} HOST:\n" in err
    assert main(["keygen", path]) == 2
    assert "--force" in capsys.readouterr().err
    assert secret.read(path) == secret.Key(made.secret, path)
    assert main(["keygen", "--force", path]) == 0
    assert secret.read(path).secret != made.secret


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_keygen_replaces_files_only(
    force: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe, target, link, dangling = (tmp_path / name for name in ("p", "t", "l", "d"))
    os.mkfifo(pipe)
    target.write_text("kept")
    link.symlink_to("t")
    dangling.symlink_to("nowhere")
    before = {path.name: path.lstat().st_ino for path in tmp_path.iterdir()}
    said = {}
    for path in (pipe, link, dangling, tmp_path):
        assert main(["keygen", *force, str(path)]) == 2
        (said[path],) = capsys.readouterr().err.splitlines()
        assert said[path].startswith(f"mooactor keygen: {path} is ")
    assert "is a named pipe, and is not replaced: name a file" in said[pipe]
    assert "is a directory" in said[tmp_path]
    assert f"a symbolic link, to {target}, " in said[link]
    assert said[link].endswith(": name that file itself")
    assert f"a symbolic link, to {tmp_path}/nowhere, " in said[dangling]
    after = {path.name: path.lstat().st_ino for path in tmp_path.iterdir()}
    assert after == before and target.read_text() == "kept"


def test_keygen_without_a_file_takes_the_default_place(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["keygen"]) == 0
    path = f"{tmp_path}/mooactor/key"
    out, err = capsys.readouterr()
    assert path in out
    assert "ssh HOST mkdir -p -m 700 .config/mooactor && scp -p " in err
    assert f"{path} HOST:.config/mooactor/key" in err
    found = secret.find()
    assert found is not None and found.source == path
    assert main(["keygen", "/proc/self/key"]) == 2
    said = capsys.readouterr().err
    assert "cannot be written" in said and "`mooactor keygen FILE`" in said


def test_keygen_makes_no_directory_for_a_file_that_is_named(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keygen", str(tmp_path / "missing" / "key")]) == 2
    said = capsys.readouterr().err
    assert f"there is no directory {tmp_path}/missing for the key" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words", [["status", "--json"], ["stop"], ["broker"], ["host", "--join", "::1"]]
)
def test_a_home_that_cannot_be_written_is_one_sentence(
    words: list[str], cluster: Cluster
) -> None:
    command = cluster.command(*words, HOME="/proc/self", XDG_CONFIG_HOME="")
    assert command.wait() == 2
    (line,) = command.err
    assert line.startswith(f"mooactor {words[0]}: ")
    said = "there is no key" if words[0] in ("status", "stop") else "no key can be made"
    assert said in line and "MOOACTOR_KEY_FILE" in line


def test_ports_and_intervals_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["broker", "--ports", "9-1"], ["top", "--interval", "0"]):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 2
        assert words[1] in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("host", "--join", "127.0.0.1", "--name", ""),
        ("host", "--join", "127.0.0.1", "--bind", ""),
        ("broker", "--listen", ""),
        ("broker", "--standby-of", ""),
        ("status", "--connect", ""),
        ("status", "--key-file", ""),
        ("keygen", ""),
        ("run", "--cwd", "", "x.py"),
        ("run", "--python", "", "x.py"),
        ("run", "--key-file", "", "x.py"),
        ("run", "--rendezvous", "", "x.py"),
        ("run", "--patience", "0", "x.py"),
        ("run", "--grace", "inf", "x.py"),
        ("run", "--patience", "nan", "x.py"),
        ("slurm", "--nodes", "1", "--job-name", "", "x.py"),
        ("kubernetes", "--hosts", "1", "--image", "x", "--name", "", "x.py"),
    ],
)
def test_a_value_that_is_none_is_not_taken_for_the_default(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "its value is empty: write one" in said or "is no number of seconds" in said


@pytest.mark.parametrize(
    "hosts", [("--hosts", ""), ("--hosts", ","), ("--hostfile", "")]
)
def test_nobody_is_not_taken_for_this_machine(
    hosts: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "x.py").write_text("print('it runs')")
    monkeypatch.chdir(tmp_path)
    assert main(["run", *hosts, "x.py"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("mooactor run: no host is named; write --hosts a,b")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--name", "a\nb"], "--name='a\\nb' is no name of a host"),
        (["--name", "\udcff"], "is no name of a host"),
        (["--name", "x" * 256], "is no name of a host"),
        ([f"--label=a{i}=1" for i in range(65)], "labels has a length of 65"),
        (["--label", "a=" + "x" * 40_000], "the labels have 40"),
        (["--memory", "1e30"], "is no amount"),
    ],
)
def test_a_host_that_no_broker_can_take_does_not_start(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["host", "--join", "127.0.0.1", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line


def test_a_variable_that_is_no_name_of_a_host_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MOOACTOR_HOST_NAME", "a\nb")
    assert main(["host", "--join", "127.0.0.1"]) == 2
    assert "MOOACTOR_HOST_NAME='a\\nb' is no name" in capsys.readouterr().err
    for where in ([], ["tcp://127.0.0.1:4431"]):
        with pytest.raises(ValueError, match="MOOACTOR_HOST_NAME"):
            moo.init(*where)
        assert current_session() is None


@pytest.mark.parametrize("command", [["run"], ["host", "--join", "127.0.0.1"]])
def test_a_number_beyond_any_host_is_refused(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for number in ("9" * 400, "9" * 5000, "-1"):
        with pytest.raises(SystemExit) as stopped:
            main([*command, f"--num-cpus={number}", *["x.py"][: command == ["run"]]])
        assert stopped.value.code == 2
    assert "is no whole number of at most" in capsys.readouterr().err
