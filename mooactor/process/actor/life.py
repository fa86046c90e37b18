# SPDX-License-Identifier: MIT
"""An actor's life in its process: it is made, serves, and ends.

The end is as Python ends a program. The process is a fork, and ends by `os._exit`: a
real teardown would take down what the zygote has imported, which is slow and of no use.
So what a program counts on is done here, in Python's order: the actor's object is
dropped, threads that are no daemons are waited for, `atexit` handlers and finalizers
run, files are flushed. That has the grace of the end. A step that takes longer is
named, and cut.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import inspect
import io
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from mooactor import errors
from mooactor.control import codec, script
from mooactor.control.complaints import complain
from mooactor.control.lifeline import Lifeline
from mooactor.control.reach import Reach
from mooactor.process import parcel, signals, system
from mooactor.process.actor import debugger, threads
from mooactor.process.actor.serial import SerialWorker
from mooactor.process.actor.worker import Worker
from mooactor.process.calls import CallContext, context
from mooactor.process.current import importing, set_current_runtime
from mooactor.process.environment import Place, Streams
from mooactor.process.interface import Interface, interface_of
from mooactor.process.objects.future import Future
from mooactor.process.protocol import Failed, Life, Ready, unpacked
from mooactor.process.runtime import Runtime
from mooactor.times import GRACE_S

if TYPE_CHECKING:
    from mooactor.process.actor.concurrent import ConcurrentWorker

_FETCHING_S = 30.0  # the same, for others to fetch its results
_FIRST_PARCEL = 4  # the number of the first parcel's descriptor
#: The agent takes no larger frames, and the type and the text are what matters.
_MAX_FAILURE_BYTES = 1 << 20


def live(
    life: Life,
    lifeline_socket: socket.socket,
    adopted: Callable[[], None],
    started: Callable[[], None],
) -> None:
    """The whole life of an actor's process; returns when it has ended well.

    `adopted` waits until this process dies with the agent, which it must before it
    runs any code of the user's. `started` is called just before that.
    """
    lifeline = Lifeline(lifeline_socket)
    script.enter()
    try:
        runtime = _make_runtime(lifeline, life)
        adopted()
        # Others may connect while the class is imported.
        runtime.housekeeper.start(looking=False)
        started()
        worker = _make_worker(runtime, life)
    except SystemExit:
        raise  # its own wish: the exit code is the cause
    except BaseException as error:
        where = f"{life.label}, process {os.getpid()}"
        reason = codec.encode_error(error, where, _MAX_FAILURE_BYTES)
        lifeline.send(Failed(reason))
        raise SystemExit(1) from None
    runtime.agent.tell(Ready())
    try:
        try:
            worker.run()
            _end(worker)
        except SystemExit:
            _finalize(worker, wait=False)  # its own wish: nobody is waited for
            raise
        _finalize(worker)
    finally:  # also on SystemExit: replies of calls that have ended leave first
        runtime.close()


def _finalize(worker: Worker, *, wait: bool = True) -> None:
    def drop() -> None:
        worker.instance = None

    parts, start = worker.parts, perf_counter()
    told_s = parts.agent.grace_s
    parts.results.ask_holders()
    grace_s = GRACE_S if told_s is None else told_s
    finalize(worker.label, drop, grace_s, wait=wait)
    fetching_s = _FETCHING_S if told_s is None else told_s
    parts.poller.wait(parts.results.all_fetched, start + fetching_s)


def _make_runtime(lifeline: Lifeline, life: Life) -> Runtime:
    origin = _place_of_the_zygote()
    _move_out(life)  # before anything has a socket or a thread
    runtime = Runtime(
        os.fsdecode(life.directory),
        life.key,
        life.actor_id + life.incarnation,
        lifeline,
        memory_limit=life.memory_limit,
        network=life.network.with_environment(unpacked(life.env)),
        streams=Streams.of_actor(life),
        origin=origin,
        reach=life.reach,
        driver=life.driver,
    )
    runtime.expect_calls()
    runtime.streams.begin()
    threads.tell_libraries()
    set_current_runtime(runtime)
    runtime.agent.on_agent_lost = lambda: os._exit(1)
    signals.describe_process(life.label, signals.lines_of_session)
    return runtime


def _move_out(life: Life) -> None:
    """Give this process the surroundings of its own, instead of the zygote's."""
    threads.set_variables(unpacked(life.env), life.threads)
    if life.cores:
        os.sched_setaffinity(0, life.cores)
    if life.place is not None:
        life.place.enter()
    namespace = os.environ.get(system.NETNS_VARIABLE)
    if namespace:
        system.enter_network_namespace(namespace)


def _place_of_the_zygote() -> Place | None:
    """The place of the fork: None if its directory is gone."""
    try:
        return Place.here()
    except errors.PlacementError:
        return None


def _kind_of(interface: Interface) -> type[SerialWorker] | type[ConcurrentWorker]:
    if interface.serial:
        return SerialWorker
    from mooactor.process.actor.concurrent import ConcurrentWorker

    return ConcurrentWorker


