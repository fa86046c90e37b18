# SPDX-License-Identifier: MIT
"""Making actors: `spawn`, and `on(…)` for where and how."""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, cast

from mooactor import errors
from mooactor.actors.group import Group
from mooactor.actors.handle import Handle
from mooactor.control import codec
from mooactor.control.keys import new_process_id
from mooactor.process import session as _session
from mooactor.process.current import current_runtime
from mooactor.process.interface import interface_of, signature_of
from mooactor.process.runtime import Runtime
from mooactor.process.supervision import Restart

P = ParamSpec("P")
T = TypeVar("T")

_HERE = ("", "localhost", "127.0.0.1")


def spawn(cls: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Start an actor in a process of its own and return its handle, typed as `T`.

    Returns at once: the process starts meanwhile, and calls wait for it. If the
    constructor raises, calls end with `ActorDied`, whose `cause` has the exception.
    Starts the embedded runtime if none runs.

    Raises:
      TypeError: arguments that the constructor would refuse, or cannot be pickled.
    """
    return Spec(cls).spawn(*args, **kwargs)


def on(
    cls: Callable[P, T],
    /,
    *,
    host: str = "",
    num_cpus: float = 0,
    num_gpus: float = 0,
    name: str | None = None,
    restart: Restart | None = None,
    env: Mapping[str, str] | None = None,
) -> Spec[P, T]:
    """Say where and how an actor is to run, then ``.spawn(…)`` or ``.group(n, …)``.

    Args:
      host: a host of the session by name; empty for wherever there is room.
      num_cpus: what the host must have.
      num_gpus: how many GPUs the actor gets for itself; it sees no others, as numbers
        from 0. Less than 1: a share of one, which nobody enforces. 0: it gets none for
        itself and sees them all. They are its own until it is over, also between
        restarts.
      name: what `lookup` finds it by; members of a group get ``name/rank``.
      restart: how it comes back after a death; by default it does not.
      env: environment variables, set before the constructor runs.

    Raises:
      PlacementError: from ``spawn``: no host of the session has that.
    """
    return Spec(
        cls,
        host=host,
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        name=name,
        restart=restart,
        env=env,
    )


class Spec(Generic[P, T]):
    """An actor class with placement and policies; see `on`."""

    def __init__(
        self,
        cls: Callable[P, T],
        *,
        host: str = "",
        num_cpus: float = 0,
        num_gpus: float = 0,
        name: str | None = None,
        restart: Restart | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        if not isinstance(cls, type):
            raise TypeError(f"an actor is made of a class, not of {cls!r}")
        self._cls: type = cls
        self._host = host
        if num_gpus < 0 or (num_gpus > 1 and num_gpus % 1):
            raise ValueError(f"num_gpus={num_gpus}: a whole number, or a part of one")
        self._num_cpus = num_cpus
        self._num_gpus = num_gpus
        self._name = name
        self._restart = restart
        self._env = dict(env or {})

    def spawn(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Start one actor; see `mooactor.spawn`.

        Raises:
          ValueError: the name is taken.
          PlacementError: no host has what was asked for.
        """
        payload = self._prepare(args, kwargs)
        return cast(T, self._start(payload, self._name))

    def group(self, n: int, /, *args: P.args, **kwargs: P.kwargs) -> Group[T]:
        """Start `n` actors with the same constructor arguments.

        Raises:
          ValueError: `n` is negative, or a name is taken.
          PlacementError: there is no room for all; then none runs.
        """
        if n < 0:
            raise ValueError(f"a group of {n} actors")
        payload = self._prepare(args, kwargs)
        names = [None if self._name is None else f"{self._name}/{i}" for i in range(n)]
        started: list[Handle] = []
        try:
            for name in names:
                started.append(self._start(payload, name))
        except BaseException:
            for handle in started:
                runtime, link = handle._where()
                runtime.agent.ask(op="kill", id=link.actor_id)
            raise
        return Group([cast(T, handle) for handle in started])

    def _prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        label = self._cls.__qualname__
        _check_constructor(self._cls, args, kwargs)
        self._check_placement()
        ensure_runtime()  # Refs among the arguments need it
        try:
            return codec.encode_in_band((self._cls, args, kwargs))
        except Exception as error:
            where = codec.find_unpicklable(args, kwargs)
            raise TypeError(
                f"{label} or {where} of its constructor cannot be pickled: {error}"
            ) from error

    def _check_placement(self) -> None:
        if self._host not in (*_HERE, socket.gethostname()):
            raise errors.PlacementError(
                f"no host {self._host!r} in this session; it has only "
                f"{socket.gethostname()!r}"
            )
        cpus = os.cpu_count() or 1
        if self._num_cpus > cpus:
            raise errors.PlacementError(
                f"{self._cls.__qualname__} asks for {self._num_cpus} CPUs; this host "
                f"has {cpus}"
            )

    def _start(self, payload: bytes, name: str | None) -> Handle:
        runtime = ensure_runtime()
        actor_id = new_process_id()
        interface = interface_of(self._cls)
        label = interface.label if name is None else f"{interface.label}:{name}"
        handle = Handle(actor_id, 0, label, interface, watch=False)
        handle._where()  # the link is there before any notice of a death can come
        request = {
            "op": "spawn",
            "id": actor_id,
            "name": name,
            "label": label,
            "payload": payload,
            "policy": self._restart,
            "env": self._env,
            "num_gpus": self._num_gpus,
            "preload": _preload(),
            "handle": pickle.dumps(handle, 5),
        }
        if name is None and not self._num_gpus:
            runtime.agent.tell(**request)
            return handle
        reply = runtime.agent.ask(**request)
        if reply.get("error") == "no GPU":
            raise errors.PlacementError(
                f"{label} asks for num_gpus={self._num_gpus}; this host has "
                f"{reply['free']}"
            )
        if reply.get("error"):
            raise ValueError(f"the name {name!r} is taken by {reply['label']}")
        return handle


def _check_constructor(
    cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    try:
        signature_of(cls).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{cls.__qualname__}(): {error}") from None
    except ValueError:
        pass  # some builtins have no signature


def ensure_runtime() -> Runtime:
    """This process's runtime; the driver's starts by itself."""
    try:
        return current_runtime()
    except errors.ActorUnavailable:
        from mooactor.actors.sessions import init

        init()
        return current_runtime()


def _preload() -> list[str]:
    session = _session.current_session()
    if session is not None:
        return session.modules()
    return [name for name in _session.PRELOADABLE if name in sys.modules]


def lookup(name: str, timeout: float = 0.0) -> Any:
    """The handle of the actor spawned under `name`.

    Args:
      timeout: seconds to wait for it to appear.

    Raises:
      ActorUnavailable: there is none of that name.
    """
    reply = ensure_runtime().agent.ask(
        timeout + 60.0, op="lookup", name=name, timeout=max(0.0, timeout)
    )
    if reply["value"] is None:
        raise errors.ActorUnavailable(
            f"no actor is named {name!r}"
            + (f" after {timeout} s" if timeout else "; lookup can wait: timeout=…")
        )
    return pickle.loads(reply["value"])
