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
from tests.clusters import cluster
from tests.conftest import eventually
from tests.host.where import on

pytestmark = pytest.mark.slow


@pytest.fixture
def two():
    with cluster("ab") as made:
        yield made


@pytest.fixture
def made(two, as_driver):
    return as_driver(two)


def command(made, *words):
    done = subprocess.run(
        [*made.network.on("d"), sys.executable, "-m", "mooactor", *words],
        env={**made.environment("d"), "MOOACTOR_ADDRESS": made.address},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def test_status_has_hosts_sessions_and_actors_wherever_they_are(made):
    with moo.init(local=False):
        a = on("a", name="left", num_cpus=1).spawn()
        b = on("b", name="right").spawn()
        pids = {"left": a.pid(), "right": b.pid()}

        code, out, _ = command(made, "status", "--json")

        found = json.loads(out)
        rows = {row["name"]: row for row in found["sessions"][0]["actors"]}
        assert code == 0
        assert {name: row["pid"] for name, row in rows.items()} == pids
        assert {name: row["host"] for name, row in rows.items()} == {
            "left": "a",
            "right": "b",
        }
        assert all(row["mailbox"] == 0 for row in rows.values())
        assert all(row["memory"] > 1 << 20 for row in rows.values())
        hosts = {row["name"]: row for row in found["hosts"]}
        assert hosts["a"]["free"]["cpus"] == hosts["a"]["cpus"] - 1
        assert all(hosts[name]["load"] >= 0 for name in "abd")
        assert "Where:left" in command(made, "status")[1]
        assert set(hosts_shown(made)) == {"a", "b"}  # the driver's offers nothing


def test_logs_shows_what_an_actor_has_printed_also_after_its_death(made):
    with moo.init(local=False, logs=False):
        handle = on("b", name="parrot").spawn()
        handle.say("good morning")
        moo.kill(handle)

        def shown():
            return "good morning" in command(made, "logs", "parrot")[1]

        assert eventually(shown)
        code, _, error = command(made, "logs", "nobody")
        assert code == 1
        assert "no session has an actor called 'nobody'" in error


def test_logs_shows_the_newest_lines_however_much_was_printed(made):
    with moo.init(local=False, logs=False):
        handle = on("b", name="parrot").spawn()
        for number in range(99):
            handle.say(f"{number}" + "x" * 60_000)
        handle.say("THE LAST LINE")
        moo.kill(handle)

        def shown():
            return command(made, "logs", "parrot")[1].splitlines()

        assert eventually(lambda: shown()[-1:] == ["THE LAST LINE"])
        assert len(shown()) == 100


def test_logs_of_several_actors_tell_them_apart(made):
    with moo.init(logs=False):
        talks = [on(host).spawn() for host in ("b", "b", "d")]
        talks.append(on("b", name="parrot", restart=moo.Restart(max=2)).spawn())
        pids = [handle.pid() for handle in talks]
        for handle in talks:
            handle.say("hello")
        hosts = ["b", "b", "d"]
        lines = [
            f"(Where pid={pid} host={host}) hello"
            for pid, host in zip(pids, hosts, strict=False)
        ]

        def shown():
            return command(made, "logs", "Where")[1].splitlines()

        assert eventually(lambda: sorted(shown()) == sorted(lines))
        _, out, _ = command(made, "logs", "Where", "--json")
        found = {line["pid"]: line for line in map(json.loads, out.splitlines())}
        ids = {row.pid: f"{row.id:016x}" for row in moo.actors()}
        assert found == {
            pid: {
                "line": "hello",
                "stream": 1,
                "host": host,
                "session_host": "d",
                "label": "Where",
                "pid": pid,
                "id": ids[pid],
                "incarnation": 0,
            }
            for pid, host in zip(pids, hosts, strict=False)
        }

        parrot = talks[-1]
        kill(parrot)
        assert eventually(lambda: moo.actors()[-1].pid not in (pids[-1], None))
        parrot.say.options(retries=3).remote("again").get()

        def told():
            lines = command(made, "logs", "parrot", "--json")[1].splitlines()
            return [(x["line"], x["incarnation"]) for x in map(json.loads, lines)]

        assert eventually(lambda: told() == [("hello", 0), ("again", 1)])
        assert command(made, "logs", "parrot")[1] == "hello\nagain\n"  # it is one


def hosts_shown(made):
    """The table of hosts, by name: the cells of each line but its first one."""
    table = command(made, "status")[1].split("\n\n")[0].splitlines()[1:]
    rows = [re.split(r"  +", line) for line in table]
    return {row[0]: row[1:] for row in rows}


def test_status_shows_the_drivers_machine_as_a_host_for_its_own_session_only(made):
    with moo.init(logs=False):
        assert eventually(lambda: "d (driver)" in hosts_shown(made))
        group = [on("d", num_cpus=1).spawn(), on("a").spawn()]
        for handle in group:
            handle.pid()
        cores = moo.hosts()[0]["cpus"]

        def is_shown():
            cpus, *_, actors, _ = hosts_shown(made)["d (driver)"]
            return (cpus, actors) == (f"{cores - 1} of {cores}", "1")

        assert eventually(is_shown)
        assert hosts_of_another_session(made) == ["a", "b"]

        made.start_host("d")  # whose cores they are now

        assert eventually(lambda: set(hosts_shown(made)) == {"a", "b", "d"})


def hosts_of_another_session(made):
    program = (
        "import mooactor as moo\n"
        "moo.init(local=False)\n"
        "print(*[row['name'] for row in moo.hosts()])\n"
    )
    done = subprocess.run(
        [*made.network.on("d"), sys.executable, "-c", program],
        env={
            **made.environment("d"),
            "MOOACTOR_ADDRESS": made.address,
            "MOOACTOR_HOST_NAME": "e",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.split()


@contextlib.contextmanager
def following(made, *words):
    """``mooactor logs -f``, in a process of its own, and the lines that it prints."""
    process = subprocess.Popen(
        [*made.network.on("d"), sys.executable, "-m", "mooactor", "logs", "-f", *words],
        env={**made.environment("d"), "MOOACTOR_ADDRESS": made.address},
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


def stop(handle):
    moo.stop(handle)


def kill(handle):
    os.kill(handle.pid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("end", "why"),
    [(stop, "stopped by moo.stop"), (kill, "killed by signal 9 (SIGKILL)")],
)
@pytest.mark.parametrize("host", ["b", "d"])
def test_logs_that_follow_end_with_the_actor_and_say_how_it_ended(made, host, end, why):
    with moo.init(logs=False):
        handle = on(host, name="parrot").spawn()
        with following(made, "parrot") as process:
            assert hears(process, handle)
            end(handle)
            line = f"mooactor logs: Where:parrot has ended: {why}"
            assert ended(process) == (0, [line])
        # Also when it is over, by its name, which it does not hold any more.
        with following(made, "parrot") as process:
            assert ended(process) == (0, [line])


def ends_with_session(why):
    """Whether it names this program, and what it did."""
    return why.startswith("its session has ended: ") and why.endswith(
        f"(pid {os.getpid()} on host d) called moo.shutdown()"
    )


def test_logs_that_follow_go_on_over_a_restart_and_end_with_the_session(made):
    with moo.init(local=False, logs=False):
        handle = on("b", name="parrot", restart=moo.Restart(max=2)).spawn()
        with following(made, "parrot", "--json") as process:
            assert hears(process, handle)
            before = handle.pid()
            kill(handle)
            assert eventually(lambda: moo.actors()[0].pid not in (before, None))
            handle.say.options(retries=3).remote("I am back").get()
            while json.loads(process.stdout.readline())["line"] != "I am back":
                pass
            assert process.poll() is None

            moo.shutdown()

            out, error = process.communicate(timeout=30)
            assert (process.returncode, error) == (0, "")
            end = json.loads(out.splitlines()[-1])
            assert ends_with_session(end.pop("why"))
            assert end == {"ended": "Where:parrot", "session_host": "d"}


def test_logs_that_follow_an_actor_without_a_process_end_with_the_session(made):
    """It waits for its host, so it never ends by itself, and has printed nothing."""
    with moo.init(local=False, logs=False):
        handle = on("b", name="quiet", restart=moo.Restart(max=2)).spawn()
        handle.pid()
        made.members["b"].kill()
        assert eventually(lambda: moo.actors()[0].pid is None)
        with Client(made.address, str(made.key_file)) as client:
            (row,) = homes(client.rows())
            talk = client.open(row)
            talk.post({"op": "logs", "name": "quiet", "follow": True})
            talk.post({"op": "status"})
            assert client.wait(lambda: talk.answer("status"), 30)
            assert talk.answer("end") is None
            moo.shutdown()
            assert client.wait(lambda: talk.answer("end"), 30)
            assert ends_with_session(talk.answer("end")["why"])


def test_stop_ends_sessions_hosts_and_the_broker(made):
    program = (
        "import mooactor as moo\n"
        "from tests.host.where import Where\n"
        "moo.init(local=False)\n"
        "from mooactor.process.current import known_runtime\n"
        "handle = moo.spawn(Where)\n"
        "print(handle.pid(), flush=True)\n"
        "try:\n"
        "    handle.sleep(60)\n"
        "except moo.ActorDied as error:\n"
        "    print(error.cause.kind, error, flush=True)\n"
        "while known_runtime():\n"
        "    pass\n"
        "try:\n"
        "    handle.pid()\n"
        "except moo.ActorUnavailable as error:\n"
        "    print(error, flush=True)\n"
        "moo.spawn(Where)\n"
    )
    driver = subprocess.Popen(
        [*made.network.on("d"), sys.executable, "-c", program],
        env={**made.environment("d"), "MOOACTOR_ADDRESS": made.address},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None and driver.stderr is not None
    assert int(driver.stdout.readline())

    code, out, error = command(made, "stop")

    assert (code, error) == (0, "")
    assert "stopped 1 session, 2 hosts and the broker" in out
    out, error = driver.communicate(timeout=30)
    died, then = out.splitlines()
    program = f"python -c (pid {driver.pid} on host d)"
    ended = f"mooactor stop ended it; its program is {program}"
    assert died.startswith("owner ") and died.endswith(f"session has ended: {ended}")
    why = "because mooactor stop ended it; moo.init() starts another one"
    assert then == f"the session has ended, {why}"
    first, *_, last = error.splitlines()
    assert first == "mooactor: mooactor stop ends the session"
    assert "the host's agent" not in error
    assert last.endswith(f"the session has ended, and its actors with it, {why}")
    assert driver.returncode == 1
    assert made.broker.process.wait(20) == 0
    assert [made.members[name].process.wait(20) for name in "ab"] == [0, 0]
