# SPDX-License-Identifier: MIT
"""`Handle`: stands for an actor, wherever it runs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from mooactor.actors.ref import Ref, refuse_on_loop
from mooactor.actors.stream import Stream
from mooactor.control import envelope
from mooactor.process import current as _process
from mooactor.process.calls import DEFAULT_OPTIONS, CallOptions
from mooactor.process.current import current_runtime
from mooactor.process.interface import Interface, MethodSpec
from mooactor.process.links import Link
from mooactor.process.runtime import Runtime


class Handle:
    """Call its methods as if they were the actor's.

    A small value: pickle it, pass it to other actors, compare it, use it as a key. It
    survives restarts of the actor; calls always reach the present incarnation.
    Attributes that are no methods are not here: state lives in the actor.
    """

    def __init__(
        self,
        actor_id: int,
        incarnation: int,
        label: str,
        interface: Interface,
        *,
        watch: bool = True,
    ) -> None:
        self._actor_id = actor_id
        self._incarnation = incarnation
        self._label = label
        self._interface = interface
        self._watch = watch
        self._bound: tuple[Runtime, Link] | None = None

    def __getattr__(self, name: str) -> RemoteMethod:
        interface: Interface = self.__dict__["_interface"]
        spec = interface.methods.get(name)
        if spec is None:
            raise AttributeError(self._explain(name, interface))
        method = RemoteMethod(self, spec, DEFAULT_OPTIONS)
        if spec.options.timeout is not None:
            method = method.options(timeout=spec.options.timeout)
        self.__dict__[name] = method  # the next look-up does not come here
        return method

    def _explain(self, name: str, interface: Interface) -> str:
        if name in interface.attributes:
            return (
                f"{self._label}.{name} is no method: state lives in the actor; "
                "add a method that returns it"
            )
        if name.startswith("_"):
            return f"{self._label}.{name}: private methods cannot be called remotely"
        known = ", ".join(sorted(interface.methods)) or "none"
        return f"{self._label} has no method {name!r}; its methods: {known}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__getattr__("__call__")(*args, **kwargs)

    def _where(self) -> tuple[Runtime, Link]:
        """The runtime of this process and its link to the actor."""
        runtime = _process._current
        if runtime is None:
            runtime = current_runtime()
        bound = self._bound
        if bound is None or bound[0] is not runtime:
            link = runtime.link(
                self._actor_id, self._incarnation, self._label, watch=self._watch
            )
            link.label = self._label
            link.limit = self._interface.options.max_pending
            link.overflow = self._interface.options.overflow
            link.serial = self._interface.serial
            bound = self._bound = (runtime, link)
        return bound

    def __reduce__(self) -> tuple[Any, ...]:
        incarnation = self._incarnation
        if self._bound is not None:
            incarnation = self._bound[1].incarnation
        parts = (self._actor_id, incarnation, self._label, self._interface)
        return (Handle, parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other._actor_id == self._actor_id

    def __hash__(self) -> int:
        return hash(self._actor_id)

    def __repr__(self) -> str:
        return f"<Handle {self._label} {self._actor_id:x}>"


class RemoteMethod:
    """One method of one actor, with the options that its calls will have."""

    __slots__ = ("_handle", "_spec", "_options", "_wire", "_kind")

    def __init__(self, handle: Handle, spec: MethodSpec, options: CallOptions) -> None:
        self._handle = handle
        self._spec = spec
        self._options = options
        self._wire = spec.wire
        self._kind = spec.kind

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it and wait for the value.

        A generator gives a `Stream` at once, an async method a coroutine to await.

        Raises:
          BaseException: what the method raised, with the remote traceback as a note.
          MooError: the named error that the call ended with.
          RuntimeError: on a running event loop, which waiting would freeze.
        """
        if self._kind == "sync":
            if asyncio._get_running_loop() is not None:
                refuse_on_loop(self._label)
            ref = self._start(args, kwargs, True)
            return ref.unwrap() if ref.state else ref.get()
        if self._kind == "async":
            return self._awaited(args, kwargs)
        return self._stream(args, kwargs)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Start the call and return a `Ref` to its result (a `Stream`, of a generator).

        Calls from one caller to one actor start in the order sent. At most once: if the
        process dies first, the Ref fails with `ActorDied` or `ActorRestarted`.

        Raises:
          TypeError: a wrong argument list, or one that cannot be pickled.
          Overloaded: the actor's bound is reached and it is not to be waited for.
          ActorDied: the actor is gone.
        """
        if self._spec.streams:
            return self._stream(args, kwargs)
        return self._start(args, kwargs, False)

    def tell(self, *args: Any, **kwargs: Any) -> None:
        """Start the call and forget it. Errors are printed by the actor.

        Raises:
          TypeError, Overloaded, ActorDied: as `remote` does.
        """
        runtime, link = self._handle._where()
        self._spec.check(args, kwargs)
        ref: Ref[None] = Ref(runtime, self._spec.name)
        flags = envelope.ONE_WAY
        runtime.caller.start(
            link, ref, self._wire, args, kwargs, flags, self._options, False
        )

    def options(self, **changes: Any) -> RemoteMethod:
        """The same method with other options for its calls.

        Args:
          timeout: seconds the call may take, nested calls included; None for no limit.
          retries: how often it may be sent again if the actor dies and is restarted;
            your word that running it twice is harmless.
          priority: calls with a higher one overtake those with a lower one.
          stream_window: items that a stream may be ahead of its consumer.

        Raises:
          TypeError: an option of another name.
        """
        options = replace(self._options, **changes)
        if not -128 <= options.priority <= 127:
            raise ValueError("priority is a number from -128 to 127")
        return RemoteMethod(self._handle, self._spec, options)

    @property
    def _label(self) -> str:
        return f"{self._handle._label}.{self._spec.name}"

    def _start(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        blocking: bool,
        awaited: bool = False,
    ) -> Ref[Any]:
        bound = self._handle._bound
        if bound is None or bound[0] is not _process._current:
            bound = self._handle._where()
        runtime, link = bound
        spec = self._spec
        if kwargs or not spec._least <= len(args) <= spec._most:
            spec.check(args, kwargs)
        options = self._options
        ref: Ref[Any] = Ref(runtime, self, options.timeout)
        runtime.caller.start(
            link, ref, self._wire, args, kwargs, 0, options, blocking, None, awaited
        )
        return ref

    async def _awaited(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        ref = self._start(args, kwargs, False, awaited=True)
        try:
            return await ref
        except asyncio.CancelledError:
            ref.cancel()
            raise

    def _stream(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Stream[Any]:
        runtime, link = self._handle._where()
        self._spec.check(args, kwargs)
        stream: Stream[Any] = Stream(runtime, self._label, self._options.stream_window)
        flags = envelope.STREAM
        runtime.caller.start(
            link, stream.channel, self._wire, args, kwargs, flags, self._options, False
        )
        stream.open(link.process_id)
        return stream

    def __reduce__(self) -> tuple[Any, ...]:
        return (RemoteMethod, (self._handle, self._spec, self._options))

    def __str__(self) -> str:
        return self._label

    def __repr__(self) -> str:
        return f"<remote method {self._label}>"


def handle_of(value: Any) -> Handle:
    """`value`, which must be a handle: the public functions are typed otherwise.

    Raises:
      TypeError: it is none.
    """
    if not isinstance(value, Handle):
        raise TypeError(
            f"expected a handle, as moo.spawn returns it, not {type(value).__name__}"
        )
    return value
