# SPDX-License-Identifier: MIT
"""A forked child keeps what it could see, whatever its parent does meanwhile."""

from __future__ import annotations

import os
import signal
import warnings
from typing import Any

import numpy as np

import mooactor as moo
from tests.actors.keeper import holdings
from tests.conftest import eventually

SIZE = 1 << 20
ROUNDS = 30


class Child:
    """A forked child that tells what it sees in arrays when it is asked."""

    def __init__(self, *arrays: Any) -> None:
        asked, self._ask = os.pipe()
        self._answer, answers = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # there are threads
            self.pid = os.fork()
        if self.pid == 0:
            try:
                while os.read(asked, 1) == b"?":
                    os.write(answers, b"".join(map(values_in, arrays)))
            finally:
                os._exit(0)
        os.close(asked)
        os.close(answers)

    def sees(self) -> bytes:
        os.write(self._ask, b"?")
        return os.read(self._answer, 16)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._ask)
        os.close(self._answer)


def values_in(array: Any) -> bytes:
    """Each value in an array, once."""
    return bytes(np.unique(array))


@moo.actor
class Makes:
    def make(self, number: int) -> Any:
        return np.full(SIZE, number, np.uint8)

    def take(self, array: Any) -> None: ...

    def used(self) -> int:
        return int(moo.stats()["memory"]["used_bytes"])


def test_what_a_child_of_the_driver_sees_stays(spawn: Any) -> None:
    actor = spawn(Makes)
    received = actor.make(7)
    made = moo.empty(SIZE, "uint8")
    made[:] = 8
    actor.take(made)
    stored = moo.put(np.full(SIZE, 9, np.uint8))
    view = stored.get()
    child = Child(received, made, view)
    try:
        made[:] = 10  # a write here is this process's own
        del received, made, stored, view
        for _ in range(ROUNDS):
            assert values_in(actor.make(99)) == b"c"
            actor.take(np.full(SIZE, 98, np.uint8))
            assert child.sees() == b"\x07\x08\x09"
        assert actor.used() == SIZE
    finally:
        child.kill()
    assert eventually(lambda: holdings()["used"] == actor.used() == 0)
