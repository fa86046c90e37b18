# SPDX-License-Identifier: MIT
"""What goes wrong between hosts: how soon it is known, and what must not be."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

import mooactor as moo
from tests.clusters import cluster
from tests.conftest import eventually
from tests.host.where import on
from tests.pace import Pace
from tests.process import programs
from tests.processes import stop

psutil = pytest.importorskip("psutil")

pytestmark = pytest.mark.slow

PATIENCE_S = 3.0
#: What a machine that is busy with other things may take beside.
SLACK_S = 3.0


class Counter:
    """Its count survives it."""

    def __init__(self, mark):
        self.count, self.mark = 0, mark

    def add(self, seconds=0.0):
        time.sleep(seconds)
        self.count += 1
        open(f"{self.mark}-{self.count}", "w").close()
        return self.count

    def __snapshot__(self):
        return self.count

    def __restore__(self, count):
        self.count = count


class Parent:
    """Has an actor of its own on the same host."""

    def adopt(self):
        self.child = moo.on(Counts, host="b").spawn()


class Counts:
    """Keeps what it was told, in order."""

    def __init__(self):
        self.told = []

    def tell(self, number):
        self.told.append(number)
        return number

    def all(self):
        return self.told

    def size(self, array):
        return array.nbytes

    def ones(self, nbytes):
        return np.ones(nbytes, np.uint8)

    def hold_the_gil(self, seconds):
        import re

        end = time.monotonic() + seconds
        while time.monotonic() < end:
            re.match(r"(a?){24}a{24}", "a" * 24)
        return "held"


@pytest.fixture
def net(monkeypatch):
    """Hosts a and b, and this process as a driver on d."""
    with cluster("ab") as made:
        for key, value in made.environment("d").items():
            monkeypatch.setenv(key, value)
        monkeypatch.setenv("MOOACTOR_HOST_NAME", "d")
        with made.network.inside("d"):
            yield made


def time_to_death(handle):
    """Seconds until a call to it ends, and the error that it ends with."""
    with Pace() as pace:
        with pytest.raises(moo.ActorDied) as caught:
            handle.sleep(60)
        return pace.seconds(), caught.value


def test_a_pulled_cable_is_a_death_after_the_patience_on_both_sides(net):
    with moo.init(net.address, local=False):
        lost, stays = on("b").spawn(), on("a").spawn()
        pid = lost.pid()
        assert stays.host() == "a"
        with net.network.cut_off("b"):
            seconds, error = time_to_death(lost)

            assert error.cause.kind == "host"
            assert "nothing was heard" in str(error)
            assert seconds < PATIENCE_S + SLACK_S
            gone = eventually(lambda: not psutil.pid_exists(pid), 2 * PATIENCE_S)
            assert gone, "the host that is cut off ends the session's actors"
            assert stays.host() == "a"


@pytest.mark.parametrize(("source", "target"), [("b", "d"), ("d", "b")])
def test_a_black_hole_in_one_direction_is_a_death(net, source, target):
    with moo.init(net.address, local=False):
        lost = on("b").spawn()
        pid = lost.pid()
        with net.network.swallowing(source, target):
            seconds, error = time_to_death(lost)

            assert error.cause.kind == "host"
            assert seconds < PATIENCE_S + SLACK_S
            assert eventually(lambda: not psutil.pid_exists(pid), 2 * PATIENCE_S)


def test_a_partition_that_heals_loses_nothing_and_repeats_nothing(net):
    with moo.init(net.address, local=False):
        there = moo.on(Counts, host="b").spawn()
        sent = [there.tell.remote(0)]
        sent[0].get()
        with net.network.cut_off("b"):
            until = time.monotonic() + 1.2
            while time.monotonic() < until:
                sent.append(there.tell.remote(len(sent)))
                time.sleep(0.05)

        answers = [ref.get(timeout=30) for ref in sent]

        assert answers == list(range(len(sent)))
        assert there.all() == answers


def test_who_comes_back_too_late_is_not_heard(net):
    with moo.init(net.address, local=False):
        old = on("b", name="one").spawn()
        pid = old.pid()
        with net.network.cut_off("b"):
            _, error = time_to_death(old)
            assert error.cause.kind == "host"

        def again():
            try:
                return on("b", name="one").spawn().pid()
            except (moo.MooError, ValueError):
                return 0

        assert eventually(lambda: again() not in (0, pid), 20)
        with pytest.raises(moo.ActorDied):
            old.pid()


def test_a_killed_host_agent_is_known_at_once(net):
    with moo.init(net.address, local=False):
        lost = on("b").spawn()
        lost.pid()
        net.members["b"].kill()

        seconds, error = time_to_death(lost)

        assert error.cause.kind == "host"
        assert seconds < PATIENCE_S


def test_a_host_is_lost_with_an_actor_and_one_of_its_own_that_is_not_born_yet(net):
    with moo.init(net.address, local=False):
        parent, stays = moo.on(Parent, host="b").spawn(), on("a").spawn()
        assert parent.adopt() is None
        stop(net.zygote("b"))  # it forks nobody
        parent.adopt()
        net.members["b"].kill()

        with pytest.raises(moo.ActorDied):
            parent.adopt()
        assert stays.host() == "a"


def test_a_killed_actor_of_another_host_is_known_at_once(net):
    with moo.init(net.address, local=False):
        lost = on("b").spawn()
        os.kill(lost.pid(), signal.SIGKILL)

        seconds, error = time_to_death(lost)

        assert error.cause.signal == signal.SIGKILL
        assert seconds < PATIENCE_S


def test_a_host_that_is_stopped_for_two_seconds_is_not_dead(net):
    with moo.init(net.address, local=False):
        handle = on("b").spawn()
        pid = handle.pid()
        agent = net.members["b"].pid
        stop(agent)
        time.sleep(2.0)
        os.kill(agent, signal.SIGCONT)

        assert handle.pid() == pid
        assert on("b").spawn().host() == "b"
        assert handle.pid() == pid


ASKS_FOR_ALL = """
    import sys
    import mooactor as moo

    class Idle:
        pass

    with moo.init(sys.argv[1], local=False):
        try:
            moo.on(Idle, host="b", num_cpus=int(sys.argv[2])).spawn()
            print("given")
        except moo.PlacementError as error:
            print(error)
