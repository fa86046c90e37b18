# SPDX-License-Identifier: MIT
"""The public functions for calls and actors."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from time import perf_counter
from typing import Any, ParamSpec, TypeVar, cast, overload

from msgspec.structs import asdict

from mooactor import errors
from mooactor.actors.handle import RemoteMethod, handle_of
from mooactor.actors.ref import Ref, refuse_on_loop
from mooactor.actors.session import ensure_runtime
from mooactor.actors.statistics import Stats, make
from mooactor.control import codec, envelope
from mooactor.control.complaints import was_interrupted
from mooactor.process import checks
from mooactor.process.current import current_runtime
from mooactor.process.loops import refuse_to_block
from mooactor.process.objects.borrow import Borrowing
from mooactor.process.objects.future import Future
from mooactor.process.objects.table import Stored
from mooactor.process.protocol import AwaitEnd, Count, HostRow, Kill, ListHosts, Row

_AGENT_S = 1.0
_IN_A_THREAD = "`await asyncio.to_thread({})`"

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
    checks.kind("function", function, RemoteMethod, "a method of a handle")
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
      TypeError: `refs` has something else than Refs in it.
    """
    if isinstance(refs, Ref):
        return refs.get(timeout)
    refs = _listed(refs, "a Ref or a list of Refs")
    timeout = checks.seconds("timeout", timeout)
    deadline = None if timeout is None else perf_counter() + timeout
    values, ref = [], None
    _want(refs)
    try:
        for ref in refs:
            values.append(ref.get(_left(deadline)))
        return values
    except BaseException:
        for ref in refs:
            ref.hear()  # this error speaks for those behind it
        raise
    finally:
        del refs, ref  # see `Future.unwrap`


def _listed(refs: Any, what: str) -> list[Ref[Any]]:
    """The argument `refs` of a public function, which must be `what`."""
    if isinstance(refs, Ref):
        raise TypeError(f"{checks.shown('refs', refs)} must be {what}: write [ref]")
    checks.kind("refs", refs, Iterable, what)
    listed = list(refs)
    for index, ref in enumerate(listed):
        if not isinstance(ref, Ref):
            checks.kind(f"refs[{index}]", ref, Ref, "a Ref, as .remote(…) returns it")
    return listed


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - perf_counter())


def prefetch(refs: Ref[Any] | Sequence[Ref[Any]]) -> None:
    """Have the values of Refs fetched as soon as they are there, before they are read.

    A large result of another host stays there until somebody reads it; see
    `hosts.md`. Returns at once; the first `get` then waits for less.

    Raises:
      TypeError: `refs` has something else than Refs in it.
    """
    _want([refs] if isinstance(refs, Ref) else _listed(refs, "a Ref or a list of Refs"))


def _want(refs: Iterable[Ref[Any]]) -> None:
    for ref in refs:
        ref.want()


def wait(
    refs: Sequence[Ref[R]],
    *,
    num_returns: int = 1,
    timeout: float | None = None,
    fetch: bool = False,
) -> tuple[list[Ref[R]], list[Ref[R]]]:
    """Wait until `num_returns` of `refs` are done; return (done, the rest).

    Both lists keep the order of `refs`. More than `num_returns` may be done; fewer are
    if `timeout` seconds passed first. It never raises a call's error.

    Args:
      fetch: fetch the values of all of them as `prefetch` does, and count those as done
        whose values are here. Otherwise large results stay on the hosts that made them.

    Raises:
      TypeError: `refs` is no list of Refs.
      ValueError: `num_returns` is not between 1 and the number of Refs.
      RuntimeError: on a running event loop, which it would freeze.
    """
    refs = _listed(refs, "a list of Refs")
    timeout = checks.seconds("timeout", timeout)
    most = max(1, len(refs))
    num_returns = checks.count(
        "num_returns", num_returns, "a number of the Refs given", least=1, most=most
    )
    if checks.flag("fetch", fetch):
        _want(refs)
    is_done: Callable[[Ref[R]], bool] = Ref.is_here if fetch else _has_ended
    pending = [ref for ref in refs if not (ref.done() and is_done(ref))]
    missing = num_returns - (len(refs) - len(pending))
    if missing > 0 and pending:
        refuse_on_loop("several Refs")
        awaited: list[Future] = list(pending)
        if fetch:
            awaited = [one for ref in pending for one in ref.missing()]
        needed = missing + len(awaited) - len(pending)
        enough = lambda: sum(map(is_done, pending)) >= missing  # noqa: E731
        current_runtime().wait_some(awaited, needed, enough, timeout)
    done: list[Ref[R]] = []
    rest: list[Ref[R]] = []
    for ref in refs:
        (done if is_done(ref) else rest).append(ref)
    return done, rest


def _has_ended(ref: Ref[Any]) -> bool:
    return ref.state != 0


def as_completed(
    refs: Sequence[Ref[R]], *, timeout: float | None = None
) -> Iterator[Ref[R]]:
    """Yield each Ref as it is done, and its value here.

    Raises:
      CallTimeout: some were not done within `timeout` seconds of the first step.
      TypeError: `refs` is no list of Refs.
    """
    rest = _listed(refs, "a list of Refs")
    return _as_completed(rest, checks.seconds("timeout", timeout))


