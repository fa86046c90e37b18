# SPDX-License-Identifier: MIT
"""What actors of another host have started by other means ends with their session."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mooactor as moo
from mooactor.host import leftovers
from mooactor.host.eventloop import EventLoop
from tests.clusters import cluster
from tests.conftest import at_best, eventually
from tests.processes import Process

DAEMON = """
import os, time
if os.fork(): os._exit(0)
os.setsid()
print(os.getpid(), flush=True)
os.close(1)
time.sleep(600)
"""


class Starts:
    """Starts processes outside of its own group, each in one of the usual ways."""

    def pid(self):
        return os.getpid()

    def all(self):
        return [self.in_session(), self.without_mark(), self.fork(), self.orphan()]

    def in_session(self):
        return subprocess.Popen(["sleep", "600"], start_new_session=True).pid

    def without_mark(self):
        sleep = ["/usr/bin/env", "sleep", "600"]
        return subprocess.Popen(sleep, start_new_session=True, env={}).pid

    def fork(self):
        if pid := os.fork():
            return pid
        os.setsid()
        while True:
            time.sleep(600)

    def orphan(self):
        return int(subprocess.run([sys.executable, "-c", DAEMON], stdout=-1).stdout)


PROGRAM = """
import mooactor as moo
from tests.host.test_leftovers import Starts

moo.init({address!r}, local=False)
starts = moo.on(Starts, host="a").spawn()
print(starts.pid(), *starts.all(), flush=True)
{then}
"""


@pytest.fixture(scope="module")
def one():
    with cluster("a") as made:
        yield made


@pytest.fixture
def joined(one, as_driver):
    with moo.init(as_driver(one).address, local=False):
        yield one


class Driver:
    """Another driver, which has an actor on host a that has started processes."""

    def __init__(self, cluster, then="input()"):
        program = PROGRAM.format(address=cluster.address, then=then)
        self.process = subprocess.Popen(
            [*cluster.network.on("d"), sys.executable, "-c", program],
            env={**cluster.environment("d"), "MOOACTOR_HOST_NAME": "e"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        self.actor, *self.others = map(running, map(int, words))
        assert len(self.others) == 4

    def end(self):
        self.process.communicate(b"\n")

    def kill(self):
        self.process.kill()
        self.process.communicate()


def running(pid):
    process = Process.of(pid)
    assert process.is_running()
    return process


def none_of(processes):
    return not any(process.is_running() for process in processes)


@pytest.mark.slow
@pytest.mark.parametrize("how", [Driver.end, Driver.kill])
def test_nothing_of_a_session_that_ends_is_left(one, how):
    def seconds():
        driver = Driver(one)
        how(driver)
        began = time.monotonic()
        assert eventually(lambda: none_of([driver.actor, *driver.others]), 20)
        return time.monotonic() - began

    assert at_best(seconds, 2.0)


@pytest.mark.slow
def test_nothing_is_left_of_an_actor_that_the_session_has_killed(one):
    driver = Driver(one, "input(); moo.kill(starts); print(flush=True); input()")
    driver.process.stdin.write(b"\n")
    driver.process.stdin.flush()
    driver.process.stdout.readline()
    assert not driver.actor.is_running()
    assert all(process.is_running() for process in driver.others)
    driver.end()
    assert eventually(lambda: none_of(driver.others), 20)


@pytest.mark.slow
def test_nothing_is_left_of_an_actor_that_died_by_itself(one):
    driver = Driver(one)
    os.kill(driver.actor.pid, 9)
    assert eventually(lambda: not driver.actor.is_running())
    in_session, without_mark, *more = driver.others
    driver.end()
    assert eventually(lambda: none_of([in_session, *more]), 20)
    without_mark.kill()  # nothing tells whose it is: it would end with the host


@pytest.mark.slow
def test_a_host_that_is_killed_leaves_nothing_with_a_mark():
    stays = subprocess.Popen(["sleep", "600"], start_new_session=True)

    def seconds():
        with cluster("a") as own:
            driver = Driver(own)
            in_session, without_mark, *more = driver.others
            began = time.monotonic()
            own.members["a"].kill()
            assert eventually(lambda: none_of([driver.actor, in_session, *more]), 20)
            took = time.monotonic() - began
            without_mark.kill()  # nothing tells whose it is
            driver.kill()
        return took

    assert at_best(seconds, 3.0)
    assert stays.poll() is None
    stays.kill()
    stays.wait()


ALONE = """
import mooactor as moo
from mooactor.host.session import current_session
from tests.host.test_leftovers import Starts

moo.init()
session, starts = current_session(), moo.spawn(Starts)
print(session.directory, session._agent.pid, starts.pid(), *starts.all(), flush=True)
input()
"""


@pytest.mark.parametrize("killed", ["agent", "agent and driver"])
def test_an_agent_of_a_driver_that_is_killed_leaves_nothing_with_a_mark(killed):
    def seconds():
        driver = subprocess.Popen(
            [sys.executable, "-c", ALONE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        words = driver.stdout.readline().split()
        directory = Path(os.fsdecode(words[0]))
        agent, actor, *others = map(running, map(int, words[1:]))
        in_session, without_mark, *more = others
        began = time.monotonic()
        if killed == "agent and driver":
            os.kill(driver.pid, signal.SIGSTOP)  # so that neither sees the other's end
        agent.kill()
        if killed == "agent and driver":
            driver.kill()
        assert eventually(lambda: none_of([agent, actor, in_session, *more]), 20)
        assert eventually(lambda: not directory.exists(), 20)
        took = time.monotonic() - began
        without_mark.kill()  # nothing tells whose it is
        driver.communicate(b"\n")
        return took

    assert at_best(seconds, 3.0)


@pytest.mark.slow
def test_a_session_ends_without_harm_to_another_one_on_the_same_host(joined):
    starts, killed = (moo.on(Starts, host="a").spawn() for _ in range(2))
    here = [running(pid) for pid in (starts.pid(), *starts.all(), *killed.all())]
    moo.kill(killed)
    for end in (Driver.end, Driver.kill):
        driver = Driver(joined)
        end(driver)
        assert eventually(lambda d=driver: none_of([d.actor, *d.others]), 20)
    time.sleep(1.5)  # the agent has looked for the last time

    assert all(process.is_running() for process in here)
    assert starts.pid() == here[0].pid
    moo.shutdown()
    assert eventually(lambda: none_of(here), 20)


def test_a_later_process_with_the_same_pid_is_spared():
    def kill(started):
        process = leftovers._Process.of(sleep.pid)
        dataclasses.replace(process, started=started).kill()

    with subprocess.Popen(["sleep", "600"], start_new_session=True) as sleep:
        started = Process.of(sleep.pid).started
        kill(started - 1)
        with pytest.raises(subprocess.TimeoutExpired):
            sleep.wait(0.1)
        kill(started)
        assert sleep.wait(20) == -9


def test_what_cannot_be_known_later_is_noted_while_it_lives():
    ours = leftovers.Leftovers(EventLoop())
    with_mark = {**os.environ, **ours.environment}
    processes = [
        subprocess.Popen(["sleep", "600"], start_new_session=True, env=env)
        for env in (with_mark, None)
    ]
    ours.note(os.getpid())
    noted = {process.pid for process in ours._noted}
    assert processes[1].pid in noted and processes[0].pid not in noted

    for process in processes:
        process.kill()
        process.wait()
    ours.note(os.getpid())
    assert processes[1].pid not in {process.pid for process in ours._noted}
