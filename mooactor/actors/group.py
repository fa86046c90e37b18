# SPDX-License-Identifier: MIT
"""`Group`: several actors of one class, in rank order."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from mooactor.actors.handle import RemoteMethod
from mooactor.actors.ref import Ref
from mooactor.control import envelope
from mooactor.process.current import current_runtime

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Group(Generic[T]):
    """Calls go to all members; results come as lists in rank order.

    ``group[i]`` is a handle and ``group[i:j]`` a group. ``group.method.call(…)`` is
    the same as ``group.call(Class.method, …)``, which type checkers understand.
    """

    def __init__(self, handles: Sequence[T]) -> None:
        self._handles = list(handles)

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
    ) -> Ref[list[R]]: ...
    @overload
    def call(
        self,
        function: Callable[Concatenate[T, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Ref[list[R]]: ...
    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a method on every member with the same arguments.

        They are encoded once, and large arrays cross in one shared copy. The result is
        a Ref to the list of values; it fails with the first member's error, once all
        are done.
        """
        return self._gathered(self._broadcast(_name(function), args, kwargs, 0))

    def call_each(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], /
    ) -> Ref[list[Any]]:
        """Call a method on every member, each with its own argument tuple.

        Raises:
          ValueError: the number of tuples is not that of the members.
        """
        if len(arguments) != len(self._handles):
            raise ValueError(
                f"{len(arguments)} argument tuples for {len(self._handles)} members"
            )
        name = _name(function)
        calls = zip(self._methods(name), arguments, strict=True)
        return self._gathered([method.remote(*args) for method, args in calls])

    def tell(
        self,
        function: Callable[Concatenate[T, P], Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """As `call`, one way."""
        self._broadcast(_name(function), args, kwargs, envelope.ONE_WAY)

    def _methods(self, name: str) -> list[RemoteMethod]:
        return [getattr(handle, name) for handle in self._handles]

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
            prepared = runtime.caller.prepare(f"a group's {name}", args, kwargs)
        refs: list[Ref[Any]] = []
        for method in methods:
            _, link = method._handle._where()
            options = method._options
            ref: Ref[Any] = Ref(runtime, f"{link.label}.{name}", options.timeout)
            runtime.caller.start(
                link, ref, method._wire, args, kwargs, flags, options, False, prepared
            )
            refs.append(ref)
        runtime.flush()
        return refs

    def _gathered(self, refs: list[Ref[Any]]) -> Ref[list[Any]]:
        return gather(refs)

    def __getattr__(self, name: str) -> GroupMethod:
        if name.startswith("_"):
            raise AttributeError(name)
        return GroupMethod(self, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Group, (self._handles,))

    def __repr__(self) -> str:
        return f"<Group of {len(self)}: {self._handles[:1]}>"


class GroupMethod:
    """``group.method``, for those who prefer that spelling."""

    def __init__(self, group: Group[Any], name: str) -> None:
        for handle in group._handles[:1]:
            getattr(handle, name)  # raises AttributeError with the reason
        self._group = group
        self._name = name

    def call(self, *args: Any, **kwargs: Any) -> Ref[list[Any]]:
        """See `Group.call`."""
        group = self._group
        return group._gathered(group._broadcast(self._name, args, kwargs, 0))

    def tell(self, *args: Any, **kwargs: Any) -> None:
        """See `Group.tell`."""
        self._group._broadcast(self._name, args, kwargs, envelope.ONE_WAY)


def gather(refs: Sequence[Ref[Any]]) -> Ref[list[Any]]:
    """One Ref to the list of the values of several."""
    runtime = current_runtime()
    whole: Ref[list[Any]] = Ref(runtime, f"{len(refs)} calls")
    left = [len(refs)]

    def one_done() -> None:
        left[0] -= 1
        if left[0] == 0:
            whole.set_raw(_Gathered(refs))
            runtime.pump.wake()

    for ref in refs:
        ref.listen(one_done)
    if not refs:
        whole.set_value([])
    return whole


class _Gathered:
    """Decodes the members' replies in the thread that reads the whole."""

    def __init__(self, refs: Sequence[Ref[Any]]) -> None:
        self._refs = refs

    def value(self) -> list[Any]:
        return [ref.unwrap() for ref in self._refs]


def _name(function: Any) -> str:
    """The name of an unbound method, however it is decorated."""
    return cast(str, function.__name__)
