# SPDX-License-Identifier: MIT
"""The loop in the docstring of `LearnerGroup`, run as it is written, by a member that
ends at a random moment: killed, or leaving between any two of the loop's calls.
"""

from __future__ import annotations

import inspect
import os
import random
import signal
import textwrap
import threading
from typing import Any

import numpy as np

import mooactor as moo


def documented_loop() -> str:
    """The source in the docstring; what it leaves to its reader are names in it."""
    text = inspect.getdoc(moo.LearnerGroup) or ""
    return textwrap.dedent(text.partition("::\n")[2])


class _LeavesNow(BaseException):
    """Out of the loop, wherever it is."""


class Looper:
    """The loop's surroundings: one weight, whose value is the number of steps.

    The gradient of step k is k on every member. So if one member's call were reduced
    with another's next, or over a member that is not there, a mean would show it.
    """

    def __init__(self) -> None:
        self.parameters = [np.zeros(1), np.zeros(3, np.float32)]
        self._random = random.Random()
        self._calls_left = -1  # for ever

    def __bool__(self) -> bool:  # `while training`
        self._maybe_leave()
        return True

    def _maybe_leave(self) -> None:
        self._calls_left -= 1
        if self._calls_left == 0:
            raise _LeavesNow

    def compute_gradients(self, parameters: list[Any]) -> list[Any]:
        self._maybe_leave()
        step = parameters[0][0] + 1
        assert (parameters[1] == parameters[0][0]).all(), parameters
        return [np.full(9000, step), np.full(3, step, np.float32)]

    def step(self, gradients: list[Any]) -> None:  # `optimizer.step`
        step = self.parameters[0][0] + 1
        for gradient, parameter in zip(gradients, self.parameters, strict=True):
            assert (gradient == step).all(), (gradient, step)
            parameter += 1
        self._maybe_leave()

    def loop(self, name: str, seed: int, end: str) -> float:
        """The weight when this member left.

        Args:
          end: "killed" or "leaves", after a random while; or "stays".
        """
        self._random.seed(seed)
        source = documented_loop().replace('"learners"', repr(name))
        if end == "leaves":
            self._calls_left = self._random.randrange(1, 300)
        if end == "killed":
            wait_s = self._random.uniform(0, 0.3)
            threading.Timer(wait_s, os.kill, (os.getpid(), signal.SIGKILL)).start()
        names = {
            "moo": moo,
            "training": self,
            "parameters": self.parameters,
            "compute_gradients": self.compute_gradients,
            "optimizer": self,
        }
        try:
            exec(source, names)
        except _LeavesNow:
            group: Any = names["group"]
            group.leave()
        return float(self.parameters[0][0])