def _as_completed(rest: list[Ref[R]], timeout: float | None) -> Iterator[Ref[R]]:
    deadline = None if timeout is None else perf_counter() + timeout
    while rest:
        done, rest = wait(rest, timeout=_left(deadline), fetch=True)
        if not done:
            raise errors.CallTimeout(
                f"{len(rest)} calls were not done within {timeout} s; they go on: "
                "wait again, or cancel them"
            )
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
    runtime.sender.do_what_is_due()  # earlier values may have gone: there is room
    try:
        borrowing = Borrowing(runtime.borrows)
        data, buffers = borrowing.note(codec.encode, value)
    except errors.MooError:
        raise
    except Exception as error:
        if was_interrupted(error):
            raise
        raise TypeError(f"moo.put cannot pickle the value: {error}") from error
    stored = Stored(runtime.payloads, data, buffers, borrowing)
    ref: Ref[R] = Ref(runtime, f"put {type(value).__name__}")
    ref.home = runtime.objects.own(stored, runtime.borrows)
    ref.set_raw(stored)
    return ref


def stop(handle: Any, timeout: float | None = 60.0) -> None:
    """Let an actor finish the calls queued so far, run its `on_stop`, and end.

    The actors that it spawned are then asked to stop as well, and killed after three
    seconds. Returns when all these processes are gone. None is restarted.

    Raises:
      CallTimeout: it still runs after `timeout` seconds; `kill` ends it.
      RuntimeError: on a running event loop, which it would freeze.
    """
    timeout = checks.seconds("timeout", timeout)
    runtime, link = handle_of(handle)._where()
    if link.cause is not None:
        return
    refuse_to_block(f"{link.label} to stop", _IN_A_THREAD.format("moo.stop, handle"))
    runtime.flush()
    # Read once: if the actor is restarted meanwhile, the agent learns that the process
    # which was told is not the one that runs.
    to = link.incarnation
    runtime.sender.post(link.actor_id + to, envelope.STOP, 0)
    try:
        runtime.agent.ask(AwaitEnd(link.actor_id, to), timeout)
    except errors.CallTimeout:
        raise errors.CallTimeout(
            f"{link.label} has not ended within {timeout} s; moo.kill() ends it now"
        ) from None


def kill(handle: Any) -> None:
    """End an actor's process now, with all that it started: processes and, unless they
    are detached, actors. It is not restarted.

    Calls under way fail with `ActorDied`. Returns when the actors' processes are gone.
    """
    runtime, link = handle_of(handle)._where()
    runtime.agent.ask(Kill(link.actor_id))


def hosts() -> list[dict[str, Any]]:
    """The hosts on which this session can have actors: the driver's own first, if it is
    one of them, and the others by name.

    Of each: ``name``; ``address`` of its agent, empty without a broker; ``cpus``,
    ``gpus``, ``memory`` in bytes and ``labels``; what of these is ``free``; ``alive``;
    and ``actors``, those of this session that run there.

    Of each actor: ``id``, ``label`` (its class and name), ``name``, ``pid``, ``state``,
    ``owner`` and ``detached`` as in `ActorInfo`; ``incarnation``, the number of its
    restarts; the ``cores`` that it is bound to, none if it may run on all; the number
    of ``threads`` that ``num_cpus=`` gives it; and ``cuda_visible_devices``, that
    variable in its environment. It names the GPUs that the actor sees: with
    ``num_gpus=`` its own. None: it is not set, and the actor sees all.
    """
    found = cast(list[HostRow], ensure_runtime().agent.ask(ListHosts()).value)
    rows = [asdict(row) for row in found]
    for row in rows:
        row["free"] = asdict(row["free"])
        row["actors"] = [_actor(one) for one in row["actors"] if one.pid is not None]
    return rows


def _actor(row: Row) -> dict[str, Any]:
    fields = asdict(row)
    del fields["host"]  # it stands there
    return fields


def stats() -> Stats:
    """This process's part in the session: a dict, printed as a summary.

    `calls_pending`, `values_pending`, `arriving`: counts of what is under way.
    `objects`, `relayed`, `links`: counts of values held for others, of values passed
    on, and of actors known. `dropped`: messages that were malformed, foreign or too
    late. `strangers`: connections of other hosts that were refused. `transport`: the
    allowed transports.

    `memory`: shared memory. Sizes: `limit_bytes`, `used_bytes`, `reserved_bytes`
    (address space), `resident_bytes`, `imported_bytes` (received and in use). Counts:
    `slabs`, `blocks`, `leases`, `imports`, `fetches` (under way). Since the start:
    `exports`, `exports_copied`, `bytes_copied`, and over networks
    `fetched_tcp_bytes`, `fetched_ofi_bytes`, `served_tcp_bytes`.

    `cuda`: counts of CUDA tensors sent and received within the GPU (`…_shared`), by
    RDMA from GPU to GPU (`…_direct`) and through main memory (`…_staged`), whether the
    last receiver by RDMA could read them or why not (`direct`), and the memory lent and
    open; empty if there were none.

    `session`: counts for the whole session. `actors` that are not over; since the
    start, `deaths` that nobody had asked for, `restarts`, and supervisors that
    `gave_up`. Empty if the agent does not answer within a second.

    `peers`: a row for each process that was sent something: `process`, `actor`, the
    `transport` of data for it (None if none went yet), `why`, `bytes_sent` and
    `bytes_fetched`.
    """
    runtime = ensure_runtime()
    try:
        session: Any = runtime.agent.ask(Count(), _AGENT_S).value
    except (errors.CallTimeout, errors.ActorUnavailable):
        session = {}  # the rest is of interest just then
    return make({**runtime.statistics(), "session": session})