"""


def test_a_host_that_stood_still_keeps_what_is_reserved_after_its_return(net, tmp_path):
    with moo.init(net.address, local=False):
        (cpus,) = [row["cpus"] for row in moo.hosts() if row["name"] == "b"]
        handle = on("b", num_cpus=cpus, restart=moo.Restart(max=100)).spawn()
        old, agent = handle.pid(), net.members["b"].pid
        sleeps = handle.sleep.remote(60)
        stop(agent)
        with pytest.raises((moo.ActorRestarted, moo.ActorDied)):
            sleeps.get(timeout=60)
        os.kill(agent, signal.SIGCONT)

        assert handle.pid.options(retries=100).remote().get(timeout=60) != old
        # So the agent has closed what it had of the session before.
        assert eventually(lambda: not psutil.pid_exists(old), 2 * PATIENCE_S)
        program = programs.write(tmp_path / "asks.py", ASKS_FOR_ALL)
        done = programs.run(program, net.address, str(cpus))
        assert "all is reserved" in done.stdout, done


def test_no_caller_has_seen_a_state_that_the_loss_of_a_host_undoes(net, tmp_path):
    with moo.init(net.address, local=False):
        restart = moo.Restart(max=100)
        counter = moo.on(Counter, host="b", restart=restart).spawn(tmp_path / "ran")
        assert [counter.add(), counter.add()] == [1, 2]
        stop(net.members["b"].pid)  # the actor goes on
        third = counter.add.remote()
        assert eventually((tmp_path / "ran-3").exists)
        net.members["b"].kill()
        with pytest.raises((moo.ActorRestarted, moo.ActorDied)):
            third.get(timeout=60)
        net.start_host("b")

        assert counter.add.options(retries=10).remote().get(timeout=60) == 3


def test_a_state_is_kept_when_the_callers_deadline_has_passed(net, tmp_path, capfd):
    with moo.init(net.address, local=False):
        restart = moo.Restart(max=100)
        counter = moo.on(Counter, host="b", restart=restart).spawn(tmp_path / "ran")
        assert counter.add() == 1
        with pytest.raises(moo.CallTimeout):
            counter.add.options(timeout=5.0).remote(5.5).get()
        assert counter.add() == 3
        assert "could not be saved" not in capfd.readouterr().err


def test_an_actor_that_holds_the_gil_is_not_dead(net):
    with moo.init(net.address, local=False):
        handle = moo.on(Counts, host="b").spawn()

        assert handle.hold_the_gil(6.0) == "held"


def test_a_lossy_network_kills_nobody(net):
    if why := net.network.why_none_lost():
        pytest.skip(why)
    with moo.init(net.address, local=False):
        there = moo.on(Counts, host="b").spawn()
        there.tell(0)
        net.network.lose("b", 50)
        net.network.lose("d", 50)
        refs = [there.tell.remote(number) for number in range(1, 200)]
        until = time.monotonic() + 4.0

        assert [ref.get(timeout=60) for ref in refs] == list(range(1, 200))
        while time.monotonic() < until:
            there.all()
        assert there.all() == list(range(200))
        net.network.lose_none("b")
        net.network.lose_none("d")


def test_a_saturated_link_kills_nobody_and_small_calls_are_answered(net):
    nbytes = 32 << 20  # more than five seconds at 50 Mbit/s
    with moo.init(net.address, local=False):
        busy, asked = (moo.on(Counts, host="b").spawn() for _ in range(2))
        assert (busy.tell(0), asked.all()) == (0, [])
        with net.network.slow("b", mbit=50):
            before = net.network.received("b"), net.network.sent("b")
            began = time.monotonic()
            there = busy.size.remote(np.ones(nbytes, np.uint8))
            back = asked.ones.remote(nbytes)
            answered = 0
            while not (there.done() and back.done()):
                assert asked.tell.remote(answered).get(timeout=60) == answered
                answered += 1
            seconds = time.monotonic() - began
            after = net.network.received("b"), net.network.sent("b")

        assert there.get() == nbytes and back.get().sum() == nbytes
        assert all(now - then > nbytes for now, then in zip(after, before))
        # Some hundred, unless they wait behind the arrays.
        assert seconds > PATIENCE_S and answered > 5
        assert (busy.all(), asked.all()) == ([0], list(range(answered)))
        assert {row["name"] for row in moo.hosts()} == {"a", "b"}


def test_a_host_that_has_lost_its_driver_ends_the_actors_by_itself(net):
    with moo.init(net.address, local=False):
        pids = [on("b").spawn().pid() for _ in range(3)]
        directory = net.directory / "b"
        with net.network.cut_off("d"):
            assert eventually(
                lambda: not any(map(psutil.pid_exists, pids)), 3 * PATIENCE_S
            )
            assert eventually(lambda: not list(directory.glob("mooactor-*")))
