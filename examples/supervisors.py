# SPDX-License-Identifier: MIT
"""Supervisors: actors that depend on each other are started, restarted and stopped
together.

Run it: `python examples/supervisors.py`
"""

import os
import signal

import mooactor as moo
from mooactor import actor, method


@actor
class Replay:
    """Keeps samples. They are lost when it dies: it takes no snapshots."""

    def __init__(self) -> None:
        self.samples: list[int] = []

    @method
    def add(self, sample: int) -> int:
        self.samples.append(sample)
        return len(self.samples)

    def crash(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)


@actor
class Player:
    """Plays for the replay memory, which must be there before it."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.replay = moo.lookup("replay")

    @method
    def play(self) -> int:
        size: int = self.replay.add(self.rank)
        return size


def main() -> None:
    with moo.init():
        replay = moo.on(Replay, name="replay").child()
        players = [moo.child(Player, rank) for rank in range(2)]
        # Each child depends on those before it, so a death restarts those after it.
        team = moo.spawn(
            moo.Supervisor, [replay, *players], strategy="rest_for_one", max=5
        )
        first, second = (team.child(player) for player in players)  # typed handles
        print("played:", first.play(), second.play())

        try:
            team.child(replay).crash()
        except moo.ActorRestarted as error:
            print("the replay memory died:", error.cause)
        # The same handles reach the new processes. The memory begins anew.
        print("played:", first.play.options(retries=5)())

        moo.stop(team)  # the last child first
        print("left:", moo.actors())


if __name__ == "__main__":
    main()
