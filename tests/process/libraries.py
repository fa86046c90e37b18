# SPDX-License-Identifier: MIT
"""Actors that say how many threads libraries would use. Importing this loads none."""

from __future__ import annotations

import os
import sys

import mooactor as moo
from mooactor.process.actor import threads
from tests.processes import Process

Numbers = dict[str, int]


@moo.actor
class Asks:
    """Its methods run in the thread in which it was made."""

    def has(self, module: str) -> bool:
        return module in sys.modules

    def variables(self, *names: str) -> list[str | None]:
        return [os.environ.get(name) for name in names]

    def numbers(self) -> Numbers:
        """The threads that each loaded library would use."""
        threads.look()
        found = {one.file: int(one.count()) for one in threads._loaded.values()}
        if "torch" in sys.modules:
            import torch

            found["torch"] = torch.get_num_threads()
        return found

    def number_of_numpy(self) -> int:
        """That of the BLAS that it brings along."""
        import numpy

        assert numpy.ones(1)
        (number,) = set(self.numbers().values())
        return number

    def threads_of_the_zygote(self) -> int:
        zygote = Process.of(os.getppid()).zygote()
        return len(os.listdir(f"/proc/{zygote.pid}/task"))
