# SPDX-License-Identifier: MIT
"""A cluster of two hosts, near and far: network namespaces of this machine.

The broker runs on the near one, ``mooactor host`` on the far one. Drivers take part on
the near one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from mooactor.cli.bench.namespaces import Host, two_namespaces
from mooactor.cli.bench.network import Side, running
from mooactor.control import secret

NEAR, FAR = "near", "far"
_PORT = 4431
_PATIENCE_S = 10.0


class Cluster:
    """The two hosts, and how to start programs there."""

    def __init__(self, near: Host, far: Host, directory: str) -> None:
        self.near, self.far = near, far
        self.address = f"tcp://{near.address}:{_PORT}"
        self._directory = directory
        self._key_file = secret.make(f"{directory}/key").source

    def environment(self, name: str) -> dict[str, str]:
        """Of programs on a host. Files are the same for both, so each has a place for
        temporary ones, and says that it is another machine."""
        private = f"{self._directory}/{name}"
        os.makedirs(private, exist_ok=True)
        return {
            **os.environ,
            "TMPDIR": private,
            "MOOACTOR_KEY_FILE": self._key_file,
            "MOOACTOR_HOST_ID": name,
            "MOOACTOR_HOST_NAME": name,
        }

    @contextmanager
    def started(
        self, host: Host, name: str, *words: str
    ) -> Iterator[subprocess.Popen[str]]:
        """``python WORDS`` on a host; ended after."""
        process = subprocess.Popen(
            host.command(sys.executable, *words),
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment(name),
        )
        try:
            yield process
        finally:
            _end(process)

    @contextmanager
    def command(self, host: Host, name: str, *words: str) -> Iterator[None]:
        """A long-running ``mooactor WORDS``, from the line that says it is ready."""
        with self.started(host, name, "-m", "mooactor", *words) as process:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError(f"mooactor {words[0]} did not start")
            yield

    def driver(self, module: str, *words: str) -> AbstractContextManager[Side]:
        """``python -m MODULE WORDS`` on the near host, which answers lines."""
        command = self.near.command(sys.executable, "-m", module, *words)
        return running(command, f"{module} in {NEAR}", self.environment(NEAR))


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Both hosts, joined by a cable, with the broker and the far host's agent.

    Raises:
      OSError: there are no network namespaces here.
    """
    with (
        two_namespaces() as (near, far),
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
    ):
        made = Cluster(near, far, directory)
        broker = ("broker", "--listen", f"{near.address}:{_PORT}")
        host = ("host", "--join", made.address, "--name", FAR, "--bind", far.address)
        with made.command(near, "broker", *broker), made.command(far, FAR, *host):
            yield made
