# SPDX-License-Identifier: MIT
"""An actor's life in its process: it is made, serves, and ends."""

from __future__ import annotations

import os
import socket
from typing import Any

from mooactor.control import codec
from mooactor.process import namespaces
from mooactor.process.calls import CallContext, context
from mooactor.process.concurrent import ConcurrentWorker
from mooactor.process.current import set_current_runtime
from mooactor.process.interface import interface_of
from mooactor.process.lifeline import Lifeline, Message
from mooactor.process.outcome import Outcome
from mooactor.process.runtime import Runtime
from mooactor.process.serial import SerialWorker
from mooactor.process.worker import Worker


def live(life: Message, lifeline_socket: socket.socket) -> None:
    """The whole life of an actor's process; returns when it has ended well."""
    os.environ.update(life["env"])
    lifeline = Lifeline(lifeline_socket)
    try:
        runtime = _make_runtime(lifeline, life)
        worker = _make_worker(runtime, life)
    except BaseException as error:
        where = f"{life['label']}, process {os.getpid()}"
        lifeline.send({"op": "failed", "error": codec.encode_error(error, where)})
        raise SystemExit(1) from None
    runtime.agent.tell(op="ready")
    worker.run()
    _end(worker)
    runtime.close()


def _make_runtime(lifeline: Lifeline, life: Message) -> Runtime:
    namespace = os.environ.get(namespaces.VARIABLE)
    if namespace:
        namespaces.enter(namespace)  # before anything has a socket or a thread
    runtime = Runtime(
        life["directory"],
        life["key"],
        life["actor_id"] + life["incarnation"],
        lifeline,
        memory_limit=life["memory_limit"],
        network=life["network"].with_environment(life["env"]),
    )
    set_current_runtime(runtime)
    runtime.agent.on_agent_lost = lambda: os._exit(1)
    return runtime


def _make_worker(runtime: Runtime, life: Message) -> Worker:
    cls, args, kwargs = codec.decode(life["payload"])
    interface = interface_of(cls)
    kind = SerialWorker if interface.serial else ConcurrentWorker
    worker = kind(runtime, interface, life)
    runtime.agent.on_stop_request = worker.stop_now
    runtime.server = worker  # calls may come while the constructor waits for others
    context.set(_birth_context(runtime, worker))
    args = tuple(_resolved(runtime, arg) for arg in args)
    kwargs = {key: _resolved(runtime, arg) for key, arg in kwargs.items()}
    worker.instance = cls(*args, **kwargs)
    if life["snapshot"] is not None:
        worker.instance.__restore__(codec.decode(life["snapshot"]))
    _run_hook(worker, "on_start")
    context.set(None)
    return worker


def _resolved(runtime: Runtime, arg: Any) -> Any:
    """A Ref given to a constructor stands for its value, as in a call."""
    return arg.get() if isinstance(arg, Outcome) else arg  # type: ignore[attr-defined]


def _birth_context(runtime: Runtime, worker: Worker) -> CallContext:
    return CallContext(runtime.actor_id, worker.label, 0, 0, (), None, "__init__", True)


def _run_hook(worker: Worker, name: str) -> None:
    hook = getattr(worker.instance, name, None)
    if hook is None:
        return
    result = hook()
    if hasattr(result, "__await__"):
        import asyncio

        async def awaited() -> None:
            await result

        asyncio.run(awaited())


def _end(worker: Worker) -> None:
    context.set(_birth_context(worker.runtime, worker))
    _run_hook(worker, "on_stop")
