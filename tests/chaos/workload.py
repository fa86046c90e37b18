# SPDX-License-Identifier: MIT
"""The actors of a chaos run: their methods get the call's id, and note what they do.

=============  ==========================================================
role           what
=============  ==========================================================
w0, w1, w2     `Worker`: sync, restarted, with snapshots of its count
v0, v1         `Loop`: async, four calls at a time, restarted
g.0, g.1, g.2  `Worker`, a group
calm, breeze   a `Worker` and a `Loop` that no fault is aimed at
watcher        `Watcher`: monitors the others from a process of its own
claim0, …      `Worker` without restarts, under names that pass on
Child          `Worker` that another one has spawned
t0, t1, t2, t3 `Learner` of tests/chaos/learners.py, restarted
=============  ==========================================================
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import numpy as np

import mooactor as moo
from mooactor.process.current import current_runtime
from tests.chaos.client import Client, digest, id_of
from tests.chaos.history import History
from tests.processes import Process


class Setting(NamedTuple):
    """The part of the run that a participant must know."""

    directory: str  # of the histories
    hosts: dict[int, str]  # by the inode of the network namespace


def born(setting: Setting, role: str, actor: str, incarnation: int) -> History:
    """The history of this process, with its first event."""
    who = f"{role}.{actor[:12]}.{incarnation}" if actor else role
    notes = History(setting.directory, who)
    me = Process.of(os.getpid())
    host = setting.hosts.get(os.stat("/proc/self/ns/net").st_ino, "")
    identity = {"role": role, "actor": actor, "incarnation": incarnation}
    notes.note("born", pid=me.pid, started=me.started, host=host, **identity)
    return notes


def array(seed: int, size: int) -> np.ndarray[Any, Any]:
    """An array that is the same for the same numbers."""
    return np.random.default_rng(seed).integers(0, 255, size, np.uint8)


def born_as_actor(setting: Setting) -> History:
    """In a constructor."""
    runtime, label = current_runtime(), moo.current().name
    kind, _, name = label.partition(":")
    role = (name or kind).replace("/", ".")
    incarnation = runtime.process_id - runtime.actor_id
    return born(setting, role, f"{runtime.actor_id:016x}", incarnation)


class _Counting:
    """Counts, also after a restart."""

    counted = 0

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.notes = born_as_actor(setting)
        self.client = Client(self.notes, "methods")

    def _begin(self, call: str, method: str, **facts: Any) -> None:
        self.notes.note("ran", call=call, method=method, **facts)

    def _end(self, call: str, value: Any) -> Any:
        self.notes.note("done", call=call, value=digest(value))
        return value

    def __snapshot__(self) -> int:
        return self.counted

    def __restore__(self, counted: int) -> None:
        self.counted = counted

    def on_stop(self) -> None:
        self.notes.note("over")

    def count(self, call: str) -> int:
        self._begin(call, "count")
        self.counted += 1
        return int(self._end(call, self.counted))

    def fail(self, call: str) -> None:
        self._begin(call, "fail")
        raise ValueError(call)

    def make(self, call: str, seed: int, size: int) -> Any:
        self._begin(call, "make")
        return self._end(call, array(seed, size))

    def total(self, call: str, data: Any) -> Any:
        self._begin(call, "total", got=digest(data))
        return self._end(call, digest(data))

    def _relayed(self, call: str, path: list[Any], value: Any) -> Any:
        """The call of `relay` to the next one; None at the end of the path."""
        self._begin(call, "relay", got=digest(value))
        if not path:
            return None
        facts = {"argument": value, "via": tuple(path[1:])}
        return self.client.start(path[0], "relay", path[1:], value, **facts)


@moo.actor
class Worker(_Counting):
    """Runs one method at a time."""

    child: Any = None

    def echo(self, call: str, value: Any) -> Any:
        self._begin(call, "echo", got=digest(value))
        return self._end(call, value)

    def shout(self, call: str, value: Any) -> Any:
        """`echo`, for a group: each member has a call of its own."""
        own = f"{call}@{current_runtime().actor_id:016x}"
        self._begin(own, "shout", got=digest(value))
        return self._end(own, value)

    def nap(self, call: str, seconds: float) -> None:
        self._begin(call, "nap")
        time.sleep(seconds)  # a call that takes a while is part of the load
        self._end(call, None)

    def die(self, call: str, how: int) -> None:
        self._begin(call, "die")
        if how:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(7)

    def items(self, call: str, number: int, pause: float) -> Iterator[int]:
        self._begin(call, "items")
        for n in range(number):
            time.sleep(pause)  # so is a slow stream
            yield n
        self._end(call, None)

    def relay(self, call: str, path: list[Any], value: Any) -> Any:
        """Have others pass the value on, and return what comes back."""
        pending = self._relayed(call, path, value)
        return self._end(call, value if pending is None else pending.end())

    def keep(self, call: str, seed: int, size: int) -> Any:
        """A Ref to an array that lives here, and its name."""
        self._begin(call, "keep")
        return self._end(call, self.client.put(array(seed, size)))

    def look_at(self, call: str, name: str, refs: list[Any]) -> str:
        """Read a Ref of another process."""
        self._begin(call, "look_at")
        self.client.read(name, refs[0])
        return str(self._end(call, name))

    def adopt(self, call: str) -> Any:
        """A new actor of this one's own, in place of the last."""
        self._begin(call, "adopt")
        if self.child is not None:
            self.client.remove(self.child, "kill")
        self.child = moo.spawn(Child, self.setting)
        self.notes.note("spawned", actor=id_of(self.child), name=None, owned=True)
        return self._end(call, self.child)


