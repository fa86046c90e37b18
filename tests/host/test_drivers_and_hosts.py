# SPDX-License-Identifier: MIT
"""Sessions on several hosts whose driver, host or broker goes, and comes back."""

from __future__ import annotations

import os
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

import mooactor as moo
from mooactor.cli.client import Client
from mooactor.host.members import Stop
from tests.conftest import eventually
from tests.host.where import on
from tests.marks import slow
from tests.processes import Process


def test_the_driver_takes_part_unless_it_is_told_not_to(here):
    with moo.init():
        found = {row["name"]: urlsplit(row["address"]).hostname for row in moo.hosts()}
        assert found == {host: here.network.address(host) for host in "abd"}
        pid = on("d").spawn().pid()
        own = Process.of(os.getpid()).descendants()
        assert pid in [process.pid for process in own]


def exclaim() -> None:
    os.environ["MOOACTOR_HOST_ID"] += "!"


@pytest.mark.parametrize("setup", [exclaim, f"{__name__}:exclaim"])
def test_setup_runs_first_on_every_host(here, setup):
    with moo.init(setup=setup):
        assert [on(host).spawn().host() for host in "abd"] == ["a!", "b!", "d!"]


@pytest.mark.slow
def test_a_driver_on_the_machine_of_a_host_leaves_the_actors_there_to_that(
    whole_cluster, as_driver
):
    with moo.init(as_driver(whole_cluster, "a").address):
        assert [row["name"] for row in moo.hosts()] == ["a", "b"]
        a, other, b = on("a").spawn(), on("a").spawn(), on("b").spawn(bytes(3_000_000))
        assert (a.host(), a.ask(other), a.ask(b), b.ask(a)) == ("a", "a", "b", "a")
        agent = Process.of(whole_cluster.members["a"].pid)
        assert a.pid() in [process.pid for process in agent.descendants()]
        assert len(b.add(bytes(3_000_000))) == 6_000_000


def test_shared_memory_alone_is_refused_before_a_session_of_hosts_starts(
    here, monkeypatch
):
    with pytest.raises(ValueError, match="shared memory alone.*allow tcp, too"):
        moo.init(here.address, transport="shm")
    monkeypatch.setenv("MOOACTOR_TRANSPORT", "shm")
    with pytest.raises(ValueError, match="MOOACTOR_TRANSPORT=shm"):
        moo.init(here.address)


def test_nothing_is_left_on_any_host_when_the_driver_is_killed(here):
    program = (
        "import mooactor as moo\n"
        "from tests.host.where import Where\n"
        "moo.init(local=False)\n"
        "group = moo.on(Where).group(4)\n"
        "print(*group.call(Where.pid).get(), flush=True)\n"
        "group[0].sleep(60)\n"
    )
    hosts = [member.pid for member in here.members.values()]

    def below(*roots):
        return {process for root in roots for process in Process.of(root).descendants()}

    def directories():
        return set(here.directory.glob("*/mooactor-*"))

    old, old_directories = below(*hosts), directories()
    driver = subprocess.Popen(
        [*here.network.on("d"), sys.executable, "-c", program],
        env={**os.environ, "MOOACTOR_HOST_NAME": "e"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    pids = set(map(int, driver.stdout.readline().split()))
    assert len(pids) == 4
    started = below(driver.pid, *hosts) - old
    # actors, a zygote for each host, and the driver's agent
    assert {process.pid for process in started} > pids
    assert [process.name() for process in started].count("moo-zygote") >= 2
    assert len(directories() - old_directories) >= 2
    driver.kill()
    driver.wait()
    driver.stdout.close()

    def left():
        running = [process for process in started if process.is_running()]
        # a spare may have been on its way
        return running or below(*hosts) - old or directories() - old_directories

    assert eventually(lambda: not left()), left()


# -- hosts and brokers that come and go --------------------------------------------


def names_of_hosts():
    return [row["name"] for row in moo.hosts()]


def ask_to_stop(cluster):
    with Client(cluster.address, str(cluster.key_file)) as client:
        (row,) = [row for row in client.rows() if row["name"] == "b"]
        talk = client.open(row)
        talk.post(Stop())
        assert client.wait(lambda: talk.closed is not None, 20)


ORDERLY = {
    "SIGTERM": lambda cluster: cluster.members["b"].process.terminate(),
    "mooactor stop": ask_to_stop,
}


@pytest.mark.parametrize("by", ["SIGTERM", slow("mooactor stop")])
def test_a_host_that_is_ended_in_order_has_left_and_is_not_lost(here, by):
    with moo.init(local=False):
        ref = on("b").spawn().sleep.remote(60)
        host = here.members["b"]
        assert eventually(lambda: len(moo.actors()) == 1 and moo.actors()[0].pid)
        ORDERLY[by](here)

        with pytest.raises(moo.ActorDied) as caught:
            ref.get(timeout=20)
        assert host.process.wait(20) == 0
        assert eventually(lambda: names_of_hosts() == ["a"])
        with pytest.raises(moo.PlacementError) as turned_away:
            on("b").spawn()
        with pytest.raises(moo.PlacementError) as unknown:
            on("c").spawn()

    left = f"has left (mooactor host was ended by {by})"
    cause = caught.value.cause
    assert (cause.kind, cause.host) == ("host", "b")
    assert str(cause) == f"its host b {left}"
    again = "start `mooactor host` there again; the session has 'a' now"
    assert f"host 'b' {left}: {again}" in str(turned_away.value)
    assert "there is no host 'c' in this session; it has 'a'" in str(unknown.value)
    ends = [line for line in host.lines if "leaves" in line]
    assert ends == [f"mooactor host: host b leaves: ended by {by}\n"]


def test_the_death_of_a_host_is_that_of_its_actors_until_it_is_back(here):
    with moo.init(local=False):
        lost, stays = on("b").spawn(), on("a").spawn()
        actor, kept, ref = Process.of(lost.pid()), stays.pid(), lost.keep()
        directory = here.directory / "b"
        assert list(directory.glob("mooactor-*"))
        here.members["b"].kill()

        with pytest.raises(moo.ActorDied) as caught:
            lost.sleep(60)
        assert caught.value.cause.kind == "host"
        assert "its host was lost, b:" in str(caught.value)
        with pytest.raises(moo.ActorDied) as caught:
            stays.echo(ref)
        assert caught.value.cause.kind == "host"
        assert stays.pid() == kept
        assert eventually(lambda: not actor.is_running())
        assert eventually(lambda: not list(directory.glob("mooactor-*")))
        assert eventually(lambda: names_of_hosts() == ["a"])
        said = r"host 'b' was lost \(.+\): start `mooactor host` there again"
        with pytest.raises(moo.PlacementError, match=said):
            on("b").spawn()

        here.start_host("b")
        assert eventually(lambda: names_of_hosts() == ["a", "b"])
        assert on("b").spawn().host() == "b"


def test_the_broker_may_die_and_come_back(here):
    with moo.init(local=False):
        a, b = on("a").spawn(), on("b").spawn()
        here.broker.kill()
        assert (a.ask(b), b.ask(a)) == ("b", "a")
        assert on("b").spawn().host() == "b"

        here.start_broker()

        assert eventually(lambda: len(moo.hosts()) == 2)
        assert a.ask(on("b").spawn()) == "b"
