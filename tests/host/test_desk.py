# SPDX-License-Identifier: MIT
"""``mooactor status``, ``logs`` and ``stop`` with real sessions on a real cluster."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import mooactor as moo
from tests.clusters import cluster
from tests.conftest import eventually
from tests.host.test_many_hosts import on

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
        assert "Where:left" in command(made, "status")[1]


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


def test_stop_ends_sessions_hosts_and_the_broker(made):
    program = (
        "import mooactor as moo\n"
        "from tests.host.test_many_hosts import Where\n"
        "moo.init(local=False)\n"
        "handle = moo.spawn(Where)\n"
        "print(handle.pid(), flush=True)\n"
        "handle.sleep(60)\n"
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
    said = driver.communicate(timeout=30)[1]
    assert "mooactor stop" in said
    assert driver.returncode == 1
    assert made.broker.process.wait(20) == 0
    assert [made.members[name].process.wait(20) for name in "ab"] == [0, 0]
