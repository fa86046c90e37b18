# SPDX-License-Identifier: MIT
"""`Group`: several actors of one class, in rank order."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from mooactor.actors.handle import Handle, RemoteMethod
from mooactor.actors.ref import Ref, Told
from mooactor.control import envelope
from mooactor.process.calls import Form
from mooactor.process.checks import shown
from mooactor.process.current import current_runtime
from mooactor.process.objects.future import Arrival
from mooactor.process.objects.holds import Hold
from mooactor.process.runtime import Runtime

if TYPE_CHECKING:
    from mooactor.actors.mapping import Map

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class _MapOptions(TypedDict, total=False):
    ordered: bool
    in_flight: int
    retries: int
    timeout: float | None


class Group(Generic[T]):
    """Calls go to all members; results come as lists in rank order.

    ``group[i]`` is a handle and ``group[i:j]`` a group. ``group.method.call(…)`` is
    the same as ``group.call(Class.method, …)``, which type checkers understand.
    """

    def __init__(self, handles: Sequence[T]) -> None:
        if not isinstance(handles, Iterable):
            raise TypeError(f"{shown('handles', handles)} must be a list of handles")
        self.__dict__["_handles"] = list(handles)  # `__setattr__` refuses
        for index, handle in enumerate(self._handles):
            if not isinstance(handle, Handle):
                where = shown(f"handles[{index}]", handle)
                raise TypeError(f"{where} must be a handle, as moo.spawn returns it")

    _handles: list[T]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"cannot set {name!r} on a group: state lives in its actors; add a method "
            "that sets it, and call that on the group"
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(
            f"cannot delete {name!r} of a group: state lives in actors"
        )

    def __len__(self) -> int:
        return len(self._handles)

    def __iter__(self) -> Iterator[T]:
        return iter(self._handles)

    @overload
    def __getitem__(self, index: int, /) -> T: ...
    @overload
    def __getitem__(self, index: slice, /) -> Group[T]: ...
    def __getitem__(self, index: Any, /) -> Any:
        if isinstance(index, slice):
            return Group(self._handles[index])
        return self._handles[index]

    @overload
    def call(
        self,
        function: Callable[Concatenate[T, P], Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> GatheredRef[R]: ...
    @overload
    def call(
        self,
        function: Callable[Concatenate[T, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> GatheredRef[R]: ...
    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a method on every member with the same arguments.

        They are encoded once, and large arrays cross in one shared copy. The result is
        a Ref to the list of values; it fails with the first member's error, once all
        are done.
        """
        return gather(self._broadcast(_name(function), args, kwargs, 0))

    def call_each(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], /
    ) -> GatheredRef[Any]:
        """Call a method on every member, each with its own argument tuple.

        Raises:
          ValueError: the number of tuples is not that of the members.
          TypeError: they are no tuples, or the method cannot be called so. Then none
            is called; one that cannot be pickled may be found after others were.
        """
        _check_tuples(arguments)
        if len(arguments) != len(self._handles):
            raise ValueError(
                f"arguments has {len(arguments)} tuples for {len(self._handles)} "
                "members: give one tuple for each member"
            )
        methods = self._methods(_name(function))
        calls = list(zip(methods, map(tuple, arguments), strict=True))
        for method, args in calls:
            method._spec.check(args, {})
        with _all_or_none() as refs:
            for method, args in calls:
                refs.append(method.remote(*args))
        return gather(refs)

    def tell(
        self,
        function: Callable[Concatenate[T, P], Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """As `call`, one way."""
        self._broadcast(_name(function), args, kwargs, envelope.ONE_WAY)

    @overload
    def map(
        self,
        function: Callable[[T, A], Coroutine[Any, Any, R]],
        items: Iterable[A | Ref[A]],
        /,
        **options: Unpack[_MapOptions],
    ) -> Map[R]: ...
    @overload
    def map(
        self,
        function: Callable[[T, A], R],
        items: Iterable[A | Ref[A]],
        /,
        **options: Unpack[_MapOptions],
    ) -> Map[R]: ...
    def map(
        self,
        function: Any,
        items: Any,
        /,
        *,
        ordered: bool = True,
        in_flight: int = 2,
        retries: int = 0,
        timeout: float | None = None,
    ) -> Any:
        """Call a method with each of many items, and iterate over the results.

        Each item goes to the member with the fewest under way, so that a member with
        a long one gets fewer. `items` is read as the results are taken: at most
        ``len(group) * in_flight`` items ahead. Use ``for`` or ``async for``. The
        first calls are made at once; leaving the loop early cancels those under way.
        A Ref among the items hands its value to the member.

        An item's error is raised in its place and ends the iteration, as with
        `concurrent.futures.Executor.map`. An item that certainly did not run goes to
        another member when its own dies or stops; one that may have run does so only
        with `retries`. A member that died gets no more items until it runs again.

        Args:
          ordered: results in the order of the items; else each as it comes.
          in_flight: items that one member may have at a time. With 1 it waits for the
            next one each time; with 2 it has it already.
          retries: how often an item whose member died may be sent to another one;
            your word that running it twice is harmless.
          timeout: seconds for each call; by default that of ``@method``.

        Raises:
          ValueError: the group is empty, or an argument makes no sense.
          TypeError: an argument of a wrong type.
        """
        return self._map(
            _name(function),
            items,
            timeout,
            ordered=ordered,
            in_flight=in_flight,
            retries=retries,
        )

    def _map(
        self, name: str, items: Any, timeout: float | None = None, **options: Any
    ) -> Map[Any]:
        from mooactor.actors.mapping import Map  # it needs `wait`

        methods = self._methods(name)
        if timeout is not None:
            methods = [method.options(timeout=timeout) for method in methods]
        return Map(methods, items, **options)

    def _methods(self, name: str) -> list[RemoteMethod]:
        """Those of the members; a handle has some of its own, such as ``__call__``."""
        find: Any = Handle.__getattr__ if name.startswith("_") else getattr
        methods = [find(handle, name) for handle in self._handles]
        if methods and methods[0]._spec.streams:
            raise TypeError(
                f"{methods[0]} is a generator, and a group's calls are for plain "
                "methods: iterate over the members' own streams"
            )
        return methods

    def _broadcast(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], flags: int
    ) -> list[Ref[Any]]:
        runtime = current_runtime()
        methods = self._methods(name)
        if not methods:
            return []
        methods[0]._spec.check(args, kwargs)
        prepared = None
        if args or kwargs:
            prepared = runtime.arguments.prepare(f"a group's {name}", args, kwargs)
        kind: type[Ref[Any]] = Told if flags & envelope.ONE_WAY else Ref
        with _all_or_none() as refs:
            for method in methods:
                _, link = method._handle._where()
                options = method._options
                ref = kind(runtime, f"{link.label}.{name}", options.timeout)
                form = Form(method._spec, options, flags)
                runtime.caller.start(link, ref, form, args, kwargs, prepared)
                refs.append(ref)
            runtime.flush()
        return refs

    def __getattr__(self, name: str) -> GroupMethod:
        if name.startswith("_"):
            raise AttributeError(name)
        return GroupMethod(self, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Group, (self._handles,))

    def __repr__(self) -> str:
        return f"<Group of {len(self)}: {self._handles[:1]}>"


class GroupMethod:
    """``group.method``: the untyped spelling."""

    def __init__(self, group: Group[Any], name: str) -> None:
        for handle in group._handles[:1]:
            getattr(handle, name)  # raises AttributeError with the reason
        self._group = group
        self._name = name

    def call(self, *args: Any, **kwargs: Any) -> GatheredRef[Any]:
        """See `Group.call`."""
        return gather(self._group._broadcast(self._name, args, kwargs, 0))

    def map(self, items: Iterable[Any], /, **options: Unpack[_MapOptions]) -> Map[Any]:
        """See `Group.map`."""
        return self._group._map(self._name, items, **options)

    def tell(self, *args: Any, **kwargs: Any) -> None:
        """See `Group.tell`."""
        self._group._broadcast(self._name, args, kwargs, envelope.ONE_WAY)


class GatheredRef(Ref[list[R]]):
    """The results of several calls, in rank order; see `Group.call`. An actor that it
    is passed to inside of a list or another value gets a plain `Ref`."""

    __slots__ = ("parts",)

    def __init__(self, runtime: Runtime, refs: Sequence[Ref[R]]) -> None:
        super().__init__(runtime, f"{len(refs)} calls")
        self.parts: Sequence[Ref[R]] = refs

    @overload
    def get(
        self, timeout: float | None = ..., *, return_exceptions: Literal[False] = ...
    ) -> list[R]: ...
    @overload
    def get(
        self, timeout: float | None = ..., *, return_exceptions: Literal[True]
    ) -> list[R | BaseException]: ...
    def get(
        self, timeout: float | None = None, *, return_exceptions: bool = False
    ) -> Any:
        """The values in rank order; or raise the first error in rank order.

        Args:
          timeout: seconds to wait; the calls go on if they pass.
          return_exceptions: give one value or error for each rank, and raise none.
        """
        if not return_exceptions:
            return super().get(timeout)
        if self.state <= 0:
            self._wait(timeout, read=True)
        failures = [(ref, ref.failure()) for ref in self.parts]
        return [ref.unwrap() if error is None else error for ref, error in failures]

    def cancel(self) -> bool:
        """Give all of them up; True unless all were done already."""
        given_up = [ref.cancel() for ref in self.parts]
        return any(given_up)


def gather(refs: Sequence[Ref[Any]]) -> GatheredRef[Any]:
    """One Ref to the list of the values of several."""
    runtime = current_runtime()
    whole: GatheredRef[Any] = GatheredRef(runtime, refs)

    def one_done() -> None:
        if all(ref.state for ref in refs):
            gathered = _Gathered(refs)
            if all(ref.is_here() for ref in refs):
                whole.set_raw(gathered)
            else:
                whole.set_stored(gathered)
            runtime.poller.wake()

    for ref in refs:
        ref.listen(one_done)
    if not refs:
        whole.set_value([])
    return whole


class _Gathered:
    """Decodes the members' replies in the thread that reads the whole."""

    def __init__(self, refs: Sequence[Ref[Any]]) -> None:
        self._refs = refs
        self.home: Hold | None = None  # the parts have

    def is_here(self) -> bool:
        return all(ref.is_here() for ref in self._refs)

    def pull(self) -> list[Arrival]:
        return [one for ref in self._refs for one in ref.pull()]

    def failure(self) -> BaseException | None:
        failures = (ref.failure() for ref in self._refs)
        return next((one for one in failures if one is not None), None)

    def value(self) -> list[Any]:
        try:
            return [ref.unwrap() for ref in self._refs]
        except BaseException:
            for ref in self._refs:
                ref.hear()  # this error speaks for those behind it
            raise


@contextmanager
def _all_or_none() -> Iterator[list[Ref[Any]]]:
    """Calls begun together: if one cannot be, those before it are given up."""
    refs: list[Ref[Any]] = []
    try:
        yield refs
    except BaseException:  # nobody gets them
        for ref in refs:
            ref.cancel()
        raise


def _name(function: Any) -> str:
    """The name of an unbound method, decorated or not."""
    name = getattr(function, "__name__", None)
    if name is None or isinstance(function, type):
        raise TypeError(
            f"{shown('function', function)} must be a method of the members' class, "
            "such as Learner.step"
        )
    return cast(str, name)


def _check_tuples(arguments: Any) -> None:
    if not isinstance(arguments, Sequence) or isinstance(arguments, str):
        raise TypeError(
            f"{shown('arguments', arguments)} must be a list with one tuple for each "
            "member"
        )
    for index, one in enumerate(arguments):
        if not isinstance(one, tuple | list):
            where = shown(f"arguments[{index}]", one)
            raise TypeError(f"{where} must be a tuple: one argument is (x,)")