@moo.actor
class Child(Worker):
    """One that a worker has spawned."""


@moo.actor(max_concurrency=4)
class Loop(_Counting):
    """Runs four methods at a time on an event loop."""

    async def echo(self, call: str, value: Any) -> Any:
        self._begin(call, "echo", got=digest(value))
        await asyncio.sleep(0)
        return self._end(call, value)

    # Its sync methods would run in a thread, in an order of their own.

    async def count(self, call: str) -> int:
        return super().count(call)

    async def fail(self, call: str) -> None:
        super().fail(call)

    async def make(self, call: str, seed: int, size: int) -> Any:
        return super().make(call, seed, size)

    async def total(self, call: str, data: Any) -> Any:
        return super().total(call, data)

    async def nap(self, call: str, seconds: float) -> None:
        self._begin(call, "nap")
        await asyncio.sleep(seconds)
        self._end(call, None)

    async def items(self, call: str, number: int, pause: float) -> AsyncIterator[int]:
        self._begin(call, "items")
        for n in range(number):
            await asyncio.sleep(pause)
            yield n
        self._end(call, None)

    async def relay(self, call: str, path: list[Any], value: Any) -> Any:
        pending = self._relayed(call, path, value)
        return self._end(call, value if pending is None else await pending.ended())


@moo.actor
class Watcher:
    """Notes what happens to other actors, until each is over."""

    def __init__(self, setting: Setting) -> None:
        self.notes = born_as_actor(setting)
        self._tasks: list[asyncio.Task[None]] = []

    async def watch(self, handles: list[Any]) -> None:
        for number, handle in enumerate(handles):
            name = f"{self.notes.who}/watch{number}"
            self._tasks.append(asyncio.create_task(self._watch(name, handle)))

    async def _watch(self, name: str, handle: Any) -> None:
        watch = begin_watch(self.notes, name, handle)
        async for event in moo.monitor(handle):
            note_seen(self.notes, watch, handle, event)
        self.notes.note("unwatched", watch=watch, actor=id_of(handle))

    async def all_seen(self) -> None:
        """Wait until all have had their last events."""
        await asyncio.wait(self._tasks, timeout=30)

    async def on_stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.notes.note("over")


def begin_watch(notes: History, name: str, handle: Any) -> str:
    notes.note("watching", watch=name, actor=id_of(handle))
    return name


def note_seen(notes: History, watch: str, handle: Any, event: moo.Event) -> None:
    """An event of a monitor."""
    facts = {"incarnation": event.incarnation, "kind": type(event).__name__}
    cause = str(getattr(event, "cause", ""))
    notes.note("seen", watch=watch, actor=id_of(handle), cause=cause, **facts)
