# SPDX-License-Identifier: MIT
"""The limit on open files is raised, and nobody dies of it."""

from __future__ import annotations

import json
from pathlib import Path

from mooactor.process import files
from tests.process import programs

SCRIPT = """
    import json, os, resource
    import numpy as np
    import mooactor as moo

    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 100))

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
                except moo.PlacementError:
                    pass  # it has not heard yet who is dead
            return self.kept

    said, peers = {}, []
    with moo.init(logs=False):
        peers.append(moo.spawn(Peer))
        (agent,) = children(os.getpid())
        said["limits"] = [limit(), limit_of(agent), peers[0].limit()]
        said["limits"] += [limit_of(pid) for pid in children(agent)]
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
        # Everybody has to do with everybody.
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


def test_at_the_limit_actors_are_refused_and_nobody_dies(tmp_path: Path) -> None:
    done = programs.run(programs.write(tmp_path / "main.py", SCRIPT))
    assert done.returncode == 0, done.stderr
    assert "Too many open files" not in done.stderr
    said = json.loads(done.stdout)
    # The soft limit is the hard one in every process: the driver, the agent, an actor,
    # and the agent's children.
    assert len(said["limits"]) >= 5
    assert set(said["limits"]) == {100}
    assert said["actors"] == files.capacity(100) == 6
    assert said["most"] < 100
    assert said["given"] == [1.0] * 6
    for error in (said["error"], said["group"]):
        assert "limit of 100 open files" in error and "ulimit -Hn" in error
    assert said["after group"] == 1  # of which none runs
    # Two actors have started three each, which is two too many for the session.
    assert said["left"] == 6 and len(said["errors"]) == 2
    assert all("limit of 100 open files" in error for error in said["errors"])


def test_zeromq_is_allowed_a_socket_for_each_actor() -> None:
    from mooactor.control import messenger

    assert files.capacity(1 << 30) < messenger.MAX_SOCKETS
