# SPDX-License-Identifier: MIT
"""What a call is made of, before it is bytes and after."""

from __future__ import annotations

import struct
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

from mooactor.control.envelope import MalformedMessage

_U16 = struct.Struct("<H")
PAIR = struct.Struct("<QQ")


@dataclass(frozen=True)
class CallOptions:
    """How one call is to be made. ``timeout`` in seconds, None for no deadline."""

    timeout: float | None = None
    retries: int = 0
    priority: int = 0
    stream_window: int = 16


DEFAULT_OPTIONS = CallOptions()


class Request(NamedTuple):
    """What is needed to send a call again."""

    name: bytes
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    flags: int
    options: CallOptions
    attempts_left: int


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


class CallContext:
    """What the method that runs here may know of its call; see `moo.current()`."""

    __slots__ = (
        "actor_id",
        "actor_label",
        "caller",
        "call_id",
        "chain",
        "deadline",
        "cancelled",
        "method",
        "serial",
        "awaits",
    )

    def __init__(
        self,
        actor_id: int,
        actor_label: str,
        caller: int,
        call_id: int,
        chain: tuple[int, ...],
        deadline: float | None,
        method: str,
        serial: bool,
    ) -> None:
        self.actor_id = actor_id
        self.actor_label = actor_label
        self.caller = caller
        self.call_id = call_id
        self.chain = chain
        self.deadline = deadline  # perf_counter seconds
        self.cancelled = False
        self.method = method
        self.serial = serial
        self.awaits: list[Any] = []  # the Refs that an async method sleeps on


context: ContextVar[CallContext | None] = ContextVar("mooactor call", default=None)
