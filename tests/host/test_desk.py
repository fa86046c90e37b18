# SPDX-License-Identifier: MIT
"""``mooactor status``, ``logs`` and ``stop`` with real sessions on a real cluster."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys

import pytest

import mooactor as moo
from mooactor.cli.client import Client, homes
from mooactor.host.protocol import End, Logs, SessionStatus, Status
from tests.conftest import eventually
from tests.host.where import on

pytestmark = pytest.mark.slow


def command(made, *words):
    done = subprocess.run(
        [*made.network.on("d"), sys.executable, "-m", "mooactor", *words],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def hosts_shown(made):
    """The table of hosts, by name: the cells of each line but its first one."""
    table = command(made, "status")[1].split("\n\n")[0].splitlines()[1:]
    rows = [re.split(r"  +", line) for line in table]
    return {row[0]: row[1:] for row in rows}


def test_status_has_hosts_sessions_and_actors_wherever_they_are(here):
    with moo.init():
        assert eventually(lambda: "d (driver)" in hosts_shown(here))
        handles = {
            "left": on("a", name="left", num_cpus=1).spawn(),
            "right": on("b", name="right").spawn(),
            "own": on("d", name="own", num_cpus=1).spawn(),
        }
        pids = {name: handle.pid() for name, handle in handles.items()}
        cores = moo.hosts()[0]["cpus"]

        def is_shown():
            cpus, *_, actors, _ = hosts_shown(here)["d (driver)"]
            return (cpus, actors) == (f"{cores - 1} of {cores}", "1")

        assert eventually(is_shown)
        code, out, _ = command(here, "status", "--json")
        found = json.loads(out)
        rows = {row["name"]: row for row in found["sessions"][0]["actors"]}
        assert code == 0
        assert {name: row["pid"] for name, row in rows.items()} == pids
        where = {name: row["host"] for name, row in rows.items()}
        assert where == {"left": "a", "right": "b", "own": "d"}
        assert all(row["mailbox"] == 0 for row in rows.values())
        assert all(row["memory"] > 1 << 20 for row in rows.values())
        hosts = {row["name"]: row for row in found["hosts"]}
        assert hosts["a"]["free"]["cpus"] == hosts["a"]["cpus"] - 1
        assert all(hosts[name]["load"] >= 0 for name in "abd")
        assert "Where:left" in command(here, "status")[1]

        here.start_host("d")  # whose cores they are now

        assert eventually(lambda: set(hosts_shown(here)) == {"a", "b", "d"})


def test_logs_of_several_actors_tell_them_apart(here):
    with moo.init(logs=False):
        hosts = ["b", "b", "d"]
        talks = [on(host).spawn() for host in hosts]
        talks.append(on("b", name="parrot", restart=moo.Restart(max=2)).spawn())
        pids = [handle.pid() for handle in talks]
        for handle in talks:
            handle.say("hello")
        of_them = list(zip(pids, hosts, strict=False))
        lines = [f"(Where pid={pid} host={host}) hello" for pid, host in of_them]

        def shown():
            return command(here, "logs", "Where")[1].splitlines()

        assert eventually(lambda: sorted(shown()) == sorted(lines))
        _, out, _ = command(here, "logs", "Where", "--json")
        found = {line["pid"]: line for line in map(json.loads, out.splitlines())}
        ids = {row.pid: f"{row.id:016x}" for row in moo.actors()}
        common = {"line": "hello", "stream": 1, "session_host": "d", "label": "Where"}
        assert found == {
            pid: {**common, "host": host, "pid": pid, "id": ids[pid], "incarnation": 0}
            for pid, host in of_them
        }

        parrot = talks[-1]
        kill(parrot)
        parrot.say.options(retries=3).remote("again").get()

        def told():
            lines = command(here, "logs", "parrot", "--json")[1].splitlines()
            return [(x["line"], x["incarnation"]) for x in map(json.loads, lines)]

        assert eventually(lambda: told() == [("hello", 0), ("again", 1)])


@contextlib.contextmanager
def following(made, *words):
    """``mooactor logs -f``, in a process of its own, and the lines that it prints."""
    process = subprocess.Popen(
        [*made.network.on("d"), sys.executable, "-m", "mooactor", "logs", "-f", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def hears(process, handle):
    """Have the actor print until the command has printed a line of it."""

    def printed():
        handle.say("hello")
        return bool(select.select([process.stdout], [], [], 0.1)[0])

    return eventually(printed)


def ended(process):
    """Its exit code, and the lines of its stderr; it ends by itself."""
    _, error = process.communicate(timeout=30)
    return process.returncode, error.splitlines()


def kill(handle):
    os.kill(handle.pid(), signal.SIGKILL)


def test_logs_that_follow_end_with_the_actor_and_say_how_it_ended(here):
    with moo.init(logs=False):
        for host, end, why in (
            ("b", moo.stop, "stopped by moo.stop"),
            ("d", kill, "killed by signal 9 (SIGKILL)"),
        ):
            handle = on(host, name=f"parrot-{host}").spawn()
            with following(here, f"parrot-{host}") as process:
                assert hears(process, handle)
                end(handle)
                line = f"mooactor logs: Where:parrot-{host} has ended: {why}"
                assert ended(process) == (0, [line])
            # Also when it is over, by its name, which it does not hold any more.
            with following(here, f"parrot-{host}") as process:
                assert ended(process) == (0, [line])


def ends_with_session(why):
    """Whether it names this program."""
    return why.startswith("its session has ended, with its program ") and why.endswith(
        f"(pid {os.getpid()} on host d)"
    )


def test_logs_that_follow_go_on_over_a_restart_and_end_with_the_session(here):
    with moo.init(local=False, logs=False):
        handle = on("a", name="parrot", restart=moo.Restart(max=2)).spawn()
        quiet = on("b", name="quiet", restart=moo.Restart(max=2)).spawn()
        quiet.pid()
        with (
            following(here, "parrot", "--json") as process,
            Client(here.address, str(here.key_file)) as client,
        ):
            assert hears(process, handle)
            kill(handle)
            handle.say.options(retries=3).remote("I am back").get()
            while json.loads(process.stdout.readline())["line"] != "I am back":
                pass
            assert process.poll() is None

            # One that waits for its host never ends by itself, and prints nothing.
            here.members["b"].kill()
            assert eventually(lambda: None in [row.pid for row in moo.actors()])
            (row,) = homes(client.rows())
            talk = client.open(row)
            talk.post(Logs("quiet", True))
            talk.post(Status())
            assert client.wait(lambda: talk.answer(SessionStatus), 30)
            assert talk.answer(End) is None

            moo.shutdown()

            out, error = process.communicate(timeout=30)
            assert (process.returncode, error) == (0, "")
            end = json.loads(out.splitlines()[-1])
            assert ends_with_session(end.pop("why"))
            assert end == {"ended": "Where:parrot", "session_host": "d"}
            assert client.wait(lambda: talk.answer(End), 30)
            assert ends_with_session(talk.answer(End).why)


STOPPED = """
import mooactor as moo
from mooactor.process.current import known_runtime
from tests.host.where import Where

