# SPDX-License-Identifier: MIT
"""Processes that actors of another host have started end with their session."""

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
from tests.conftest import eventually
from tests.processes import Process

DAEMON = """
import os, signal
if os.fork(): os._exit(0)
os.setsid()
print(os.getpid(), flush=True)
os.close(1)
signal.pause()
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
            signal.pause()

    def orphan(self):
        return int(subprocess.run([sys.executable, "-c", DAEMON], stdout=-1).stdout)


PROGRAM = """
import mooactor as moo
from tests.host.test_leftovers import Starts

moo.init(local=False)
starts = moo.on(Starts, host="a").spawn()
print(starts.pid(), *starts.all(), flush=True)
{then}
"""


class Driver:
    """Another driver, which has an actor on host a that has started processes."""

    def __init__(self, cluster, then="input()"):
        program = PROGRAM.format(then=then)
        self.process = subprocess.Popen(
            [*cluster.network.on("d"), sys.executable, "-c", program],
            env={**os.environ, "MOOACTOR_HOST_NAME": "e"},
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


ALONE = """
import mooactor as moo
from mooactor.host.session import current_session
from tests.host.test_leftovers import Starts

moo.init()
session, starts = current_session(), moo.spawn(Starts)
print(session.directory, session._agent.pid, starts.pid(), *starts.all(), flush=True)
input()
"""


def test_an_agent_and_its_driver_that_are_killed_leave_nothing_with_a_mark():
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
    os.kill(driver.pid, signal.SIGSTOP)  # so that neither sees the other's end
    agent.kill()
    driver.kill()
    assert eventually(lambda: none_of([agent, actor, in_session, *more]))
    assert eventually(lambda: not directory.exists())
    without_mark.kill()  # nothing tells whose it is
    driver.communicate(b"\n")


@pytest.mark.slow
def test_a_session_ends_without_harm_to_another_one_on_the_same_host(here):
    with moo.init(local=False):
        starts, killed = (moo.on(Starts, host="a").spawn() for _ in range(2))
        own = [running(pid) for pid in (starts.pid(), *starts.all(), *killed.all())]
        moo.kill(killed)
        for end in (Driver.end, Driver.kill):
            driver = Driver(here)
            end(driver)
            assert eventually(lambda d=driver: none_of([d.actor, *d.others]))
        time.sleep(1.5)  # until the agent has looked for the last time

        assert all(process.is_running() for process in own)
        assert starts.pid() == own[0].pid
    assert eventually(lambda: none_of(own))


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
