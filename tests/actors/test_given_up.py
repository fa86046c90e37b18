# SPDX-License-Identifier: MIT
"""A call that was given up does not begin, wherever it is just then; and whoever waits
for it learns of that at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.control.messenger import lib
from mooactor.process.current import current_runtime
from mooactor.process.deadlines import Deadlines
from tests.actors.counter import Counter, wait_until_queued
from tests.conftest import eventually
from tests.gates import wait_at

GIVEN_UP = (moo.CallTimeout, moo.Cancelled)
WAYS = pytest.mark.parametrize("way", ["deadline", "cancel"])


def give_up(start: Callable[[float | None], Any], way: str) -> Any:
    """Start a call, and see it given up."""
    ref = start(0.1 if way == "deadline" else None)
    if way == "cancel":
        assert ref.cancel()
    with pytest.raises(GIVEN_UP):
        ref.get()
    return ref


@moo.actor
class OneThread:
    """Its sync methods share one thread."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def until(self, gate: Path, begun: Path) -> None:
        begun.touch()
        wait_at(gate)

    def note(self, item: str) -> None:
        self.seen.append(item)

    def items(self, item: str) -> Iterator[str]:
        self.seen.append(item)
        yield item

    async def notes(self) -> list[str]:
        return self.seen


@WAYS
def test_one_that_waits_for_a_thread(spawn: Any, tmp_path: Path, way: str) -> None:
    handle, gate, begun = spawn(OneThread), tmp_path / "gate", tmp_path / "begun"
    blocker = handle.until.remote(gate, begun)
    assert eventually(begun.exists)

    def start(timeout: float | None) -> Any:
        ref = handle.note.options(timeout=timeout).remote("given up")
        assert timeout or handle.notes.remote().get() == []  # it is admitted
        return ref

    give_up(start, way)
    stream = handle.items("given up")
    handle.notes.remote().get()  # it is admitted
    stream.close()
    assert handle.notes.remote().get() == []  # the actor has heard of all that
    gate.touch()
    blocker.get()
    handle.note.remote("wanted").get()
    assert handle.notes.remote().get() == ["wanted"]


def arrive(begun: Path) -> str:
    """Unpickle in the actor: until another call waits behind this one."""
    begun.touch()
    wait_until_queued(1)
    return "arrived"


class Arriving:
    """An argument that is long in arriving."""

    def __init__(self, begun: Path) -> None:
        self.begun = begun

    def __reduce__(self) -> tuple[Any, ...]:
        return arrive, (self.begun,)


@WAYS
def test_one_whose_arguments_are_being_unpickled(
    spawn: Any, tmp_path: Path, way: str
) -> None:
    counter, begun = spawn(Counter), tmp_path / "begun"

    def start(timeout: float | None) -> Any:
        ref = counter.note.options(timeout=timeout).remote(Arriving(begun))
        assert timeout or eventually(begun.exists)
        return ref

    give_up(start, way)
    assert counter.echo(1) == 1
    assert counter.notes() == []


@moo.actor
class Taken(Counter):
    """Gives the mail a look when it has taken a call, before anything else."""

    def hold(self, begun: Path) -> None:
        mailbox: Any = current_runtime().server.mailbox  # type: ignore[union-attr]
        take = mailbox.take

        def slowly() -> Any:
            job = take()
            if job is not None and job.name == b"note":
                begun.touch()
                wait_until_queued(1)
            return job

        mailbox.take = slowly


def test_one_that_was_taken_from_the_mailbox_just_now(
    spawn: Any, tmp_path: Path
) -> None:
    handle, begun = spawn(Taken), tmp_path / "begun"
    handle.hold(begun)
    ref = handle.note.remote("given up")
    assert eventually(begun.exists)
    assert ref.cancel()
    assert handle.echo(1) == 1
    assert handle.notes() == []


class GivesUp:
    """An argument that gives its call up when it is pickled for the second time."""

    ref: Any = None
    pickled = 0

    def __reduce__(self) -> tuple[Any, ...]:
        self.pickled += 1
        if self.pickled == 2:
            assert self.ref.cancel()
        return str, ("given up",)


def test_one_that_is_being_made_again(spawn: Any, tmp_path: Path) -> None:
    restarting = moo.on(Counter, restart=moo.Restart(max=3))
    counter, begun, argument = spawn(restarting), tmp_path / "begun", GivesUp()
    pid = counter.pid()
    counter.until.remote(tmp_path / "gate", begun)
    assert eventually(begun.exists)
    argument.ref = counter.note.options(retries=3).remote(argument)
    os.kill(pid, 9)
    with pytest.raises(moo.Cancelled):
        argument.ref.get()
    assert argument.pickled == 2
    assert counter.notes() == []


# -- deadlines -----------------------------------------------------------------


def test_a_deadline_covers_all_attempts(spawn: Any) -> None:
    class Dies:
        def die(self) -> None:
            threading.Event().wait(0.2)
            os._exit(1)

    dies = spawn(moo.on(Dies, restart=moo.Restart(max=1000, within=1e6)))
    with pytest.raises(moo.CallTimeout):
        dies.die.options(timeout=1.0, retries=1000)()


def test_a_deadline_covers_the_wait_for_room(spawn: Any, tmp_path: Path) -> None:
    class Caller:
        def fill(self, small: Any, gate: Path) -> None:
            for _ in range(3):
                small.until.remote(gate)

        def ping(self) -> str:
            return "pong"

    small = spawn(moo.actor(max_pending=2)(type("Small", (Counter,), {})))
    caller, gate = spawn(Caller), tmp_path / "gate"
    caller.fill.options(timeout=0.3).remote(small, gate)
    assert caller.ping.options(timeout=20)() == "pong"
    gate.touch()


def test_a_call_is_pending_before_its_deadline_counts(
    spawn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, pending = Deadlines.limit, list[bool]()

    def seen(self: Deadlines, future: Any, deadline: float) -> None:
        pending.append(self._pending.get(future.call_id) is future)
        limit(self, future, deadline)

    monkeypatch.setattr(Deadlines, "limit", seen)
    assert spawn(Counter).echo.options(timeout=20)(1) == 1
    assert pending == [True]


# -- who learns of it ------------------------------------------------------------


def test_a_thread_that_waits_alone_learns_of_a_cancellation(
    spawn: Any, tmp_path: Path
) -> None:
    counter, gate, begun = spawn(Counter), tmp_path / "gate", tmp_path / "begun"
    ref = counter.until.remote(gate, begun)
    assert eventually(begun.exists)
    thread = threading.Thread(target=ref.exception)
    thread.start()
    inbox = current_runtime().messenger.inbox
    assert eventually(lambda: lib.moo_inbox_led(inbox))
    assert ref.cancel()
    thread.join(20)
    assert not thread.is_alive()
    gate.touch()


def test_all_calls_of_a_group_are_given_up(group: Any, tmp_path: Path) -> None:
    members, gate = group(Counter, 3), tmp_path / "gate"
    blockers = members.until.call(gate)
    notes = members.note.call("given up")
    assert notes.cancel()
    with pytest.raises(moo.Cancelled):
        notes.get()
    assert all(ref.cancelled() for ref in notes.parts)
    members.echo.tell(1)
    gate.touch()
    blockers.get()
    assert members.notes.call().get() == [[], [], []]
