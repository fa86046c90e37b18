# SPDX-License-Identifier: MIT
from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.conftest import eventually

# -- reading ---------------------------------------------------------------


def test_get_takes_one_ref_or_several(spawn: Any) -> None:
    counter = spawn(Counter)
    refs = [counter.echo.remote([i]) for i in range(5)]
    assert moo.get(refs[0]) == [0]
    assert moo.get(refs) == [[0], [1], [2], [3], [4]]
    assert refs[0].get() is refs[0].get()  # it can be read again


def test_get_with_a_timeout_leaves_the_call_running(spawn: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    ref = spawn(Counter).until.remote(gate)
    for get in (ref.get, lambda timeout: moo.get([ref], timeout=timeout)):
        with pytest.raises(TimeoutError) as caught:
            get(timeout=0.05)
        assert isinstance(caught.value, moo.CallTimeout)
    gate.touch()
    assert ref.get() == "gate"


def test_a_ref_has_the_surface_of_a_future(spawn: Any) -> None:
    counter = spawn(Counter)
    ref = counter.echo.remote(3)
    surface = ("result", "exception", "add_done_callback", "cancel", "done", "running")
    assert all(hasattr(ref, name) for name in surface)
    assert ref.result(timeout=60) == 3
    assert ref.exception() is None
    assert not issubclass(moo.Ref, concurrent.futures.Future)
    error = counter.fail.remote(KeyError("k")).exception()
    assert isinstance(error, KeyError)
    assert eventually(counter.echo.remote(1).done)  # without a wait


def test_callbacks_run_though_nobody_waits(spawn: Any) -> None:
    called = threading.Event()
    seen: list[Any] = []

    def callback(ref: Any) -> None:
        seen.append(ref)
        called.set()

    ref = spawn(Counter).echo.remote(1)
    ref.add_done_callback(callback)
    assert called.wait(60)
    ref.add_done_callback(seen.append)  # at once, of one that is done
    assert seen == [ref, ref]


# -- waiting for several ---------------------------------------------------


def test_wait_returns_those_that_are_done(spawn: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    quick, slow = spawn(Counter), spawn(Counter)
    refs = [slow.until.remote(gate), quick.echo.remote(1), quick.echo.remote(2)]
    assert moo.wait(refs[:2]) == (refs[1:2], refs[:1])
    # One that is done already counts.
    assert moo.wait(refs, num_returns=2) == (refs[1:], refs[:1])
    assert moo.wait(refs[:1], timeout=0.05) == ([], refs[:1])
    gate.touch()
    assert moo.wait(refs, num_returns=3) == (refs, [])
    with pytest.raises(ValueError, match="num_returns"):
        moo.wait(refs, num_returns=4)


def test_as_completed_yields_in_the_order_of_completion(
    spawn: Any, tmp_path: Path
) -> None:
    gates = [tmp_path / name for name in "abc"]
    completed = moo.as_completed([spawn(Counter).until.remote(gate) for gate in gates])
    for gate in (gates[1], gates[2], gates[0]):
        gate.touch()
        assert next(completed).get() == gate.name
    assert list(completed) == []


# -- asyncio ---------------------------------------------------------------


def test_refs_can_be_awaited_and_gathered(spawn: Any) -> None:
    counter = spawn(Counter)

    async def main() -> list[int]:
        one = await counter.echo.remote(1)
        more = await asyncio.gather(*[counter.echo.remote(i) for i in range(20)])
        return [one, *more]

    assert asyncio.run(main()) == [1, *range(20)]


# -- as arguments ----------------------------------------------------------


def test_a_ref_as_an_argument_hands_over_its_value(spawn: Any, tmp_path: Path) -> None:
    first, second, gate = spawn(Counter), spawn(Counter), tmp_path / "gate"
    done = first.echo.remote({"k": 1})
    done.get()
    pending = first.until.remote(gate)
    calls = [second.pair.remote(done, b=pending), second.echo.remote(pending)]
    second.note.tell(pending)
    second.note.tell("after")  # calls behind it keep their order
    gate.touch()
    assert moo.get(calls) == [({"k": 1}, "gate"), "gate"]
    assert second.notes() == ["gate", "after"]


def test_a_ref_that_fails_fails_the_call_that_waits_for_it(spawn: Any) -> None:
    first, second = spawn(Counter), spawn(Counter)
    with pytest.raises(ValueError, match="upstream"):
        second.echo(first.fail.remote(ValueError("upstream")))
    call = second.echo.remote(first.sleep.remote(600))
    moo.kill(first)
    with pytest.raises(moo.ActorDied):
        call.get(timeout=60)


def test_put_gives_everyone_the_value_of_that_moment(group: Any) -> None:
    members, value = group(Counter, 3), {"weights": list(range(1000))}
    ref = moo.put(value)
    value["weights"].append(3)
    assert ref.get() == {"weights": list(range(1000))}
    assert members.call(Counter.echo, ref).get() == [ref.get()] * 3


def test_submit_is_remote(spawn: Any) -> None:
    counter = spawn(Counter)
    assert moo.submit(counter.add, 2).get() == 2
    with pytest.raises(TypeError, match="method of a handle"):
        moo.submit(len, [])


# -- what they keep alive --------------------------------------------------


async def awaited(box: list[Any]) -> Any:
    return await box.pop()


LOOKS: dict[str, Callable[[list[Any]], Any]] = {
    "exception": lambda box: box.pop().exception(),
    "get": lambda box: box.pop().get(),
    "moo.get": lambda box: moo.get([box.pop()]),
    "await": lambda box: asyncio.run(awaited(box)),
}


@pytest.mark.parametrize("kind", ["raised", "refused"])
def test_an_error_that_was_looked_at_keeps_nothing_alive(spawn: Any, kind: str) -> None:
    """Without the garbage collector."""
    counter: Any = spawn(Counter)
    counter.add()
    if kind == "refused":
        moo.kill(counter)
    for look in LOOKS.values():
        box: list[Any] = [counter.fail.remote(ValueError("no"))]
        ref = weakref.ref(box[0])
        gc.disable()
        try:
            with contextlib.suppress(ValueError, moo.ActorDied):
                look(box)
            assert eventually(lambda ref=ref: ref() is None, 5)
        finally:
            gc.enable()
