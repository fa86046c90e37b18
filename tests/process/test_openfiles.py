# SPDX-License-Identifier: MIT
"""The limit on open files is raised, and nobody dies of it."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.process import openfiles
from tests.process import programs

SCRIPT = """
    import json, os, resource, sys, time
    import numpy as np
    import mooactor as moo

    soft, hard, own = map(int, sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    files = [open(os.devnull) for _ in range(own)]

    def limit():
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def limit_of(pid):
        with open(f"/proc/{pid}/limits") as file:
            return int(next(x for x in file if x.startswith("Max open")).split()[3])

    def children(pid):
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]

    @moo.actor(max_concurrency=4)
    class Peer:
        def limit(self): return limit()
        def give(self): return np.ones(1 << 17)
        def take(self, array): return float(array[0])
        async def meet(self, others):
            for other in others:
                await other.take.remote(await other.give.remote())
                await other.take.remote(np.ones(1 << 17))
            return len(os.listdir("/proc/self/fd"))
        def recruit(self, count):
            self.kept = []
            while len(self.kept) < count:
                try:
                    self.kept.append(moo.spawn(Peer))
                except moo.PlacementError:  # it has not heard yet who is dead
                    time.sleep(0.01)
            return self.kept

    said, peers = {}, []
    with moo.init(logs=False):
        peers.append(moo.spawn(Peer))
        (agent,) = children(os.getpid())
        said["limits"] = [limit(), limit_of(agent), peers[0].limit()]
        said["limits"] += [limit_of(pid) for pid in children(agent)]
        if own == 0:
            try:
                moo.on(Peer).group(1000)
            except moo.PlacementError as error:
                said["group"] = str(error)
            said["after group"] = len(moo.actors())
        try:
            while True:
                peers.append(moo.spawn(Peer))
        except moo.PlacementError as error:
            said["error"] = str(error)
        said["actors"] = len(peers)
        if own == 0:  # everybody has to do with everybody
            said["most"] = max(moo.get([peer.meet.remote(peers) for peer in peers]))
        said["given"] = [peer.take(peer.give()) for peer in peers]
        for peer in peers[2:]:
            moo.kill(peer)
        errors = []
        for recruit in [*peers[0].recruit(3), *peers[1].recruit(3)]:
            try:
                recruit.give()
            except moo.PlacementError as error:
                errors.append(str(error))
        said["errors"] = errors
        said["left"] = len(moo.actors())
    print(json.dumps(said))
"""


def future(directory: Path, *limits: int) -> Any:
    path = programs.write(directory / "main.py", SCRIPT)
    done = programs.run(path, *map(str, limits))
    assert done.returncode == 0, done.stderr
    assert "Too many open files" not in done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return future(tmp_path_factory.mktemp("limits"), 64, 100, 0)


def test_the_soft_limit_becomes_the_hard_one_in_every_process(said: Any) -> None:
    assert len(said["limits"]) >= 5  # driver, agent, an actor, and the agent's children
    assert set(said["limits"]) == {100}


def test_at_the_limit_actors_are_refused_and_nobody_dies(said: Any) -> None:
    assert said["actors"] == openfiles.capacity(100) == 6
    assert said["most"] < 100
    assert said["given"] == [1.0] * 6
    for error in (said["error"], said["group"]):
        assert "limit of 100 open files" in error and "ulimit -Hn" in error
    assert said["after group"] == 1  # of which none runs
    # Two actors have started three each, which is two too many for the session.
    assert said["left"] == 6 and len(said["errors"]) == 2
    assert all("limit of 100 open files" in error for error in said["errors"])


@pytest.mark.slow
def test_files_of_the_program_itself_leave_room_for_fewer_actors(
    tmp_path: Path,
) -> None:
    said = future(tmp_path, 400, 400, 280)
    assert 8 <= said["actors"] <= openfiles.capacity(400, 280) == 15
    assert "are open for other purposes" in said["error"]
    assert said["given"] == [1.0] * said["actors"]


def test_a_limit_that_is_raised_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    for before, after in [
        ((1024, 4096), (4096, 4096)),
        ((4096, 4096), None),
        ((1024, resource.RLIM_INFINITY), (1 << 20, resource.RLIM_INFINITY)),
        ((1 << 21, 1 << 30), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ]:
        monkeypatch.setattr(resource, "getrlimit", lambda _, before=before: before)
        openfiles.raise_limit()
        assert raised == [after] * (after is not None)
        raised.clear()


def test_what_an_actor_costs_is_what_was_measured(no_session: None) -> None:
    """The figure that the limits, the doctor and the documentation build on."""
    count = 6

    @moo.actor
    class Peer:
        def swap(self, array: Any) -> Any:
            return array + 1

    import numpy as np

    def opened(pid: int) -> int:
        return len(os.listdir(f"/proc/{pid}/fd"))

    with moo.init(logs=False):
        moo.spawn(Peer).swap(np.ones(1 << 17))
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            pids = [int(word) for word in file.read().split()]
        (agent,) = [pid for pid in pids if "moo-agent" in _name(pid)]
        before = [opened(os.getpid()), opened(agent)]
        peers = [moo.spawn(Peer) for _ in range(count)]
        for peer in peers:
            peer.swap(np.ones(1 << 17))
        after = [opened(os.getpid()), opened(agent)]
    here, there = ((b - a) / count for a, b in zip(before, after, strict=True))
    assert here <= 6 and round(there) == 3  # a line to a spare process comes and goes


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text()


def test_zeromq_is_allowed_a_socket_for_each_actor() -> None:
    from mooactor.control import messenger

    assert openfiles.capacity(1 << 30) < messenger.MAX_SOCKETS
