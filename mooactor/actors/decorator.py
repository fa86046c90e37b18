# SPDX-License-Identifier: MIT
"""``@actor`` and ``@method``: notes on a class, which is otherwise unchanged."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from mooactor.actors.ref import Ref
from mooactor.process import checks
from mooactor.process.calls import DEFAULT_OPTIONS
from mooactor.process.interface import (
    METHOD_ATTRIBUTE,
    OPTIONS_ATTRIBUTE,
    ActorOptions,
    MethodOptions,
)

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
T = TypeVar("T")


class _Options(TypedDict, total=False):
    """Those of ``.options(…)``; see `RemoteMethod.options`."""

    timeout: float | None
    retries: int
    priority: int


class _StreamOptions(_Options, total=False):
    stream_window: int


class _Bound(Protocol[P, R_co]):
    def remote(self, *args: P.args, **kwargs: P.kwargs) -> Ref[R_co]: ...
    def tell(self, *args: P.args, **kwargs: P.kwargs) -> None: ...
    @overload
    def options(self, **options: Unpack[_StreamOptions]) -> Self: ...
    @overload
    def options(
        self, *, num_returns: int, **options: Unpack[_Options]
    ) -> BoundSplitMethod[P, R_co]: ...


class BoundMethod(_Bound[P, R_co], Protocol[P, R_co]):
    """A method of a handle, as type checkers see it."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class BoundAsyncMethod(_Bound[P, R_co], Protocol[P, R_co]):
    """An async method of a handle, as type checkers see it."""

    def __call__(
        self, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R_co]: ...


class BoundSplitMethod(Protocol[P, R_co]):
    """A method with ``num_returns``, as type checkers see it."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    def remote(self, *args: P.args, **kwargs: P.kwargs) -> tuple[Ref[Any], ...]: ...
    def tell(self, *args: P.args, **kwargs: P.kwargs) -> None: ...


class Method(Generic[S, P, R]):
    """A function with ``@method``, for type checkers only: at run time the
    function itself comes back."""

    @overload
    def __get__(
        self, instance: None, owner: type[Any]
    ) -> Callable[Concatenate[S, P], R]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> BoundMethod[P, R]: ...
    def __get__(self, instance: Any, owner: Any) -> Any:
        raise TypeError("Method describes types; it is never instantiated")


class AsyncMethod(Generic[S, P, R]):
    """As `Method`, of an async function."""

    @overload
    def __get__(
        self, instance: None, owner: type[Any]
    ) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> BoundAsyncMethod[P, R]: ...
    def __get__(self, instance: Any, owner: Any) -> Any:
        raise TypeError("AsyncMethod describes types; it is never instantiated")


class _MethodDecorator(Protocol):
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[S, P], Coroutine[Any, Any, R]], /
    ) -> AsyncMethod[S, P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[S, P], R], /
    ) -> Method[S, P, R]: ...


@overload
def method(  # type: ignore[overload-overlap]
    function: Callable[Concatenate[S, P], Coroutine[Any, Any, R]], /
) -> AsyncMethod[S, P, R]: ...
@overload
def method(function: Callable[Concatenate[S, P], R], /) -> Method[S, P, R]: ...
@overload
def method(
    *,
    read_only: bool = ...,
    timeout: float | None = ...,
    priority: int = ...,
    stream_window: int = ...,
) -> _MethodDecorator: ...
def method(
    function: Any = None,
    /,
    *,
    read_only: bool = False,
    timeout: float | None = None,
    priority: int | None = None,
    stream_window: int | None = None,
) -> Any:
    """Describe a method; type checkers then know ``.remote``, ``.tell``, ``.options``.

    Optional: every public method of an actor can be called remotely without it. The
    function is returned as it is, with a note on it.

    Args:
      read_only: it does not change the actor's state: no snapshot follows it.
      timeout: seconds that a call may take; no limit by default.
      priority: calls with a higher one overtake those with a lower one; 0 by default.
      stream_window: items that a stream may be ahead of its consumer; 16 by default.

    The last three are defaults; callers override them with ``.options``.

    Raises:
      TypeError, ValueError: an option makes no sense.
    """
    checks.flag("read_only", read_only)
    said = {"timeout": timeout, "priority": priority, "stream_window": stream_window}
    calls = {name: value for name, value in said.items() if value is not None}
    checked = DEFAULT_OPTIONS.changed(calls)
    calls = {name: getattr(checked, name) for name in calls}

    def note(function: Any) -> Any:
        if not callable(getattr(function, "__func__", function)):
            shown = checks.shown("function", function)
            raise TypeError(f"{shown} must be a function: @method is for methods")
        options = MethodOptions(read_only, calls)
        setattr(function, METHOD_ATTRIBUTE, options)
        return function

    return note if function is None else note(function)


@overload
def actor(cls: type[T], /) -> type[T]: ...
@overload
def actor(
    *,
    max_concurrency: int | None = ...,
    max_pending: int = ...,
    overflow: Literal["wait", "raise"] = ...,
) -> Callable[[type[T]], type[T]]: ...
def actor(
    cls: Any = None,
    /,
    *,
    max_concurrency: int | None = None,
    max_pending: int = 1024,
    overflow: Literal["wait", "raise"] = "wait",
) -> Any:
    """Make a class an actor class. The same class comes back, an ordinary class.

    Args:
      max_concurrency: calls that may run at once. By default 1; in a class with async
        methods those interleave on one loop, and its sync methods run one at a time.
      max_pending: calls that one caller may have outstanding, and (with
        ``overflow="raise"``) that may wait in the mailbox in all.
      overflow: at the bound, let the caller ``"wait"`` for room, or ``"raise"``
        `Overloaded`. On a running event loop it always raises, and so it does to an
        actor that would wait for itself.

    Raises:
      TypeError, ValueError: an option makes no sense.
    """
    if max_concurrency is not None:
        checks.count("max_concurrency", max_concurrency, "a number of calls", least=1)
    checks.count("max_pending", max_pending, "a number of calls", least=1)
    checks.one_of("overflow", overflow, ("wait", "raise"))

    def note(cls: type[T]) -> type[T]:
        if not isinstance(cls, type):
            raise TypeError(f"@actor is for classes, not for {cls!r}")
        options = ActorOptions(max_concurrency, max_pending, overflow)
        setattr(cls, OPTIONS_ATTRIBUTE, options)
        return cls

    return note if cls is None else note(cls)
