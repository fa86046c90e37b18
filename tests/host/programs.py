# SPDX-License-Identifier: MIT
"""`Program`: another driver beside the test, which does what it is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.clusters import Cluster

_ANSWERS = """
print("ready", flush=True)
for line in sys.stdin:
    try:
        print(repr(eval(line)), flush=True)
    except Exception as error:
        print(f"{type(error).__name__}: {error}".replace(chr(10), " "), flush=True)
"""


class Program:
    """It runs `text`, and then evaluates the expressions that it is asked.

    Args:
      words: its arguments.
      host: where it runs.
      name: what it calls that host.
      python, cwd: its interpreter, and the directory that it starts in.
    """

    def __init__(
        self,
        made: Cluster,
        text: str,
        *words: str,
        host: str = "d",
        name: str = "other",
        python: str = sys.executable,
        cwd: Path | None = None,
    ) -> None:
        text = f"import sys\n{text}{_ANSWERS}"
        self.process = subprocess.Popen(
            [*made.network.on(host), python, "-c", text, *words],
            env={**made.environment(host), "MOOACTOR_HOST_NAME": name},
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._in, self._out = self.process.stdin, self.process.stdout

    def await_ready(self) -> Program:
        assert self.read() == "ready"
        return self

    def read(self) -> str:
        return self._out.readline().strip()

    def ask(self, expression: str) -> str:
        """The repr of an expression's value there."""
        self.say(expression)
        return self.read()

    def say(self, expression: str) -> None:
        self._in.write(expression + "\n")
        self._in.flush()

    def end(self) -> None:
        """The program ends as it should."""
        self._in.close()
        assert self.process.wait(30) == 0

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._out.close()
        try:
            self._in.close()
        except BrokenPipeError:
            pass
