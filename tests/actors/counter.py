# SPDX-License-Identifier: MIT
"""Actor classes that several tests use; importable, so pickled by reference."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import mooactor as moo
from mooactor import actor, method
from mooactor.process.current import current_runtime
from tests.gates import wait_at


def wait_for(condition: Callable[[], object]) -> None:
    """Hold this method until that holds."""
    while not condition():
        time.sleep(0.001)  # other processes shall have the core


def wait_until_queued(calls: int) -> None:
    """Hold the actor whose method this is until so many other calls wait for it."""
    runtime, server = current_runtime(), current_runtime().server
    assert server is not None

    def are_queued() -> bool:
        runtime.poller.try_drain()  # nobody else looks at the mail while it runs
        return server.queued() >= calls

    wait_for(are_queued)


@actor
class Counter:
    """Adds up, and misbehaves on request."""

    unit = "points"

    def __init__(self, start: int = 0) -> None:
        self.total = start
        self.seen: list[Any] = []

    def add(self, amount: int = 1) -> int:
        self.total += amount
        return self.total

    def note(self, item: Any) -> None:
        self.seen.append(item)

    def notes(self) -> list[Any]:
        return self.seen

    def echo(self, value: Any = None) -> Any:
        return value

    def pair(self, a: Any, *, b: Any) -> tuple[Any, Any]:
        return a, b

    def pid(self) -> int:
        return os.getpid()

    def sleep(self, seconds: float) -> float:
        time.sleep(seconds)  # a call that takes so long
        return seconds

    def until(self, gate: Path, begun: Path | None = None) -> str:
        """Hold this actor until there is that file."""
        if begun is not None:
            begun.touch()
        wait_at(gate)
        return gate.name

    def until_queued(self, calls: int) -> None:
        wait_until_queued(calls)

    def fail(self, error: BaseException) -> None:
        raise error

    def exit(self, code: int) -> None:
        print("about to leave", file=sys.stderr)
        os._exit(code)

    def kill_self(self, number: int = signal.SIGKILL) -> None:
        os.kill(os.getpid(), number)

    def call(self, handle: Any, name: str, *args: Any) -> Any:
        return getattr(handle, name)(*args)

    def until_cancelled(self, begun: Path | None = None) -> str:
        if begun is not None:
            begun.touch()
        wait_for(lambda: moo.current().cancelled)
        self.seen.append("cancelled")
        return "cancelled"

    def up_to(self, n: int) -> Iterator[int]:
        try:
            for i in range(n):
                self.total = i
                yield i
        finally:
            self.seen.append("closed")

    def up_to_error(self, n: int) -> Iterator[int]:
        yield from range(n)
        raise ValueError("no more")

    def who(self) -> tuple[Any, str, str]:
        current = moo.current()
        return current.handle, current.name, current.caller

    def time_left(self) -> float | None:
        return moo.current().deadline

    def call_time_left(self, handle: Any) -> float | None:
        left: float | None = handle.time_left()
        return left


@actor
class Async:
    """Async, sync and generator methods side by side."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.order: list[int] = []
        self.running = 0
        self.most = 0

    async def wait(self) -> str:
        await self.event.wait()
        return "set"

    async def set(self) -> None:
        self.event.set()

    async def nap(self, seconds: float) -> float:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(seconds)
        self.running -= 1
        return seconds

    async def append(self, i: int) -> None:
        self.order.append(i)

    async def ordered(self) -> list[int]:
        return self.order

    async def at_most(self) -> int:
        return self.most

    def block(self, gate: Path) -> str:
        """Hold the one thread of the sync methods until there is that file."""
        wait_at(gate)
        return gate.name

    async def numbers(self, n: int) -> AsyncIterator[int]:
        for i in range(n):
            yield i

    def plain_numbers(self, n: int) -> Iterator[int]:
        yield from range(n)

    async def forever(self, begun: Path | None = None) -> None:
        if begun is not None:
            begun.touch()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.order.append(-1)
            raise

    @method(read_only=True)
    async def peek(self) -> int:
        return len(self.order)


@actor(max_concurrency=4)
class Threaded:
    """Sync methods, four at a time."""

    def __init__(self) -> None:
        self.four = threading.Barrier(4)

    def meet(self) -> None:
        """Return when four of these run."""
        self.four.wait(30)
