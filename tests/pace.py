# SPDX-License-Identifier: MIT
"""How far behind its work the machine is: tests/c/pace.h for tests in Python."""

import threading
import time
from typing import Any

SLEEP_S = 0.01
WORK_S = 0.002


class Pace:
    """A clock that stands still for as long as the machine was behind.

    A test's bound on time is meant for a machine that runs what is ready to run. On one
    that has more to do, what a metronome loses there is allowed on top. A beat is some
    sleep and then some work: who sleeps is often run before who works.
    """

    def __enter__(self) -> "Pace":
        self._began = self._beat = time.monotonic()
        self._lost = 0.0
        self._over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over = True
        self._thread.join()

    def seconds(self) -> float:
        """Those since the beginning, less those that were lost."""
        return max(0.0, time.monotonic() - self._began - self._lost - self._late())

    def _late(self) -> float:
        return max(0.0, time.monotonic() - self._beat - SLEEP_S - WORK_S)

    def _run(self) -> None:
        while not self._over:
            time.sleep(SLEEP_S)
            end = time.thread_time() + WORK_S
            while time.thread_time() < end:
                pass
            self._lost += self._late()
            self._beat = time.monotonic()
