# SPDX-License-Identifier: MIT
"""The user's program on this machine: it keeps the launcher's terminal and pipes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

from mooactor.cluster.launch import signals
from mooactor.host.eventloop import EventLoop
from mooactor.process.system import adopt_orphans

# Then the program replaces it. It dies with the launcher, even if that is killed. No
# module in the working directory is for this line.
_TIED = (
    "import sys; sys.path[:] = [entry for entry in sys.path if entry]; "
    "import ctypes, os; ctypes.CDLL(None).prctl(1, 9); "
    "os.getppid() == int(sys.argv[1]) or os._exit(1); "
    "os.execvp(sys.argv[2], sys.argv[2:])"
)


class LocalScript:
    """It is started at once. `code` is its exit code, once it has ended. Its orphans
    become children of this process.

    Raises:
      OSError: it cannot be started.
    """

    def __init__(
        self, loop: EventLoop, words: list[str], environment: dict[str, str], cwd: str
    ) -> None:
        self.code: int | None = None
        self._loop = loop
        # In the foreground of a terminal it stays there: it may read from it, and gets
        # Ctrl-C from it.
        self._has_terminal = _in_foreground()
        adopt_orphans()
        self._process = subprocess.Popen(
            [words[0], "-c", _TIED, str(os.getpid()), *words],
            env={**os.environ, **environment},
            cwd=cwd,
            process_group=None if self._has_terminal else 0,
            preexec_fn=signals.unblock,
        )
        self._pidfd = os.pidfd_open(self._process.pid)
        loop.watch(self._pidfd, self._ended)

    @property
    def pid(self) -> int | None:
        """None: it has ended, and is reaped."""
        return self._process.pid if self._process.returncode is None else None

    def signal(self, number: int, typed: bool) -> None:
        """Pass a signal on. Invariant: the program gets each Ctrl-C once, so one that
        was typed is left to the terminal, if the program is in its foreground."""
        if not (typed and self._has_terminal):
            self._process.send_signal(number)

    def end(self, grace_s: float = 0.0) -> None:
        """End it by force."""
        with contextlib.suppress(ProcessLookupError):
            if self._has_terminal:
                self._process.kill()
            else:
                os.killpg(self._process.pid, signal.SIGKILL)

    kill = end

    def _ended(self) -> None:
        self._loop.unwatch(self._pidfd)
        os.close(self._pidfd)
        self.end()  # what it left in its group
        code = self._process.wait()
        self.code = code if code >= 0 else 128 - code


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
