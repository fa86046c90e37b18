# SPDX-License-Identifier: MIT
"""`Handle`: stands for an actor on any host; `RemoteMethod`: one method of it.

A call with several results (``.options(num_returns=n)``) is one call, whose reply is
taken apart here. Invariant: its Refs are done together, all with values or all with the
same error; from then on each holds its own value only, so that dropping one frees its
memory, independently of the others.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from mooactor.actors.ref import Ref, Told, refuse_on_loop
from mooactor.actors.stream import Stream
from mooactor.control import envelope
from mooactor.control.links import Link
from mooactor.process import checks
from mooactor.process import current as _process
from mooactor.process.calls import (
    AWAITED,
    BLOCKING,
    DEFAULT_OPTIONS,
    CallOptions,
    Form,
)
from mooactor.process.current import current_runtime
from mooactor.process.interface import Interface, MethodSpec
from mooactor.process.loops import running_loop
from mooactor.process.objects.future import Arrival
from mooactor.process.objects.holds import Hold
from mooactor.process.runtime import Runtime


class Handle:
    """Call its methods as if they were the actor's.

    A small value: pickle it, pass it to other actors, compare it, use it as a key. It
    survives restarts of the actor; calls always reach the present incarnation. In a
    session other than the actor's, calls end with `ActorUnavailable` at once.
    Attributes that are no methods are not here, and none can be set: state lives in the
    actor.
    """

    _actor_id: int
    _incarnation: int
    _label: str
    _interface: Interface
    _session: bytes
    _watch: bool
    _bound: tuple[Runtime, Link] | None

    def __init__(
        self,
        actor_id: int,
        incarnation: int,
        label: str,
        interface: Interface,
        session: bytes,
        *,
        watch: bool = True,
    ) -> None:
        """`session`: the mark of the actor's session, outside of which it is not found.

        `watch`: ask the agent for news of it; the spawner need not.
        """
        own = self.__dict__  # `__setattr__` refuses
        own["_actor_id"] = actor_id
        own["_incarnation"] = incarnation
        own["_label"] = label
        own["_interface"] = interface
        own["_session"] = session
        own["_watch"] = watch
        own["_bound"] = None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"cannot set {self._label}.{name}: a handle has no state of its own, state "
            "lives in the actor; add a method that sets it"
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(
            f"cannot delete {self._label}.{name}: state lives in the actor; add a "
            "method that changes it"
        )

    def __getattr__(self, name: str) -> RemoteMethod:
        interface: Interface = self.__dict__["_interface"]
        spec = interface.methods.get(name)
        if spec is None:
            raise AttributeError(self._explain(name, interface))
        method = RemoteMethod(self, spec, DEFAULT_OPTIONS)
        if spec.options.calls:
            method = method.options(**spec.options.calls)
        self.__dict__[name] = method  # the next look-up does not come here
        return method

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._interface.methods})

    def _explain(self, name: str, interface: Interface) -> str:
        if name in interface.attributes:
            return (
                f"{self._label}.{name} is not a method: state lives in the actor; "
                "add a method that returns it"
            )
        if name.startswith("_"):
            return (
                f"{self._label}.{name}: private methods cannot be called remotely; "
                "remove the underscore from the name"
            )
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
            whom = (self._actor_id, self._incarnation, self._label)
            if self._session == runtime.session_mark:
                link = runtime.links.link(
                    *whom, watch=self._watch, perhaps_old=self._watch
                )
            else:
                link = Link.to_nowhere(*whom)
            link.label = self._label
            link.limit = self._interface.options.max_pending
            link.overflow = self._interface.options.overflow
            link.concurrency = self._interface.concurrency
            link.has_one_thread = self._interface.is_async
            bound = self.__dict__["_bound"] = (runtime, link)
        return bound

    def __reduce__(self) -> tuple[Any, ...]:
        incarnation = self._incarnation
        if self._bound is not None:
            incarnation = self._bound[1].incarnation
        parts = (self._actor_id, incarnation, self._label, self._interface)
        return (Handle, (*parts, self._session))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other._actor_id == self._actor_id

    def __hash__(self) -> int:
        return hash(self._actor_id)

    def __repr__(self) -> str:
        return f"<Handle {self._label} {self._actor_id:x}>"


class _Docstring:
    """Of a method for the method, of the class for the class: what help shows."""

    def __init__(self, of_class: str) -> None:
        self._of_class = of_class

    def __get__(self, method: RemoteMethod | None, owner: type) -> str:
        doc = None if method is None else method._spec.doc
        return self._of_class if doc is None else doc


class RemoteMethod:
    """One method of one actor, with the options of its calls."""

    __slots__ = ("_handle", "_spec", "_options", "_kind", "_form", "_blocking")

    def __init__(self, handle: Handle, spec: MethodSpec, options: CallOptions) -> None:
        self._handle = handle
        self._spec = spec
        self._options = options
        self._kind = spec.kind
        self._form = Form(spec, options)
        self._blocking = Form(spec, options, waits=BLOCKING)

    @property
    def __name__(self) -> str:
        return self._spec.name

    @property
    def __signature__(self) -> inspect.Signature:
        return self._spec.described

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it and wait for the value.

        A generator gives a `Stream` at once, an async method a coroutine to await.

        Raises:
          BaseException: the method raised it; the remote traceback is a note of it.
          MooError: the named error that the call ended with.
          RuntimeError: on a running event loop, which waiting would freeze.
        """
        if self._kind == "sync":
            if running_loop() is not None:
                self._refuse_to_block()
            ref = self._start(args, kwargs, self._blocking)
            if ref.state <= 0:
                ref.block()
            try:
                return ref.unwrap()
            finally:
                del ref  # see `unwrap`
        if self._kind == "async":
            return self._awaited(args, kwargs)
        return self._stream(args, kwargs)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Start the call and return a `Ref` to its result (a `Stream`, of a generator).

        Calls from one caller to one actor start in the order sent. At most once: if
        the process dies first, the Ref fails with `ActorDied` or `ActorRestarted`. It
        also fails if the actor is gone already, or has no room and is not waited for:
        errors of the callee are never raised here.

        Raises:
          TypeError: a wrong argument list, or one that cannot be pickled.
          OutOfMemory: there is no room for the arguments.
        """
        if self._spec.streams:
            return self._stream(args, kwargs)
        return self._start(args, kwargs, self._form)

    def tell(self, *args: Any, **kwargs: Any) -> None:
        """Start the call and forget it. Errors are printed by the actor, or here if the
        call cannot reach it or the actor dies first. The end of the session waits for
        it; see `moo.shutdown`.

        Raises:
          TypeError, OutOfMemory: as `remote` does; TypeError also for a generator,
            whose items nobody would take.
        """
        if self._spec.streams:
            raise TypeError(
                f"{self._label} is a generator, and a tell would take none of its "
                "items: iterate over the stream that a plain call gives"
            )
        runtime, link = self._handle._where()
        self._spec.check(args, kwargs)
        ref = Told(runtime, self._spec.name)
        form = Form(self._spec, self._options, envelope.ONE_WAY)
        runtime.caller.start(link, ref, form, args, kwargs)

    def options(self, **changes: Any) -> RemoteMethod:
        """The same method with other options for its calls.

        Args:
          timeout: seconds the call may take, nested calls included; None for no limit.
          retries: how often it may be sent again if the actor dies and is restarted;
            your word that running it twice is harmless.
          priority: calls with a higher one overtake those with a lower one.
          stream_window: items that a stream may be ahead of its consumer.
          num_returns: the method returns a tuple or list of so many values, and
            `remote` a tuple of Refs, one for each value. It stays one call: they are
            done, fail and are cancelled together.

        Raises:
          TypeError: an option of another name, or a value of a wrong type.
          ValueError: a value that makes no sense; `retries` of a generator, whose first
            items would come twice.
        """
        options = self._options.changed(changes)
        self._refuse_retries(options)
        if options.num_returns is None:
            return RemoteMethod(self._handle, self._spec, options)
        if self._spec.streams:
            raise TypeError(
                f"{self._label} is a generator, which takes no num_returns: iterate "
                "over the stream that a plain call gives"
            )
        return SplitMethod(self._handle, self._spec, options)

    def _refuse_to_block(self) -> None:
        refuse_on_loop(self._label)

    def _refuse_retries(self, options: CallOptions) -> None:
        if options.retries and self._spec.streams:
            raise ValueError(
                f"retries={options.retries} of {self._label}: a stream cannot be "
                "sent again, because its first items were taken already; catch "
                "ActorRestarted and call the generator again"
            )

    @property
    def _label(self) -> str:
        return f"{self._handle._label}.{self._spec.name}"

    def _start(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        form: Form,
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
        runtime.caller.start(link, ref, form, args, kwargs)
        return ref

    async def _awaited(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        import asyncio

        ref = self._start(args, kwargs, self._form._replace(waits=AWAITED))
        try:
            return await ref
        except asyncio.CancelledError:
            ref.cancel()
            raise

    def _stream(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Stream[Any]:
        runtime, link = self._handle._where()
        self._spec.check(args, kwargs)
        options = self._options
        self._refuse_retries(options)
        stream: Stream[Any] = Stream(
            runtime, self._label, options.stream_window, options.timeout
        )
        form = Form(self._spec, options, envelope.STREAM)
        runtime.caller.start(link, stream.channel, form, args, kwargs)
        if not stream.channel.state:
            stream.open(link.process_id)
        return stream

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._handle, self._spec, self._options))

    def __str__(self) -> str:
        return self._label

    def __repr__(self) -> str:
        return f"<remote method {self._label}>"


def handle_of(value: Any, name: str = "handle") -> Handle:
    """`value`, which must be a handle: the public functions are typed otherwise. `name`
    of the argument.

    Raises:
      TypeError: it is none.
    """
    checks.kind(name, value, Handle, "a handle, as moo.spawn returns it")
    found: Handle = value
    return found


RemoteMethod.__doc__ = _Docstring(RemoteMethod.__doc__ or "")  # type: ignore[assignment]


class SplitMethod(RemoteMethod):
    """A method whose calls give a tuple of Refs."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it and wait for the values; a coroutine of an async method."""
        if self._kind == "async":
            return self._all(args, kwargs)
        self._refuse_to_block()
        return tuple(ref.get() for ref in self.remote(*args, **kwargs))

    async def _all(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return tuple([await ref for ref in self.remote(*args, **kwargs)])

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Start the call and return a Ref for each of its values."""
        whole = self._start(args, kwargs, self._form)
        return split(whole, self._options.num_returns or 1)


def split(whole: Ref[Any], n: int) -> tuple[Ref[Any], ...]:
    """A Ref for each of the `n` values of a Ref to a tuple or list."""
    share = _Share(whole, n)
    refs = tuple(share.refs)
    whole.listen(share.arrived)
    return refs


class PartRef(Ref[Any]):
    """One of the results of a call. `parts`: the call, while it is under way."""

    __slots__ = ("_share", "_index", "parts")

    def __init__(self, whole: Ref[Any], index: int, share: _Share) -> None:
        Ref.__init__(self, whole._runtime, f"{whole._label}[{index}]", whole._timeout)
        self._share = share
        self._index = index
        self.parts: Sequence[Ref[Any]] = (whole,)

    def cancel(self) -> bool:
        """Give up the call, and all of its results with it."""
        return any(whole.cancel() for whole in self.parts)

    def expire(self) -> None:
        """The deadline of the call, and of all its results, has passed."""
        for whole in self.parts:
            whole.expire()

    def _give_up(self) -> None:
        others = list(self._share.refs)
        if all(ref.home is None and not ref._listeners for ref in others):
            self.cancel()

    def __del__(self) -> None:
        self._share.drop(self._index)


class _Share:
    """The common part of the Refs of one call: its reply, taken apart once.

    Any method may be entered while another call of it is under way, by a thread or a
    signal handler, and left by an exception anywhere.
    """

    def __init__(self, whole: Ref[Any], n: int) -> None:
        self.whole: Ref[Any] | None = whole
        self._label = whole._label
        self._count = n
        self._values: list[Any] | None = None
        self._dropped: set[int] = set()
        self.refs = [PartRef(whole, index, self) for index in range(n)]  # until done

    def arrived(self) -> None:
        """The call has ended; in the thread that completes it."""
        for index, ref in enumerate(self.refs):
            part = _Part(self, index)
            if self.whole is None or self.whole.is_here():
                ref.set_raw(part)
            else:
                ref.set_stored(part)
            ref.parts = ()
            ref._runtime.poller.wake()
        self.refs = []

    def take(self, index: int) -> Any:
        """One value. It is kept until `drop`, for a reader may be interrupted.

        Raises:
          BaseException: the call raised it.
          ValueError: it has another number of values.
        """
        whole = self.whole
        if whole is not None:
            values = self._checked(whole.unwrap())
            self._values = values  # the same as another thread's that was quicker
            for dropped in list(self._dropped):  # later ones see `_values`
                values[dropped] = None
            self.whole = None
        assert self._values is not None
        return self._values[index]

    def _checked(self, value: Any) -> list[Any]:
        if not isinstance(value, tuple | list):
            what = f"a {type(value).__name__}"
        elif len(value) != self._count:
            what = f"{len(value)} values"
        else:
            return list(value)
        raise ValueError(
            f"{self._label} returned {what}; .options(num_returns={self._count}) takes "
            f"a tuple or a list of {self._count}"
        )

    def drop(self, index: int) -> None:
        """Nobody will ask for this one. Called by finalizers."""
        self._dropped.add(index)
        values = self._values
        if values is not None:
            values[index] = None


class _Part:
    """Stands for one value, as a `Reply` does, until its Ref is read."""

    __slots__ = ("_share", "_index", "home")

    def __init__(self, share: _Share, index: int) -> None:
        self.home: Hold | None = None  # the whole has one
        self._share = share
        self._index = index

    def is_here(self) -> bool:
        whole = self._share.whole
        return whole is None or whole.is_here()

    def pull(self) -> list[Arrival]:
        whole = self._share.whole
        return [] if whole is None else whole.pull()

    def failure(self) -> BaseException | None:
        whole = self._share.whole
        return None if whole is None else whole.failure()

    def value(self) -> Any:
        return self._share.take(self._index)