def _make_worker(runtime: Runtime, life: Life) -> Worker:
    parcels = _parcels(life)
    try:
        with importing():
            _set_up(life.setup)
            cls, args, kwargs = _taken(parcels["payload"])
    except ModuleNotFoundError as error:
        raise _not_found_here(error, life.reach) from None
    interface = interface_of(cls)
    worker = _kind_of(interface)(runtime, interface, life)
    runtime.agent.when_asked_to_stop(worker.stop_now)
    runtime.serve(worker)  # calls may come while the constructor waits for others
    runtime.housekeeper.look_from_now_on()
    worker.current = _birth_context(worker)
    context.set(worker.current)
    debugger.install(runtime.directory, worker.label)
    args = tuple(_resolved(runtime, arg) for arg in args)
    kwargs = {key: _resolved(runtime, arg) for key, arg in kwargs.items()}
    worker.instance = worker.construct(partial(_made, worker, cls, args, kwargs))
    del args, kwargs
    if "snapshot" in parcels:
        _run_hook(worker, "__restore__", _taken(parcels["snapshot"]))
    _run_hook(worker, "on_start")
    worker.current = None
    context.set(None)
    return worker


def _set_up(packed: bytes | None) -> None:
    """The program's first act in each actor's process; see `moo.init`."""
    if packed is None:
        return
    setup = codec.decode(packed)
    if isinstance(setup, str):
        module, _, name = setup.partition(":")
        setup = getattr(importlib.import_module(module), name)
    setup()


def _parcels(life: Life) -> dict[str, parcel.Parcel]:
    """The parcels that came inside the message, and beside it as descriptors."""
    found: dict[str, parcel.Parcel] = {}
    for key, data in (("payload", life.payload), ("snapshot", life.snapshot)):
        if data is not None:
            found[key] = parcel.Parcel(data)
    for number, key in enumerate(life.carried, _FIRST_PARCEL):
        found[key] = parcel.Parcel(None, number)
    return found


def _not_found_here(error: ModuleNotFoundError, reach: Reach | None) -> Exception:
    if reach is None:  # a session of this machine alone
        return error
    text = (
        f"{error} on host {reach.host}: copy the code there to where the program has "
        "it, or start with mooactor run --sync"
    )
    return ModuleNotFoundError(text, name=error.name, path=error.path)


def _taken(one: parcel.Parcel) -> Any:
    try:
        return parcel.unpack(one)
    finally:
        one.close()


def _resolved(runtime: Runtime, arg: Any) -> Any:
    """A Ref given to a constructor stands for its value, as in a call."""
    return arg.get() if isinstance(arg, Future) else arg  # type: ignore[attr-defined]


def _birth_context(worker: Worker) -> CallContext:
    return CallContext(worker.parts.actor_id, worker.label, 0, 0, (), None, "__init__")


def _made(worker: Worker, cls: Any, args: Any, kwargs: Any) -> Any:
    context.set(worker.current)
    return cls(*args, **kwargs)


def _run_hook(worker: Worker, name: str, *args: Any) -> None:
    hook = getattr(worker.instance, name, None)
    if hook is None:
        return
    if inspect.iscoroutinefunction(hook):
        worker.complete(hook(*args))
        return
    result = worker.construct(partial(hook, *args))
    if inspect.isawaitable(result):
        worker.complete(result)


def _end(worker: Worker) -> None:
    """Run `on_stop`. Its error is printed and costs the exit code, no reply."""
    context.set(_birth_context(worker))
    code = 0
    try:
        _run_hook(worker, "on_stop")
        worker.close()
    except SystemExit:
        raise
    except BaseException as error:
        complain(f"{worker.label}.on_stop:", error)
        code = 1
    finally:
        worker.refuse_rest()
    if code:
        raise SystemExit(code)


FILES = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


#: Those that were open before the fork, in modules that were imported then.
_earlier: list[Any] = []


def find_files(objects: Iterable[Any]) -> None:
    """Note the files among these, for processes that are forked from this one."""
    # Not `isinstance`, which may run code of theirs.
    _earlier[:] = [file for file in objects if issubclass(type(file), FILES)]


def finalize(
    label: str, drop: Callable[[], Any], grace_s: float, *, wait: bool
) -> None:
    """Do all that; `drop` drops the object. An error is printed, and the rest is
    done. Not `wait`: threads are not waited for."""
    doing = ["the end of its object"]

    def cut() -> None:
        text = f"mooactor: {label} did not end within {grace_s:g} s: {doing[0]}"
        print(f"{text} took longer, and is cut", file=sys.stderr, flush=True)
        _flush_files()
        os._exit(0)

    # Just before the agent kills this process, so that it can still say why.
    seconds = max(0.75 * grace_s, grace_s - 0.2)
    limit = threading.Timer(min(seconds, threading.TIMEOUT_MAX), cut)
    limit.daemon = True
    with contextlib.suppress(RuntimeError):  # no room for a thread: the agent cuts it
        limit.start()
    steps: tuple[tuple[str, Callable[[], Any]], ...] = (
        (doing[0], lambda: (drop(), gc.collect())),
        ("a thread", lambda: _join_threads(doing) if wait else None),
        ("an atexit handler", atexit._run_exitfuncs),
        ("flushing its files", _flush_files),
    )
    for what, step in steps:
        doing[0] = what
        try:
            step()
        except BaseException as error:
            complain(f"{label}, {what}:", error)
    limit.cancel()


def _join_threads(doing: list[str]) -> None:
    """Those that are no daemons, as Python does."""
    known = (threading.main_thread(), threading.current_thread())
    threads = [t for t in threading.enumerate() if not t.daemon and t not in known]
    for thread in threads:
        doing[0] = f"its thread {thread.name!r}, which is no daemon,"
        thread.join()


def _flush_files() -> None:
    """Those that nobody has closed: in globals, for instance."""
    for file in (*gc.get_objects(), *_earlier):
        if issubclass(type(file), FILES):
            try:
                if not file.closed:
                    file.flush()
            except (OSError, ValueError) as error:
                print(f"mooactor: a file is not flushed: {error}", file=sys.stderr)