moo.init(local=False)
handle = moo.spawn(Where)
print(handle.pid(), flush=True)
try:
    handle.sleep(60)
except moo.ActorDied as error:
    print(error.cause.kind, error, flush=True)
while known_runtime():
    pass
try:
    handle.pid()
except moo.ActorUnavailable as error:
    print(error, flush=True)
moo.spawn(Where)
"""


def test_stop_ends_sessions_hosts_and_the_broker(here):
    driver = subprocess.Popen(
        [*here.network.on("d"), sys.executable, "-c", STOPPED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None and driver.stderr is not None
    assert int(driver.stdout.readline())

    code, out, error = command(here, "stop")

    assert (code, error) == (0, "")
    assert "stopped 1 session, 2 hosts and the broker" in out
    out, error = driver.communicate(timeout=30)
    died, then = out.splitlines()
    program = f"python -c (pid {driver.pid} on host d)"
    ended = f"session has ended, with its program {program}"
    assert died.startswith("owner ") and died.endswith(ended)
    why = "because mooactor stop ended it; moo.init() starts another one"
    assert then == f"the session has ended, {why}"
    first, *_, last = error.splitlines()
    assert first == "mooactor: mooactor stop ends the session"
    assert "the host's agent" not in error
    assert last.endswith(f"the session has ended, and its actors with it, {why}")
    assert driver.returncode == 1
    assert here.broker.process.wait(20) == 0
    assert [here.members[name].process.wait(20) for name in "ab"] == [0, 0]
