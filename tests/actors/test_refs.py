# SPDX-License-Identifier: MIT
from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import pickle
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Async, Counter
from tests.conftest import eventually


def test_get_takes_one_ref_or_several(spawn: Any) -> None:
    counter = spawn(Counter)
    refs = [counter.echo.remote(i) for i in range(5)]
    assert moo.get(refs[0]) == 0
    assert moo.get(refs) == [0, 1, 2, 3, 4]


def test_a_ref_can_be_read_again(spawn: Any) -> None:
    ref = spawn(Counter).echo.remote([1])
    assert ref.get() is ref.get()


def test_get_with_a_timeout_leaves_the_call_running(spawn: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    ref = spawn(Counter).until.remote(gate)
    with pytest.raises(moo.CallTimeout):
        ref.get(timeout=0.05)
    gate.touch()
    assert ref.get() == "gate"


def test_the_timeout_is_a_timeout_error(spawn: Any) -> None:
    ref = spawn(Counter).sleep.remote(60)
    with pytest.raises(TimeoutError):
        moo.get([ref], timeout=0.05)


def test_wait_returns_who_is_done_first(spawn: Any) -> None:
    quick, slow = spawn(Counter), spawn(Counter)
    refs = [slow.sleep.remote(60), quick.sleep.remote(0.01)]
    done, rest = moo.wait(refs, num_returns=1)
    assert done == [refs[1]]
    assert rest == [refs[0]]
    refs[0] = quick.sleep.remote(0.01)
    assert moo.wait(refs, num_returns=2) == (refs, [])


def test_wait_gives_up_at_its_timeout(spawn: Any) -> None:
    ref = spawn(Counter).sleep.remote(60)
    start = time.perf_counter()
    assert moo.wait([ref], timeout=0.05) == ([], [ref])
    assert time.perf_counter() - start < 30


def test_wait_refuses_an_impossible_number(spawn: Any) -> None:
    with pytest.raises(ValueError, match="num_returns"):
        moo.wait([spawn(Counter).echo.remote()], num_returns=2)


def test_as_completed_yields_in_the_order_of_completion(
    spawn: Any, tmp_path: Path
) -> None:
    gates = [tmp_path / name for name in "abc"]
    completed = moo.as_completed([spawn(Counter).until.remote(gate) for gate in gates])
    for gate in (gates[1], gates[2], gates[0]):
        gate.touch()
        assert next(completed).get() == gate.name


def test_done_turns_true_without_a_wait(spawn: Any) -> None:
    ref = spawn(Counter).echo.remote(1)
    assert eventually(ref.done)
    assert ref.get() == 1


def test_callbacks_run_though_nobody_waits(spawn: Any) -> None:
    called = threading.Event()
    seen: list[Any] = []

    def callback(ref: Any) -> None:
        seen.append(ref)
        called.set()

    ref = spawn(Counter).echo.remote(1)
    ref.add_done_callback(callback)
    assert called.wait(60)
    assert seen == [ref]


def test_a_callback_on_a_done_ref_runs_at_once(spawn: Any) -> None:
    ref = spawn(Counter).echo.remote(1)
    ref.get()
    seen: list[Any] = []
    ref.add_done_callback(seen.append)
    assert seen == [ref]


def test_exception_returns_the_error_or_none(spawn: Any) -> None:
    counter = spawn(Counter)
    assert counter.echo.remote(1).exception() is None
    error = counter.fail.remote(KeyError("k")).exception()
    assert isinstance(error, KeyError)


def test_a_ref_has_the_surface_of_a_future(spawn: Any) -> None:
    ref = spawn(Counter).echo.remote(3)
    surface = ("result", "exception", "add_done_callback", "cancel", "done", "running")
    assert all(hasattr(ref, name) for name in surface)
    assert isinstance(ref.result(timeout=60), int)
    assert not issubclass(moo.Ref, concurrent.futures.Future)


def test_refs_can_be_awaited_and_gathered(spawn: Any) -> None:
    counter = spawn(Counter)

    async def main() -> list[int]:
        one = await counter.echo.remote(1)
        more = await asyncio.gather(*[counter.echo.remote(i) for i in range(20)])
        return [one, *more]

    assert asyncio.run(main()) == [1, *range(20)]


def test_wait_for_times_out_and_the_loop_goes_on(spawn: Any, tmp_path: Path) -> None:
    counter, gate = spawn(Counter), tmp_path / "gate"

    async def main() -> Any:
        ref = counter.until.remote(gate)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(ref), 0.05)
        gate.touch()
        return await ref

    assert asyncio.run(main()) == "gate"


def test_a_blocking_call_on_a_running_loop_raises(spawn: Any) -> None:
    counter = spawn(Counter)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="await"):
            counter.echo(1)
        ref = counter.echo.remote(1)
        with pytest.raises(RuntimeError, match="await"):
            ref.get()
        assert await ref == 1

    asyncio.run(main())


