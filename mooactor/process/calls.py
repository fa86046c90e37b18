# SPDX-License-Identifier: MIT
"""What a call is made of, before it is bytes and after."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mooactor.control.envelope import MalformedMessage
from mooactor.process import checks

_U16 = struct.Struct("<H")
PAIR = struct.Struct("<QQ")


@dataclass(frozen=True)
class CallOptions:
    """How one call is to be made. ``timeout`` in seconds, None for no deadline."""

    timeout: float | None = None
    retries: int = 0
    priority: int = 0
    stream_window: int = 16
    num_returns: int | None = None

    def changed(self, changes: Mapping[str, Any]) -> CallOptions:
        """The same with other values.

        Raises:
          TypeError: no such option, or a value of a wrong type.
          ValueError: a value that makes no sense.
        """
        checks.known_names(".options()", changes, _CHECKS)
        checked = {name: _CHECKS[name](value) for name, value in changes.items()}
        return replace(self, **checked)


def _timeout(value: Any) -> float | None:
    return checks.seconds("timeout", value, positive=True)


def _retries(value: Any) -> int:
    return checks.count("retries", value, "a number of further attempts")


def _priority(value: Any) -> int:
    return checks.count("priority", value, "a whole number", least=-128, most=127)


def _stream_window(value: Any) -> int:
    return checks.count(
        "stream_window", value, "a number of items", least=1, most=1 << 30
    )


def _num_returns(value: Any) -> int:
    return checks.count("num_returns", value, "a number of values", least=1)


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "timeout": _timeout,
    "retries": _retries,
    "priority": _priority,
    "stream_window": _stream_window,
    "num_returns": _num_returns,
}
DEFAULT_OPTIONS = CallOptions()


class Request(NamedTuple):
    """What is needed to send a call again."""

    name: bytes
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    flags: int
    options: CallOptions
    attempts_left: int
    spec: Any


class Placeholder:
    """Stands in an argument list for the value of a Ref, which comes on its own."""

    __slots__ = ("token",)

    def __init__(self, token: int) -> None:
        self.token = token

    def __reduce__(self) -> tuple[Any, ...]:
        return (Placeholder, (self.token,))


def pack_tokens(tokens: list[tuple[int, int]], payload: bytes) -> bytes:
    """A payload that begins with (token, producer's process id) pairs."""
    pairs = b"".join(PAIR.pack(*pair) for pair in tokens)
    return _U16.pack(len(tokens)) + pairs + payload


def split_tokens(payload: memoryview) -> tuple[list[tuple[int, int]], memoryview]:
    """The reverse of `pack_tokens`.

    Raises:
      MalformedMessage: the pairs do not fit into the payload.
    """
    count = _U16.unpack_from(payload)[0] if len(payload) >= 2 else 1 << 16
    end = 2 + 16 * count
    if end > len(payload):
        raise MalformedMessage("the tokens of a call are cut short")
    return [PAIR.unpack_from(payload, 2 + 16 * i) for i in range(count)], payload[end:]


#: In a chain, set in the id of an actor whose only thread for sync methods is taken.
IN_THREAD = 1


class CallContext:
    """What the method that runs here may know of its call; see `moo.current()`."""

    cancelled = False
    in_thread = False  # it has the one thread of an async actor
    started = True  # False: it is admitted, but has no thread yet

    def __init__(
        self,
        actor_id: int,
        actor_label: str,
        caller: int,
        call_id: int,
        chain: tuple[int, ...],
        deadline: float | None,
        method: str,
    ) -> None:
        self.actor_id = actor_id
        self.actor_label = actor_label
        self.caller = caller
        self.call_id = call_id
        self.chain = chain
        self.deadline = deadline  # perf_counter seconds
        self.method = method
        self.awaits: list[Any] = []  # each `Wait` that it sleeps on

    @property
    def chain_entry(self) -> int:
        """What stands for this call in the chain of a call that it waits for."""
        return self.actor_id | (IN_THREAD if self.in_thread else 0)


context: ContextVar[CallContext | None] = ContextVar("mooactor call", default=None)
