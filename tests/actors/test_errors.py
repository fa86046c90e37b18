# SPDX-License-Identifier: MIT
"""Code of the user's raises: the call is answered, and the actor lives."""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
from typing import Any

import pytest

import mooactor as moo
from mooactor import errors
from tests.actors.counter import Counter
from tests.actors.nasty import (
    ERRORS,
    KINDS,
    Async,
    RaisesWhenRebuilt,
    Serial,
    nasty_error,
)

WAIT_S = 20.0
everywhere = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def failure(ref: Any) -> BaseException:
    error = ref.exception(timeout=WAIT_S)
    assert error is not None
    return error  # type: ignore[no-any-return]


# -- what arrives ----------------------------------------------------------


@moo.actor
class Raises:
    def builtin(self) -> None:
        raise ValueError("deep down")

    def result(self) -> Any:
        return threading.Lock()


def test_an_exception_arrives_as_its_own_type_with_the_remote_traceback(
    spawn: Any,
) -> None:
    actor = spawn(Raises)
    with pytest.raises(ValueError, match="deep down") as caught:
        actor.builtin()
    notes = "\n".join(caught.value.__notes__)
    assert "Remote traceback (Raises, process" in notes
    assert "in builtin" in notes


@everywhere
def test_every_exception_is_its_own_type_from_everywhere(spawn: Any, kind: Any) -> None:
    actor = spawn(kind)
    for name in ERRORS:
        own = type(nasty_error(name))
        assert type(failure(actor.fail.remote(name))) is own, name
        # One that says stop would end the loop of the consumer.
        in_stream = RuntimeError if name.startswith("stop") else own
        got: list[int] = []
        with pytest.raises(in_stream):
            for item in actor.items(3, name):
                got.append(item)
        assert got == [0, 1, 2]
        if kind is Async:
            # Python itself makes that of a StopIteration in a coroutine.
            expected = RuntimeError if name == "stop iteration" else own
            assert type(failure(actor.async_fail.remote(name))) is expected, name
            with pytest.raises(in_stream if name.startswith("stop") else own):
                list(actor.async_items(3, name))
    if kind is Async:
        cancelled = failure(actor.cancels_itself.remote())
        assert type(cancelled) is asyncio.CancelledError
    assert actor.ok(1) == 1


@everywhere
def test_pickling_and_unpickling_may_raise_anything(spawn: Any, kind: Any) -> None:
    actor = spawn(kind)
    for error in (ValueError, KeyboardInterrupt, SystemExit, StopIteration):
        refusal = failure(actor.unpicklable.remote(error))
        assert type(refusal) is TypeError
        assert "the result of" in str(refusal)
        refused = failure(actor.ok.remote(RaisesWhenRebuilt(error)))
        assert isinstance(refused, RuntimeError if error is SystemExit else error)
    with pytest.raises(TypeError, match="the item of .*cannot be pickled"):
        list(actor.items(2, "unpicklable"))
    for error in (StopIteration, StopAsyncIteration):
        with pytest.raises(RuntimeError, match="a generator, raised Stop"):
            list(actor.items(RaisesWhenRebuilt(error)))
    assert actor.ok(1) == 1


@everywhere
def test_what_nobody_hears_harms_nobody(spawn: Any, kind: Any) -> None:
    actor = spawn(kind)
    with actor.fails_when_closed(1000) as stream:
        assert next(stream) == 0
    actor.fail.tell("value")
    actor.loses_stderr()
    actor.fail.tell("value")
    assert type(failure(actor.fail.remote("value"))) is ValueError
    assert actor.ok(1) == 1


def test_an_unpicklable_value_is_named(spawn: Any) -> None:
    counter = spawn(Counter)
    with pytest.raises(TypeError, match="argument 'b' \\(a lock\\)"):
        counter.pair(1, b=threading.Lock())
    with pytest.raises(TypeError, match="argument 0 \\(a lock\\)"):
        counter.echo(threading.Lock())
    assert counter.echo(1) == 1
    with pytest.raises(TypeError, match="the result of Raises.result"):
        spawn(Raises).result()


def test_every_error_is_exported_documented_and_picklable() -> None:
    tree = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.MooError)
    ]
    assert len(tree) > 12
    for kind in tree:
        assert kind.__doc__
        assert getattr(moo, kind.__name__) is kind
        error = kind("what happened", delivered=False)
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert str(copy) == "what happened"
        assert copy.delivered is False
    cause = moo.Cause("signal", signal=11, stderr=("last words",))
    error = pickle.loads(pickle.dumps(moo.ActorDied("gone", cause=cause)))
    assert error.cause == cause
    assert "SIGSEGV" in str(cause)


# -- how an actor ends -----------------------------------------------------


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
    stream = spawn(kind).leave_in_stream(5)
    assert next(stream) == 1
    with pytest.raises(moo.ActorDied) as caught:
        next(stream)
    assert caught.value.cause.exitcode == 5
    leaves = type("Leaves", (kind,), {"__init__": lambda self: sys.exit(9)})
    error = failure(spawn(leaves).ok.remote())
    assert isinstance(error, moo.ActorDied)
    assert (error.cause.kind, error.cause.exitcode) == ("exit", 9)
    if kind is Async:
        actor = spawn(kind)
        others = [actor.async_ok.remote(60.0) for _ in range(3)]
        for ref in [actor.async_leave.remote(4), *others]:
            error = failure(ref)
            assert isinstance(error, moo.ActorDied) and error.cause.exitcode == 4


@pytest.mark.parametrize("method", ["__init__", "on_start", "__restore__"])
def test_a_birth_that_fails_is_the_cause_whatever_it_raised(
    spawn: Any, method: str
) -> None:
    for name in ("value", "no text", "lock"):

        def fail(self: Any, *args: Any, _name: str = name) -> None:
            raise nasty_error(_name)

        parts = {"__snapshot__": lambda self: 1, method: fail}
        stillborn = type("Stillborn", (Serial,), parts)
        actor = spawn(moo.on(stillborn, restart=moo.Restart(max=1)))
        if method == "__restore__":
            actor.ok()  # which a snapshot follows
            failure(actor.leave.remote(1))
        error = failure(actor.ok.remote())
        while isinstance(error, moo.ActorRestarted):
            error = failure(actor.ok.remote())
        assert isinstance(error, moo.ActorDied)
        assert type(error.cause.exception) is type(nasty_error(name)), name
        assert str(error)
        assert str(error.cause)


def test_a_call_cancelled_before_it_began_frees_its_place(spawn: Any) -> None:
    actor = spawn(Async)
    for _ in range(30):
        refs = [actor.async_ok.remote(30.0) for _ in range(20)]
        for ref in refs:
            ref.cancel()
    moo.stop(actor, timeout=WAIT_S)  # would wait for those that never answered
