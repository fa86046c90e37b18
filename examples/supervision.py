# SPDX-License-Identifier: MIT
"""Supervision: an actor is killed, its death has a cause, and it comes back.

Run it: `python examples/supervision.py`
"""

import os
import signal

import mooactor as moo
from mooactor import actor, method


@actor
class Counter:
    """Keeps its count through restarts: `__snapshot__` and `__restore__` carry it."""

    def __init__(self) -> None:
        self.count = 0

    @method
    def add(self, n: int) -> int:
        self.count += n
        return self.count

    def crash(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    def fail(self) -> None:
        raise ValueError("a bug in a method harms only its own call")

    def __snapshot__(self) -> int:
        return self.count

    def __restore__(self, count: int) -> None:
        self.count = count


def main() -> None:
    with moo.init():
        policy = moo.Restart(max=3, within=60)
        counter = moo.on(Counter, name="counter", restart=policy).spawn()
        counter.add(40)
        events = moo.monitor(counter)
        print(type(next(events)).__name__)

        try:
            counter.fail()
        except ValueError as error:
            print("its own type:", error)

        try:
            counter.crash()
        except moo.ActorRestarted as error:
            print("died:", error.cause)
        print(type(next(events)).__name__, "then", type(next(events)).__name__)

        # the same handle, the same state, another process
        print("counts on:", counter.add(2))
        print("found by name:", moo.lookup("counter").add(0))

        moo.stop(counter)
        print(type(next(events)).__name__)
        try:
            counter.add(1)
        except moo.ActorDied as error:
            print("gone:", error.cause)


if __name__ == "__main__":
    main()
