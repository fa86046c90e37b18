# SPDX-License-Identifier: MIT
"""The interface of a class: its public methods, of which kind, with which
arguments. A small picklable value, so that a handle needs no class."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["sync", "async", "generator", "async generator"]
OPTIONS_ATTRIBUTE = "__moo_actor__"
METHOD_ATTRIBUTE = "__moo_method__"
HOOKS = frozenset(("on_start", "on_stop"))  # called by the runtime, not by callers


@dataclass(frozen=True)
class ActorOptions:
    """The arguments of ``@actor(…)``; see there."""

    max_concurrency: int | None = None
    max_pending: int = 1024
    overflow: Literal["wait", "raise"] = "wait"


@dataclass(frozen=True)
class MethodOptions:
    """The arguments of ``@method(…)``; see there."""

    read_only: bool = False
    calls: Mapping[str, Any] = field(default_factory=dict)  # for `CallOptions.changed`


class MethodSpec:
    """One public method, as callers and the actor itself need to know it.

    Only callers need its signature, so it is found out when one asks: in an actor that
    starts it would take longer than all else that is learnt of its class.
    """

    __slots__ = (
        *("name", "kind", "options", "wire", "function"),
        *("_signature", "_least", "_most"),
    )

    def __init__(
        self,
        name: str,
        kind: Kind,
        options: MethodOptions,
        signature: inspect.Signature | Callable[[], inspect.Signature],
        function: Any = None,
    ) -> None:
        """`function`: of the class, where that is known. It does not travel."""
        self.function = function
        self.name = name
        self.kind = kind
        self.options = options
        encoded = name.encode()
        self.wire = bytes((len(encoded),)) + encoded
        self._signature = signature
        self._least, self._most = _NONE_SURELY
        if isinstance(signature, inspect.Signature):
            self._least, self._most = _positional_bounds(signature)

    @property
    def signature(self) -> inspect.Signature:
        """Without `self`, annotations and default values."""
        found = self._signature
        if not isinstance(found, inspect.Signature):
            found = self._signature = found()
            self._least, self._most = _positional_bounds(found)
        return found

    @property
    def described(self) -> inspect.Signature:
        """For people: with annotations and default values, where the class is known."""
        if self.function is None:
            return self.signature
        function, skip = self.function
        try:
            full = signature_of(function)
        except (ValueError, TypeError):
            return self.signature
        return full.replace(parameters=_without_self(full, skip))

    @property
    def doc(self) -> str | None:
        """Its docstring, where the class is known."""
        return None if self.function is None else inspect.getdoc(self.function[0])

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.name, self.kind, self.options, self.signature)
        return (MethodSpec, parts)

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuse a wrong argument list.

        Raises:
          TypeError: as a direct call would.
        """
        if not kwargs and self._least <= len(args) <= self._most:
            return
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}") from None

    @property
    def is_async(self) -> bool:
        return self.kind.startswith("async")

    @property
    def streams(self) -> bool:
        return self.kind in ("generator", "async generator")


_NONE_SURELY = 1, 0  # an empty range


def _positional_bounds(signature: inspect.Signature) -> tuple[int, int]:
    """The numbers of bare positional arguments that surely fit; an empty range if more
    must be checked."""
    least = most = 0
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            most = 1 << 30
        elif parameter.kind is parameter.KEYWORD_ONLY:
            if parameter.default is parameter.empty:
                return _NONE_SURELY
        elif parameter.kind is not parameter.VAR_KEYWORD:
            most += 1
            least += parameter.default is parameter.empty
    return least, most


@dataclass(frozen=True)
class Interface:
    """The description of a class for its callers."""

    label: str
    methods: dict[str, MethodSpec]
    options: ActorOptions
    attributes: frozenset[str] = field(default=frozenset())

    @functools.cached_property
    def is_async(self) -> bool:
        return any(m.kind.startswith("async") for m in self.methods.values())

    @functools.cached_property
    def concurrency(self) -> int:
        """The number of calls that may be under way at once."""
        if self.options.max_concurrency is not None:
            return self.options.max_concurrency
        return 1000 if self.is_async else 1

    @functools.cached_property
    def serial(self) -> bool:
        """Runs one method at a time, in its process's main thread."""
        return self.concurrency == 1 and not self.is_async


@functools.lru_cache(maxsize=256)
def interface_of(cls: type) -> Interface:
    """Describe a class, decorated with ``@actor`` or not."""
    methods = {}
    for name in dir(cls):
        if (name.startswith("_") and name != "__call__") or name in HOOKS:
            continue
        function = inspect.getattr_static(cls, name)
        spec = _method_spec(name, function)
        if spec is not None:
            methods[name] = spec
    options = getattr(cls, OPTIONS_ATTRIBUTE, ActorOptions())
    attributes = frozenset(n for n in dir(cls) if not n.startswith("_"))
    return Interface(cls.__qualname__, methods, options, attributes - set(methods))


def _method_spec(name: str, attribute: Any) -> MethodSpec | None:
    skip = 1
    if isinstance(attribute, staticmethod):
        attribute, skip = attribute.__func__, 0
    elif isinstance(attribute, classmethod):
        attribute = attribute.__func__
    attribute = getattr(attribute, "__wrapped_method__", attribute)
    if not inspect.isroutine(attribute):
        return None
    options = getattr(attribute, METHOD_ATTRIBUTE, MethodOptions())
    signature = functools.partial(_signature, attribute, skip)
    return MethodSpec(name, _kind(attribute), options, signature, (attribute, skip))


def _signature(attribute: Any, skip: int) -> inspect.Signature:
    try:
        return _bare(signature_of(attribute), skip)
    except (ValueError, TypeError):  # some builtins have none
        return _ANYTHING


def signature_of(function: Any) -> inspect.Signature:
    """Its parameters; names in their annotations need not exist.

    Raises:
      TypeError, ValueError: it has no signature, as some builtins.
    """
    if sys.version_info >= (3, 14):  # evaluates them when they are looked at
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.STRING)
    return inspect.signature(function)


def _kind(function: Any) -> Kind:
    function = inspect.unwrap(function)
    if inspect.iscoroutinefunction(function):
        return "async"
    if inspect.isasyncgenfunction(function):
        return "async generator"
    if inspect.isgeneratorfunction(function):
        return "generator"
    return "sync"


def _bare(signature: inspect.Signature, skip: int) -> inspect.Signature:
    """Without `self`, annotations and default values, which may not pickle."""
    parameters = _without_self(signature, skip)
    empty = inspect.Parameter.empty
    return inspect.Signature(
        [
            p.replace(annotation=empty, default=empty if p.default is empty else None)
            for p in parameters
        ]
    )


def _without_self(signature: inspect.Signature, skip: int) -> list[inspect.Parameter]:
    """A wrapper may take everything, `self` too, as ``*args``."""
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL:
        return parameters
    return parameters[skip:]


_ANYTHING = inspect.Signature(
    [
        inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
        inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
    ]
)
