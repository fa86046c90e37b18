# SPDX-License-Identifier: MIT
"""Whatever code of the user's raises: the call is answered, and the actor lives."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from contextlib import suppress
from typing import Any

import pytest

import mooactor as moo
from tests.actors.nasty import (
    ERRORS,
    KINDS,
    Async,
    RaisesWhenRebuilt,
    Serial,
    Threaded,
    nasty_error,
)
from tests.conftest import eventually

WAIT_S = 20.0
everywhere = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def failure(ref: Any) -> BaseException:
    error = ref.exception(timeout=WAIT_S)
    assert error is not None
    return error  # type: ignore[no-any-return]


@everywhere
def test_every_exception_arrives_as_its_own_type(spawn: Any, kind: Any) -> None:
    actor = spawn(kind)
    for name in ERRORS:
        assert type(failure(actor.fail.remote(name))) is type(nasty_error(name)), name
    assert actor.ok(1) == 1


def test_async_methods_too(spawn: Any) -> None:
    actor = spawn(Async)
    for name in ERRORS:
        # Python itself makes that of a StopIteration in a coroutine.
        expected = RuntimeError if name == "stop iteration" else type(nasty_error(name))
        assert type(failure(actor.async_fail.remote(name))) is expected, name
    assert type(failure(actor.cancels_itself.remote())) is asyncio.CancelledError
    assert actor.ok(1) == 1


@everywhere
def test_a_stream_ends_with_what_its_generator_raised(spawn: Any, kind: Any) -> None:
    actor = spawn(kind)
    for name in ERRORS:
        stream, got = actor.items(3, name), []
        expected = nasty_error(name)
        if name.startswith("stop"):  # it would end the loop of the consumer
            expected = RuntimeError()
        with pytest.raises(type(expected)):
            for item in stream:
                got.append(item)
        assert got == [0, 1, 2]
    with pytest.raises(TypeError, match="the item of .*cannot be pickled"):
        list(actor.items(2, "unpicklable"))
    assert actor.ok(1) == 1


def test_async_generators_too(spawn: Any) -> None:
    actor = spawn(Async)
    for name in set(ERRORS) - {"stop iteration", "stop async"}:
        with pytest.raises(type(nasty_error(name))):
            list(actor.async_items(3, name))
    assert actor.ok(1) == 1


@everywhere
def test_pickling_and_unpickling_may_raise_anything(spawn: Any, kind: Any) -> None:
    actor = spawn(kind)
    kinds = (ValueError, KeyboardInterrupt, SystemExit, StopIteration, GeneratorExit)
    for error in kinds:
        refusal = failure(actor.unpicklable.remote(error))
        assert type(refusal) is TypeError
        assert "the result of" in str(refusal)
        refused = failure(actor.ok.remote(RaisesWhenRebuilt(error)))
        assert isinstance(refused, RuntimeError if error is SystemExit else error)
    assert actor.ok(1) == 1


@everywhere
def test_an_actor_without_stderr_still_answers(spawn: Any, kind: Any) -> None:
    actor = spawn(kind)
    actor.loses_stderr()
    actor.fail.tell("value")
    assert type(failure(actor.fail.remote("value"))) is ValueError
    assert actor.ok(1) == 1


@everywhere
def test_a_generator_that_raises_when_it_is_closed_harms_nobody(
    spawn: Any, kind: Any
) -> None:
    actor = spawn(kind)
    with actor.fails_when_closed(1000) as stream:
        assert next(stream) == 0
    assert actor.ok(1) == 1


@everywhere
def test_leaving_gives_the_exit_code_and_keeps_the_replies_before(
    spawn: Any, kind: Any
) -> None:
    actor = spawn(kind)
    before = [actor.ok.remote(i) for i in range(50)]
    leaving = actor.leave.remote(7)
    assert moo.get(before, timeout=WAIT_S) == list(range(50))
    error = failure(leaving)
    assert isinstance(error, moo.ActorDied)
    assert (error.cause.kind, error.cause.exitcode) == ("exit", 7)


def test_leaving_from_streams_and_async_methods_is_the_same(spawn: Any) -> None:
    for kind in KINDS:
        stream = spawn(kind).leave_in_stream(5)
        assert next(stream) == 1
        with pytest.raises(moo.ActorDied) as caught:
            next(stream)
        assert caught.value.cause.exitcode == 5
    error = failure(spawn(Async).async_leave.remote(6))
    assert isinstance(error, moo.ActorDied)
    assert error.cause.exitcode == 6


def test_other_calls_that_run_when_one_leaves_end_with_the_death(spawn: Any) -> None:
    actor = spawn(Async)
    actor.ok()
    others = [actor.async_ok.remote(60.0) for _ in range(3)]
    actor.async_leave.remote(4)
    for ref in others:
        assert isinstance(failure(ref), moo.ActorDied)


def test_a_call_cancelled_before_it_began_frees_its_place(spawn: Any) -> None:
    actor = spawn(Async)
    for _ in range(30):
        refs = [actor.async_ok.remote(30.0) for _ in range(20)]
        for ref in refs:
            ref.cancel()
    moo.stop(actor, timeout=WAIT_S)  # would wait for those that never answered


def test_a_closed_stream_of_a_thread_ends_between_two_items(spawn: Any) -> None:
    actor = spawn(Threaded)
    stream = actor.items(1_000_000)
    assert next(stream) == 0
    stream.close()
    moo.stop(actor, timeout=WAIT_S)


@pytest.mark.parametrize("method", ["__init__", "on_start", "__restore__"])
def test_a_birth_that_fails_is_the_cause_whatever_it_raised(
    spawn: Any, method: str
) -> None:
    for name in ERRORS:

        def fail(self: Any, *args: Any, _name: str = name) -> None:
            if method != "__restore__" or args:
                raise nasty_error(_name)

        def snapshot(self: Any) -> int:
            return 1

        def crash(self: Any) -> None:
            import os

            os._exit(1)

        def use(self: Any) -> None: ...

        parts = {"use": use, "crash": crash, "__snapshot__": snapshot, method: fail}
        actor = spawn(moo.on(type("Stillborn", (), parts), restart=moo.Restart(max=1)))
        if method == "__restore__":
            actor.use()
            failure(actor.crash.remote())
        error = failure(actor.use.remote())
        while isinstance(error, moo.ActorRestarted):
            error = failure(actor.use.remote())
        assert isinstance(error, moo.ActorDied)
        assert type(error.cause.exception) is type(nasty_error(name)), name
        assert str(error)
        assert str(error.cause)


def test_a_constructor_that_leaves_gives_its_exit_code(spawn: Any) -> None:
    class Leaves:
        def __init__(self) -> None:
            raise SystemExit(9)

        def use(self) -> None: ...

    error = failure(spawn(Leaves).use.remote())
    assert isinstance(error, moo.ActorDied)
    assert (error.cause.kind, error.cause.exitcode) == ("exit", 9)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_on_stop_may_raise_and_no_reply_is_lost(spawn: Any, asynchronous: bool) -> None:
    class Careless:
        def work(self, i: int) -> int:
            return i

        if asynchronous:

            async def on_stop(self) -> None:
                raise nasty_error("no text")
        else:

            def on_stop(self) -> None:
                raise nasty_error("base")

    actor = spawn(Careless)
    refs = [actor.work.remote(i) for i in range(100)]
    moo.stop(actor, timeout=WAIT_S)
    assert moo.get(refs, timeout=WAIT_S) == list(range(100))


def test_async_hooks_share_the_loop_of_the_methods(spawn: Any, tmp_path: Any) -> None:
    out = tmp_path / "out"

    class Looped:
        async def on_start(self) -> None:
            self.loop = asyncio.get_running_loop()
            self.queue: asyncio.Queue[int] = asyncio.Queue()
            self.task = self.loop.create_task(self._serve())
            self.served: list[int] = []

        async def _serve(self) -> None:
            while True:
                self.served.append(await self.queue.get())

        async def put(self, item: int) -> bool:
            await self.queue.put(item)
            return asyncio.get_running_loop() is self.loop

        async def on_stop(self) -> None:
            same = asyncio.get_running_loop() is self.loop
            out.write_text(f"{same} {self.served} {self.task.done()}")

    actor = spawn(Looped)
    assert actor.put.remote(3).get(timeout=WAIT_S)
    moo.stop(actor, timeout=WAIT_S)
    assert eventually(lambda: out.exists() and out.read_text() == "True [3] False")


def _storm(rng: random.Random, actor: Any, other: Any) -> list[Any]:
    """Start 120 random calls; those of which an answer is due."""
    due: list[Any] = []
    waiting = [other.ok.remote(1)]
    for _ in range(120):
        name = rng.choice(ERRORS)
        choice = rng.randrange(9)
        if choice == 0:
            actor.fail.tell(name)
        elif choice == 1:
            due.append(actor.ok.remote(rng.choice(waiting)))
        elif choice == 2:
            due.append(actor.ok.remote(other.fail.remote(name)))
        elif choice == 3:
            due.append(actor.unpicklable.remote(type(nasty_error(name))))
        elif choice == 4:
            due.append(actor.ok.remote(RaisesWhenRebuilt(type(nasty_error(name)))))
        elif choice == 5:
            due.append(actor.ok.options(priority=rng.randrange(-3, 3)).remote(1))
        elif choice == 6:
            due.append(actor.fail.remote(name))
            if rng.random() < 0.5:
                due[-1].cancel()
        else:
            stream = actor.items(
                rng.randrange(40), rng.choice(["", name, "unpicklable"])
            )
            if rng.random() < 0.5:
                due.append(stream)
            else:
                stream.close()
    return due


@everywhere
def test_a_stream_never_ends_early_by_a_stop_iteration(spawn: Any, kind: Any) -> None:
    actor = spawn(kind)
    for error in (StopIteration, StopAsyncIteration):
        with pytest.raises(RuntimeError, match="a generator, raised Stop"):
            list(actor.items(RaisesWhenRebuilt(error)))
    assert actor.ok(1) == 1


@everywhere
def test_only_the_parent_answers_when_a_method_forks(spawn: Any, kind: Any) -> None:
    class Forks(kind):  # type: ignore[misc]
        def fork(self, then: str) -> Any:
            pid = os.fork()
            if pid:
                return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if then == "leave":
                sys.exit(7)
            if then:
                raise ValueError(then)
            return "from the child"

    actor = spawn(Forks)
    got = [actor.fork.remote(then) for then in ("", "leave", "an error", "")]
    assert moo.get(got, timeout=WAIT_S) == [0, 7, 1, 0]
    assert actor.ok(1) == 1


def test_parked_streams_hold_up_no_other_call(spawn: Any) -> None:
    actor = spawn(Threaded)
    streams = [actor.items(100) for _ in range(5)]  # more than may run at once
    assert actor.ok.remote(1).get(timeout=WAIT_S) == 1
    assert [list(stream) for stream in streams] == [list(range(100))] * 5


@everywhere
@pytest.mark.parametrize("seed", range(3))
def test_in_a_storm_of_nasty_calls_every_one_is_answered_once(
    spawn: Any, kind: Any, seed: int
) -> None:
    rng = random.Random(seed)
    actor, other = spawn(kind), spawn(Serial)
    for due in _storm(rng, actor, other):
        if isinstance(due, moo.Ref):
            due.exception(timeout=WAIT_S)
            continue
        with suppress(BaseException):  # the time-out of the test is no exception
            list(due)
    assert actor.ok(5) == 5
    # All that it has accepted is answered, so it ends as soon as it is asked to.
    moo.stop(actor, timeout=WAIT_S)
    assert eventually(lambda: moo.stats()["calls_pending"] == 0)
