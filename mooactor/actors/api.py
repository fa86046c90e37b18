# SPDX-License-Identifier: MIT
"""The functions of the public interface that are about calls and actors."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from time import perf_counter
from typing import Any, ParamSpec, TypeVar, overload

from mooactor import errors
from mooactor.actors.handle import RemoteMethod, handle_of
from mooactor.actors.ref import Home, Ref, refuse_on_loop
from mooactor.actors.spawn import ensure_runtime
from mooactor.control import codec, envelope
from mooactor.process.current import current_runtime
from mooactor.process.outcome import Waiter

P = ParamSpec("P")
R = TypeVar("R")


@overload
def submit(
    function: Callable[P, Coroutine[Any, Any, R]],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> Ref[R]: ...
@overload
def submit(
    function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> Ref[R]: ...
def submit(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """``submit(h.m, x)`` is ``h.m.remote(x)``, typed also for undecorated methods.

    Raises:
      TypeError: `function` is no method of a handle.
    """
    if not isinstance(function, RemoteMethod):
        raise TypeError(f"submit takes a method of a handle, not {function!r}")
    return function.remote(*args, **kwargs)


@overload
def get(refs: Ref[R], timeout: float | None = ...) -> R: ...
@overload
def get(refs: Sequence[Ref[R]], timeout: float | None = ...) -> list[R]: ...
def get(refs: Any, timeout: float | None = None) -> Any:
    """The value of a Ref, or the values of several, in their order.

    Args:
      timeout: seconds to wait for all of them together.

    Raises:
      CallTimeout: it passed first.
      BaseException: the first error among them, in their order.
    """
    if isinstance(refs, Ref):
        return refs.get(timeout)
    deadline = None if timeout is None else perf_counter() + timeout
    return [ref.get(_left(deadline)) for ref in refs]


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - perf_counter())


def wait(
    refs: Sequence[Ref[R]], *, num_returns: int = 1, timeout: float | None = None
) -> tuple[list[Ref[R]], list[Ref[R]]]:
    """Wait until `num_returns` of `refs` are done; return (done, the rest).

    Both lists keep the order of `refs`. More than `num_returns` may be done; fewer are
    if `timeout` seconds passed first. It never raises what a call raised.

    Raises:
      ValueError: `num_returns` is not between 1 and the number of Refs.
      RuntimeError: on a running event loop, which it would freeze.
    """
    if not 1 <= num_returns <= max(1, len(refs)):
        raise ValueError(f"num_returns={num_returns} of {len(refs)} Refs")
    pending = [ref for ref in refs if not ref.done()]
    missing = num_returns - (len(refs) - len(pending))
    if missing > 0 and pending:
        refuse_on_loop("several Refs")
        _wait_some(pending, missing, timeout)
    done = [ref for ref in refs if ref.state]
    return done, [ref for ref in refs if not ref.state]


def _wait_some(refs: list[Ref[Any]], count: int, timeout: float | None) -> None:
    runtime = current_runtime()
    runtime.flush()
    waiter = Waiter(count)
    for ref in refs:
        ref.listen(waiter.notify)
    deadline = None if timeout is None else perf_counter() + timeout
    runtime.pump.wait(waiter.satisfied, deadline, waiter)
    for ref in refs:
        ref.unlisten(waiter.notify)


def as_completed(
    refs: Sequence[Ref[R]], *, timeout: float | None = None
) -> Iterator[Ref[R]]:
    """Yield each Ref as it is done.

    Raises:
      CallTimeout: some were not done within `timeout` seconds of the first step.
    """
    rest = list(refs)
    deadline = None if timeout is None else perf_counter() + timeout
    while rest:
        done, rest = wait(rest, timeout=_left(deadline))
        if not done:
            raise errors.CallTimeout(f"{len(rest)} calls not done within {timeout} s")
        yield from done


def put(value: R) -> Ref[R]:
    """Store a value here and return a Ref to it.

    It is encoded once, large arrays into shared memory. Every actor that gets the Ref
    as an argument gets the value, and the arrays without another copy. Later changes
    of `value` do not show. The memory is free again when nobody holds the Ref.

    Raises:
      OutOfMemory: there is no room.
      TypeError: it cannot be pickled.
    """
    runtime = ensure_runtime()
    try:
        data, buffers = codec.encode(value)
    except errors.MooError:
        raise
    except Exception as error:
        raise TypeError(f"cannot pickle what was put: {error}") from error
    stored = runtime.store(data, buffers)
    ref: Ref[R] = Ref(runtime, f"put {type(value).__name__}")
    ref.home = Home(runtime.process_id, runtime.objects.add_stored(stored))
    ref.set_raw(stored)
    return ref


def stop(handle: Any, timeout: float | None = 60.0) -> None:
    """Let an actor finish the calls queued so far, run its `on_stop`, and end.

    Returns when its process is gone. It is not restarted.

    Raises:
      CallTimeout: it still runs after `timeout` seconds; `kill` ends it.
    """
    runtime, link = handle_of(handle)._where()
    if link.cause is not None:
        return
    runtime.flush()
    runtime.post(link.process_id, envelope.STOP, 0)
    try:
        runtime.agent.ask(timeout, op="await_end", id=link.actor_id)
    except errors.CallTimeout:
        raise errors.CallTimeout(
            f"{link.label} has not ended within {timeout} s; moo.kill() ends it now"
        ) from None


def kill(handle: Any) -> None:
    """End an actor's process now, and those that it started. It is not restarted.

    Calls under way fail with `ActorDied`. Returns when the process is gone.
    """
    runtime, link = handle_of(handle)._where()
    runtime.agent.ask(op="kill", id=link.actor_id)


def hosts() -> list[dict[str, Any]]:
    """The hosts of this session: name, number of CPUs, actors that run there."""
    rows = ensure_runtime().agent.ask(op="list")["value"]
    actors = [row for row in rows if row["pid"] is not None]
    return [
        {"name": socket.gethostname(), "cpus": os.cpu_count(), "actors": actors},
    ]


def stats() -> dict[str, Any]:
    """This process's part in the session.

    Counts of calls under way, of objects held and of data that is arriving; `memory`:
    shared memory in use, and bytes moved over networks; `cuda`: how many CUDA tensors
    were sent and got within the GPU (`…_shared`), by RDMA from GPU to GPU (`…_direct`)
    and through main memory (`…_staged`), whether the last receiver by RDMA could read
    them or why not (`direct`), and what is lent and open, empty if there were none;
    `peers`: for each process that was sent something, what data for it goes by
    (`transport`, None if none went yet), why, and the bytes.
    """
    return ensure_runtime().statistics()
