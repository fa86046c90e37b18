# SPDX-License-Identifier: MIT
"""Forked children of a member: refused at once, whatever its threads were at."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest

import mooactor as moo


def told_in_a_child(act: Callable[[], str]) -> str:
    """The word of `act` in a forked child, which is killed if it hangs."""
    out, into = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads
        pid = os.fork()
    if pid == 0:
        signal.alarm(10)
        try:
            os.write(into, act().encode())
        except BaseException as error:
            os.write(into, repr(error).encode())
        os._exit(0)
    os.close(into)
    try:
        with open(out, "rb") as said:
            return said.read().decode()
    finally:
        os.waitpid(pid, 0)


def refusal(act: Callable[[], Any]) -> str:
    """The error that `act` raises."""
    try:
        return f"nothing, but {act()!r}"
    except moo.ActorUnavailable as error:
        return str(error)


@contextmanager
def held_elsewhere(lock: AbstractContextManager[Any]) -> Iterator[None]:
    """A lock is held by another thread, which no child has got."""
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            over.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    try:
        yield
    finally:
        over.set()
        thread.join()


async def _awaited(work: Any) -> Any:
    return await work


USES: dict[str, Callable[[Any, Any], Any]] = {
    "allreduce": lambda group, work: group.allreduce(np.ones(3)),
    "broadcast": lambda group, work: group.broadcast(np.ones(3)),
    "all_gather": lambda group, work: group.all_gather(np.ones(3)),
    "reduce_scatter": lambda group, work: group.reduce_scatter(np.ones((1, 3))),
    "barrier": lambda group, work: group.barrier(),
    "rank": lambda group, work: group.rank,
    "size": lambda group, work: group.size,
    "epoch": lambda group, work: group.epoch,
    "transport": lambda group, work: group.transport,
    "members": lambda group, work: group.members(),
    "statistics": lambda group, work: group.statistics(),
    "start": lambda group, work: work.start(),
    "wait": lambda group, work: work.wait(),
    "result": lambda group, work: work.result(),
    "done": lambda group, work: work.done(),
    "await": lambda group, work: asyncio.run(_awaited(work)),
}


@pytest.fixture(scope="module")
def alone(session: Any) -> Any:
    with moo.LearnerGroup("forked", min_size=1, timeout=20.0) as group:
        yield group


def test_a_forked_child_is_refused(alone: Any) -> None:
    work = alone.allreduce(np.ones(3))
    with held_elsewhere(alone._queued.member.lock):
        for name, use in USES.items():
            said = told_in_a_child(lambda use=use: refusal(lambda: use(alone, work)))
            assert "learner group 'forked': this process was forked" in said, name
    assert alone.size == 1
    work.wait()


def test_a_forked_child_has_nothing_to_leave_and_says_so(alone: Any) -> None:
    work = alone.allreduce(np.ones(3))

    def act() -> str:
        with alone:
            pass
        alone.leave()
        return f"{alone!r} {work!r}"

    said = told_in_a_child(act)
    assert said == (
        "<LearnerGroup 'forked', of the parent process> "
        "<Work allreduce(mean) of 'forked', of the parent process>"
    )
    work.wait()
    assert alone.size == 1
