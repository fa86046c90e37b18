# SPDX-License-Identifier: MIT
"""Two hosts, near and far, for rows: network namespaces of this machine.

A `Side` is a process there that answers a line with a line.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.clusters import Cluster, Network
from tests.networks import why_not as why_not

NEAR, FAR = "near", "far"


class Side:
    """A process that answers a line with a line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextmanager
def running(command: list[str], env: dict[str, str] | None = None) -> Iterator[Side]:
    """A process that answers, from its first answer on; killed at the end."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=env, **pipes) as process:  # type: ignore[call-overload]
        side = Side(process)
        try:
            if side.ask("ready?") != "yes":
                raise RuntimeError(f"{' '.join(command)} did not start")
            yield side
        finally:
            process.kill()


def answer(works: dict[str, Callable[[int], float]]) -> None:
    """Do the work that each line of stdin names, so many times; print its result."""
    for line in sys.stdin:
        name, _, count = line.partition(" ")
        print("yes" if name == "ready?\n" else works[name](int(count)), flush=True)


@contextmanager
def two_hosts() -> Iterator[Network]:
    """Their network alone."""
    network = Network([NEAR, FAR])
    try:
        yield network
    finally:
        network.close()


class Pair(Cluster):
    """The broker on the near host, ``mooactor host`` on the far one."""

    def environment(self, host: str) -> dict[str, str]:
        return {**super().environment(host), "MOOACTOR_HOST_NAME": host}

    def driver(self, module: str, *words: str) -> AbstractContextManager[Side]:
        """``python -m MODULE WORDS`` on the near host, which answers lines."""
        command = [*self.network.on(NEAR), sys.executable, "-m", module, *words]
        return running(command, self.environment(NEAR))

    @contextmanager
    def started(self, host: str, *words: str) -> Iterator[None]:
        """``python WORDS`` on a host; killed after."""
        command = [*self.network.on(host), sys.executable, *words]
        with subprocess.Popen(command, env=self.environment(host)) as process:
            try:
                yield
            finally:
                process.kill()


@contextmanager
def cluster() -> Iterator[Pair]:
    """Both hosts, with the broker and the far host's agent."""
    with two_hosts() as network:
        made = Pair(network, broker=NEAR)
        try:
            made.start(FAR)
            yield made
        finally:
            made.close()
