# SPDX-License-Identifier: MIT
"""Actors whose methods end in every way there is; importable, so pickled by name."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

from mooactor import actor


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class TextIsNumber(Exception):
    def __str__(self) -> str:
        return 3  # type: ignore[return-value]


class HoldsLock(Exception):
    def __init__(self) -> None:
        super().__init__("held")
        self.lock = threading.Lock()


class RaisesInReduce:
    """A value whose pickling raises what it is told to."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __reduce__(self) -> Any:
        raise self.kind("in reduce")


class RaisesWhenRebuilt:
    """A value whose unpickling raises what it is told to."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __reduce__(self) -> Any:
        return _fail, (self.kind,)


def _fail(kind: type[BaseException]) -> None:
    raise kind("in unpickling")


def nasty_error(name: str) -> BaseException:
    return {
        "value": lambda: ValueError("v"),
        "stop iteration": lambda: StopIteration(3),
        "stop async": lambda: StopAsyncIteration(3),
        "interrupt": lambda: KeyboardInterrupt("k"),
        "generator exit": lambda: GeneratorExit("g"),
        "cancelled": lambda: asyncio.CancelledError("c"),
        "base": lambda: BaseException("b"),
        "no text": NoText,
        "number": TextIsNumber,
        "lock": HoldsLock,
        "group": lambda: ExceptionGroup("several", [HoldsLock(), NoText()]),
    }[name]()


ERRORS = (
    "value",
    "stop iteration",
    "stop async",
    "interrupt",
    "generator exit",
    "cancelled",
    "base",
    "no text",
    "number",
    "lock",
    "group",
)


class _Nasty:
    """The part that all of them have in common."""

    def ok(self, value: Any = None) -> Any:
        return value

    def fail(self, name: str) -> None:
        raise nasty_error(name)

    def unpicklable(self, kind: type[BaseException]) -> Any:
        return RaisesInReduce(kind)

    def loses_stderr(self) -> None:
        del sys.stderr, sys.stdout

    def leave(self, code: int) -> None:
        sys.exit(code)

    def items(self, n: int, then: str = "") -> Iterator[Any]:
        yield from range(n)
        if then == "unpicklable":
            yield RaisesInReduce(KeyboardInterrupt)
        elif then:
            raise nasty_error(then)

    def leave_in_stream(self, code: int) -> Iterator[int]:
        yield 1
        sys.exit(code)

    def fails_when_closed(self, n: int) -> Iterator[int]:
        try:
            yield from range(n)
        finally:
            raise TextIsNumber("while it is closed")


@actor
class Serial(_Nasty):
    """One method at a time."""


@actor(max_concurrency=3)
class Threaded(_Nasty):
    """Three at once, in threads."""


@actor
class Async(_Nasty):
    """Async methods beside the sync ones."""

    async def async_fail(self, name: str) -> None:
        raise nasty_error(name)

    async def async_ok(self, pause_s: float = 0.0) -> int:
        await asyncio.sleep(pause_s)
        return 1

    async def async_leave(self, code: int) -> None:
        sys.exit(code)

    async def async_items(self, n: int, then: str = "") -> AsyncIterator[int]:
        for i in range(n):
            yield i
        if then:
            raise nasty_error(then)

    async def cancels_itself(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(10)


KINDS = (Serial, Threaded, Async)
