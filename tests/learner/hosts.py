# SPDX-License-Identifier: MIT
"""Members of learner groups on several hosts, for the tests.

`Ranks` are processes in network namespaces which are members of one group and do what
they are told; this module is also the program that they run. They know nothing of
sessions: a group needs its segment only.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

from mooactor.tensors import operations
from mooactor.tensors.collective import SharedGroup, segment_bytes
from mooactor.tensors.network import choose
from mooactor.tensors.operations import Outcome, SharedWork


class Ranks:
    """Processes in one group, in rank order.

    Args:
      where: each one's namespace.
      hosts: each one's host identity.
      binds: each one's address to listen on; by default all.
      env: environment variables on top of the test's.
    """

    def __init__(
        self,
        where: list[str],
        hosts: list[str],
        *,
        timeout: float = 30.0,
        binds: list[str] | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        self._segment = os.memfd_create("group")
        os.ftruncate(self._segment, segment_bytes())
        self.processes: list[subprocess.Popen[str]] = []
        try:
            self._start(where, hosts, timeout, binds or [""] * len(where), env or {})
        except BaseException:
            self.close()
            raise

    def _start(
        self,
        where: list[str],
        hosts: list[str],
        timeout: float,
        binds: list[str],
        env: dict[str, str],
    ) -> None:
        for namespace, host, bind in zip(where, hosts, binds, strict=True):
            numbers = (self._segment, len(self.processes), len(where), timeout)
            self.processes.append(
                subprocess.Popen(
                    [
                        *("ip", "netns", "exec", namespace),
                        *(sys.executable, "-m", __name__, host, bind),
                        *map(str, numbers),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    pass_fds=[self._segment],
                    env={**os.environ, **env},
                )
            )
            # Ranks are given in the order of joining.
            assert self._answer(len(self.processes) - 1) == "joined"
        assert self.answers() == ["complete"] * len(where)

    def tell(self, *command: Any) -> None:
        """Have all that live begin to do something."""
        for process in self.processes:
            if process.poll() is None:
                print(json.dumps(command), file=process.stdin, flush=True)

    def _answer(self, rank: int) -> Any:
        out = self.processes[rank].stdout
        assert out is not None
        return json.loads(out.readline() or "null")

    def answers(self) -> list[Any]:
        """What each said; None from the dead."""
        return [self._answer(rank) for rank in range(len(self.processes))]

    def do(self, *command: Any) -> list[Any]:
        self.tell(*command)
        return self.answers()

    def close(self) -> None:
        """Have them leave; whoever does not is killed."""
        for process in self.processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()
        os.close(self._segment)


# -- what a rank does ------------------------------------------------------


def finish(work: SharedWork) -> Outcome:
    """Wait until it is over, well or not."""
    while (outcome := work.wait(0.1)) is None:
        pass
    return outcome


def barrier(group: SharedGroup) -> Outcome:
    """Wait for all."""
    return finish(group.submit(SharedWork(), [operations.Part("barrier")]))


def reduce(group: SharedGroup, array: np.ndarray[Any, Any]) -> Outcome:
    """The sum of all members' arrays, in place."""
    address = array.__array_interface__["data"][0]
    part = operations.Part(
        "allreduce",
        dtype=operations.DTYPES[array.dtype.name],
        op=operations.OPS["sum"],
        inputs=[address],
        outputs=[address],
        sizes=[array.nbytes],
    )
    return finish(group.submit(SharedWork(array), [part]))


def do_sum(group: SharedGroup, elements: int) -> list[Any]:
    """Sum an array whose elements tell the ranks; the status and a digest."""
    rank = group.describe().rank
    array = (np.arange(elements) % 1000 + rank).astype(np.float32)
    outcome = reduce(group, array)
    return [outcome.status, float(array[:7].sum()), float(array[-7:].sum())]


def do_sum_until_failure(group: SharedGroup, elements: int) -> list[Any]:
    """How often it went well, how it ended, and when, by the machine's clock: a sum may
    have taken long before what made it fail."""
    array = np.ones(elements, np.float32)
    for count in itertools.count():
        outcome = reduce(group, array)
        if outcome.status:
            return [count, *outcome, time.monotonic()]
    raise AssertionError


def do_status(group: SharedGroup) -> list[Any]:
    """Of a barrier, and what the member knows."""
    began = time.monotonic()
    outcome = barrier(group)
    info = group.describe()
    took = time.monotonic() - began
    return [outcome.status, outcome.text, info.rank, info.size, info.epoch, took]


def meet(group: SharedGroup, size: int, until: float) -> None:
    """Return when all are in; two may be so without a way to each other."""
    seen = 0
    while seen < size:
        while not group.ready(0.1):
            assert time.monotonic() < until, group.obstacle()
        seen = group.describe().size
        outcome = barrier(group)
        assert outcome.status in (operations.OK, operations.EUNREACHABLE), outcome
        assert time.monotonic() < until, outcome


def main(
    host: str, bind: str, segment: int, rank: int, size: int, timeout: float
) -> None:
    """Join, and do as the lines on the standard input say."""
    network = replace(choose(None), bind=bind or None)
    group = SharedGroup(
        segment,
        rank,
        1,
        timeout,
        network=network,
        host=host,
    )
    print(json.dumps("joined"), flush=True)
    meet(group, size, time.monotonic() + timeout)
    print(json.dumps("complete"), flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(globals()[f"do_{name}"](group, *arguments)), flush=True)
    group.leave()


if __name__ == "__main__":
    _, its_host, its_bind, *numbers = sys.argv
    segment, rank, size = map(int, numbers[:3])
    main(its_host, its_bind, segment, rank, size, float(numbers[3]))