def test_several_loops_one_after_the_other_work(spawn: Any) -> None:
    counter = spawn(Async)
    for i in range(3):

        async def main() -> float:
            return float(await counter.nap(0.01 * i))

        assert asyncio.run(main()) == 0.01 * i


def test_a_ref_as_an_argument_hands_over_its_value(spawn: Any) -> None:
    first, second = spawn(Counter), spawn(Counter)
    pending = first.sleep.remote(0.2)
    assert second.echo(pending) == 0.2
    assert second.pair(first.echo.remote("a"), b=pending) == ("a", 0.2)


def test_a_done_ref_as_an_argument_hands_over_its_value(spawn: Any) -> None:
    first, second = spawn(Counter), spawn(Counter)
    ref = first.echo.remote({"k": 1})
    ref.get()
    assert second.echo(ref) == {"k": 1}


def test_a_failed_ref_as_an_argument_fails_the_call(spawn: Any) -> None:
    first, second = spawn(Counter), spawn(Counter)
    ref = first.fail.remote(ValueError("upstream"))
    with pytest.raises(ValueError, match="upstream"):
        second.echo(ref)


def test_a_ref_of_an_actor_that_dies_fails_the_call_that_waits_for_it(
    spawn: Any,
) -> None:
    first, second = spawn(Counter), spawn(Counter)
    ref = first.sleep.remote(30)
    call = second.echo.remote(ref)
    moo.kill(first)
    with pytest.raises(moo.ActorDied):
        call.get(timeout=60)


def test_calls_behind_one_that_waits_for_a_value_keep_their_order(spawn: Any) -> None:
    first, second = spawn(Counter), spawn(Counter)
    second.note.tell(first.sleep.remote(0.2))
    second.note.tell("after")
    assert second.notes() == [0.2, "after"]


def test_refs_inside_containers_stay_refs(spawn: Any) -> None:
    first, second = spawn(Counter), spawn(Counter)
    inner = first.sleep.remote(0.1)
    back = second.echo([inner])
    assert back[0].get() == 0.1


def test_an_actor_can_get_a_ref_that_it_was_given(spawn: Any) -> None:
    @moo.actor
    class Reader:
        def read(self, refs: list[Any]) -> list[Any]:
            return [ref.get() for ref in refs]

    counter = spawn(Counter)
    refs = [counter.echo.remote(i) for i in range(3)]
    assert spawn(Reader).read(refs) == [0, 1, 2]


def test_put_gives_everyone_the_same_value(group: Any) -> None:
    members = group(Counter, 3)
    ref = moo.put({"weights": list(range(1000))})
    assert ref.get() == {"weights": list(range(1000))}
    assert members.call(Counter.echo, ref).get() == [ref.get()] * 3


def test_what_was_put_does_not_change_with_its_source(spawn: Any) -> None:
    value = [1, 2]
    ref = moo.put(value)
    value.append(3)
    assert spawn(Counter).echo(ref) == [1, 2]
    assert ref.get() == [1, 2]


def test_dropped_refs_free_their_objects(spawn: Any) -> None:
    counter = spawn(Counter)
    ref = moo.put([1])
    counter.note([ref])
    del ref
    assert counter.notes()[0][0].get() == [1]
    moo.kill(counter)
    assert eventually(lambda: (moo.put(0), moo.stats()["objects"])[1] <= 1)


def test_a_ref_can_be_pickled_by_hand(spawn: Any) -> None:
    ref = spawn(Counter).echo.remote("kept")
    assert pickle.loads(pickle.dumps(ref)).get() == "kept"


def test_submit_is_remote(spawn: Any) -> None:
    counter = spawn(Counter)
    assert moo.submit(counter.add, 2).get() == 2
    with pytest.raises(TypeError, match="method of a handle"):
        moo.submit(len, [])


async def awaited(box: list[Any]) -> Any:
    return await box.pop()


LOOKS: dict[str, Callable[[list[Any]], Any]] = {
    "exception": lambda box: box.pop().exception(),
    "get": lambda box: box.pop().get(),
    "moo.get": lambda box: moo.get([box.pop()]),
    "await": lambda box: asyncio.run(awaited(box)),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize("kind", ["raised", "refused"])
def test_an_error_that_was_looked_at_keeps_nothing_alive(
    spawn: Any, look: Callable[[list[Any]], Any], kind: str
) -> None:
    """Without the garbage collector."""
    counter: Any = spawn(Counter)
    if kind == "refused":
        moo.kill(counter)
    box: list[Any] = [counter.fail.remote(ValueError("no"))]
    ref = weakref.ref(box[0])
    gc.disable()
    try:
        with contextlib.suppress(ValueError, moo.ActorDied):
            look(box)
        assert eventually(lambda: ref() is None, 5)
    finally:
        gc.enable()
