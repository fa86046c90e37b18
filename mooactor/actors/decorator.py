# SPDX-License-Identifier: MIT
"""``@actor`` and ``@method``: notes on a class, which stays the class it is."""

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
    TypeVar,
    overload,
)

from mooactor.actors.ref import Ref
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


class BoundMethod(Protocol[P, R_co]):
    """A method of a handle, as type checkers see it."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    def remote(self, *args: P.args, **kwargs: P.kwargs) -> Ref[R_co]: ...
    def tell(self, *args: P.args, **kwargs: P.kwargs) -> None: ...
    def options(
        self,
        *,
        timeout: float | None = ...,
        retries: int = ...,
        priority: int = ...,
        stream_window: int = ...,
    ) -> Self: ...


class BoundAsyncMethod(Protocol[P, R_co]):
    """An async method of a handle, as type checkers see it."""

    def __call__(
        self, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R_co]: ...
    def remote(self, *args: P.args, **kwargs: P.kwargs) -> Ref[R_co]: ...
    def tell(self, *args: P.args, **kwargs: P.kwargs) -> None: ...
    def options(
        self,
        *,
        timeout: float | None = ...,
        retries: int = ...,
        priority: int = ...,
        stream_window: int = ...,
    ) -> Self: ...


class Method(Generic[S, P, R]):
    """What ``@method`` makes of a function, for type checkers only: at run time the
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
    *, read_only: bool = ..., timeout: float | None = ...
) -> _MethodDecorator: ...
def method(
    function: Any = None,
    /,
    *,
    read_only: bool = False,
    timeout: float | None = None,
) -> Any:
    """Describe a method; type checkers then know ``.remote``, ``.tell``, ``.options``.

    Optional: every public method of an actor can be called remotely without it. The
    function is returned as it is, with a note on it.

    Args:
      read_only: it does not change the actor's state: no snapshot follows it.
      timeout: seconds that a call may take unless the caller says otherwise.
    """

    def note(function: Any) -> Any:
        options = MethodOptions(read_only=read_only, timeout=timeout)
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
        `Overloaded`. On a running event loop it always raises.

    Raises:
      ValueError: an option makes no sense.
    """
    if max_concurrency is not None and max_concurrency < 1:
        raise ValueError("max_concurrency is a number of calls, at least 1")
    if max_pending < 1:
        raise ValueError("max_pending is a number of calls, at least 1")
    if overflow not in ("wait", "raise"):
        raise ValueError(f"overflow is 'wait' or 'raise', not {overflow!r}")

    def note(cls: type[T]) -> type[T]:
        if not isinstance(cls, type):
            raise TypeError(f"@actor is for classes, not for {cls!r}")
        options = ActorOptions(max_concurrency, max_pending, overflow)
        setattr(cls, OPTIONS_ATTRIBUTE, options)
        return cls

    return note if cls is None else note(cls)
