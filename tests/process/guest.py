# SPDX-License-Identifier: MIT
"""An actor on another host, for the tests of processes of several hosts."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

import mooactor as moo
from mooactor.process.current import current_runtime
from mooactor.process.objects import payloads
from tests.gates import wait_at


class Guest:
    def __init__(self) -> None:
        self.seen: list[int] = []
        self.gate = threading.Event()
        self.other: Any = None
        self.marked = 0

    def pid(self) -> int:
        return os.getpid()

    def add(self, number: int) -> int:
        self.seen.append(number)
        return number

    def all_seen(self) -> list[int]:
        return self.seen

    def mark(self) -> None:
        self.marked += 1

    def marks(self) -> int:
        return self.marked

    def fail(self) -> None:
        raise LookupError("not here")

    def nap(self, seconds: float) -> float:
        threading.Event().wait(seconds)
        return seconds

    def total(self, data: Any) -> int:
        return int(data.sum())

    def make(self, nbytes: int, value: int = 1) -> Any:
        return np.full(nbytes, value, np.uint8)

    def text(self, nbytes: int) -> str:
        return "x" * nbytes

    def length(self, text: str) -> int:
        return len(text)

    def items(self, count: int) -> Iterator[int]:
        for number in range(count):
            self.seen.append(number)
            yield number

    def hand_on(self, other: Any, nbytes: int, retries: int = 0) -> int:
        """Make data, and have another actor add it up."""
        return int(other.total.options(retries=retries)(self.make(nbytes)))

    def look_in(self, box: list[Any]) -> int:
        return int(box[0].get(timeout=30).sum())

    def keep(self, box: list[Any]) -> None:
        """Refs of others, until `drop`."""
        self.kept = box

    def drop(self) -> None:
        self.kept = None

    def put(self, nbytes: int) -> Any:
        """A Ref to a value that lives here."""
        self.kept = moo.put(self.make(nbytes))
        return [self.kept]

    def tell_once_told(self, other: Any, path: str) -> None:
        """When there is a file of that name, tell another actor something."""
        wait_at(path)
        other.add.tell(77)
        threading.Event().wait()

    def knows_dead(self, other: Any) -> bool:
        runtime, link = other._where()
        return bool(runtime.messenger.is_gone(link.process_id))

    def claims_after(self, seconds: float) -> None:
        payloads.CLAIMED_S = seconds

    def statistics(self) -> dict[str, Any]:
        """Of this process alone."""
        return current_runtime().statistics()

    def breaks(self) -> int:
        ways = current_runtime().messenger.ways
        return 0 if ways is None else ways.breaks

    def running(self) -> int:
        server: Any = current_runtime().server
        return len(server.running)


class Slow:
    """One whose async methods interleave."""

    def __init__(self) -> None:
        self.begun = 0

    async def wait(self, seconds: float) -> float:
        import asyncio

        self.begun += 1
        await asyncio.sleep(seconds)
        return seconds

    async def count(self) -> int:
        return self.begun
