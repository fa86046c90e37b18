# SPDX-License-Identifier: MIT
"""The threads that wait at one poller."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from mooactor.control import envelope
from mooactor.control.messenger import Messenger
from mooactor.process.poller import Poller
from tests.conftest import eventually


class Nothing:
    """A dispatcher to which nothing comes."""

    def dispatch(self, serial: int, message: bytes) -> None:
        raise AssertionError("a message")

    def dispatched(self, serial: int) -> None:
        raise AssertionError("a message")


class Inbound:
    """Transfers that must be looked after all the time, by one thread at a time."""

    busy = restless = True
    is_inside = staticmethod(lambda: False)

    def __init__(self, fd: int) -> None:
        self.readable_fd = fd
        self.looks: list[int] = []
        self.together = 0
        self._one = threading.Lock()

    def look(self) -> bool:
        if not self._one.acquire(blocking=False):
            self.together += 1
            return False
        with_me = threading.get_ident()
        time.sleep(0.002)  # others wake up meanwhile
        self.looks.append(with_me)
        self._one.release()
        return False


def test_only_the_leader_looks_after_inbound_transfers(tmp_path: Path) -> None:
    """Followers whose time is over, or who look every few milliseconds, do not."""
    messenger = Messenger(str(tmp_path), 1 << 16, bytes(envelope.KEY_BYTES))
    inbound = Inbound(messenger.inbox_fd)
    poller = Poller(messenger, Nothing(), inbound)  # type: ignore[arg-type]
    end = threading.Event()

    def wait() -> None:
        while not end.is_set():
            poller.wait(end.is_set, time.perf_counter() + 0.003)

    threads = [threading.Thread(target=wait) for _ in range(4)]
    threads.append(threading.Thread(target=poller.wait, args=(end.is_set,)))
    for thread in threads:
        thread.start()
    try:
        assert eventually(lambda: len(inbound.looks) >= 200, 20)
        poller.try_drain()
        assert inbound.together == 0
    finally:
        end.set()
        for thread in threads:
            thread.join()
        poller.close()
        messenger.close(0)
