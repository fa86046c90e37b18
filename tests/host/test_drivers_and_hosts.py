# SPDX-License-Identifier: MIT
"""Sessions on several hosts whose driver, host or broker goes, and comes back."""

from __future__ import annotations

import os
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

import mooactor as moo
from tests.conftest import eventually
from tests.host.where import on
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


def test_a_host_that_is_ended_in_order_has_left_and_is_not_lost(here):
    with moo.init(local=False):
        ref = on("b").spawn().sleep.remote(60)
        host = here.members["b"]
        assert eventually(lambda: len(moo.actors()) == 1 and moo.actors()[0].pid)
        host.process.terminate()

        with pytest.raises(moo.ActorDied) as caught:
            ref.get(timeout=20)
        assert host.process.wait(20) == 0
        assert eventually(lambda: names_of_hosts() == ["a"])
        with pytest.raises(moo.PlacementError) as turned_away:
            on("b").spawn()

    cause = caught.value.cause
    assert (cause.kind, cause.host, cause.ended) == ("host", "b", True)
    assert str(cause) == "its host b has left"
    assert "there is no host 'b' in this session; it has 'a'" in str(turned_away.value)


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
        with pytest.raises(moo.PlacementError, match="there is no host 'b'"):
            on("b").spawn()

        here.start_host("b")
        assert eventually(lambda: names_of_hosts() == ["a", "b"])
        assert on("b").spawn().host() == "b"
