# SPDX-License-Identifier: MIT
"""The bodies of records: numbers, and the parts in front of a pickle.

Each layout has a function that packs it and one that takes it apart. Nothing here
unpickles. A body that is shorter than its counts say, or of the wrong size, raises
`MalformedMessage`. The table of kinds in `envelope` says which record has which layout.

**Payload.** Of CALL, REPLY and VALUE, by flags, in this order:

======== ==============================================================================
flag     what it puts in front
======== ==============================================================================
REFS     count (2), then (token, producer) of each Ref among the arguments; in the
         pickle a `Placeholder` stands in its place
BORROWS  lender, hold, count (4), then (owner, object) of the Refs inside the pickle
ATTACHED count (4), then the data plane's descriptors, each after its length (1)
(always) the pickle, see `codec`; EMPTY: no payload at all
======== ==============================================================================

A descriptor of the data plane is opaque here; ``cext/core/wire.h`` has its layout.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from mooactor.errors import MooError

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_BORROWS = struct.Struct("<QQI")
_PAIR = struct.Struct("<QQ")
_PROBE = struct.Struct("<QQI")


class MalformedMessage(MooError):
    """Bytes that are no message of ours; they were dropped."""


def pack_numbers(*numbers: int) -> bytes:
    """A payload of 64-bit numbers."""
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def numbers(payload: memoryview | bytes, count: int) -> tuple[int, ...]:
    """The reverse of it.

    Raises:
      MalformedMessage: they are not so many.
    """
    if len(payload) != 8 * count:
        raise MalformedMessage("a control record of the wrong size")
    return struct.unpack(f"<{count}Q", payload)


def all_numbers(payload: memoryview | bytes) -> list[int]:
    """The reverse of `pack_numbers`, for any number of them.

    Raises:
      MalformedMessage: the last one is cut short.
    """
    if len(payload) % 8:
        raise MalformedMessage("a number is cut short")
    return [number for (number,) in _U64.iter_unpack(payload)]


def split_number(payload: memoryview | bytes) -> tuple[int, memoryview]:
    """A number, and the bytes behind it.

    Raises:
      MalformedMessage: there is no number.
    """
    view = memoryview(payload)
    if len(view) < 8:
        raise MalformedMessage("a number is cut short")
    return int.from_bytes(view[:8], "little"), view[8:]


def pack_attached(descriptors: Sequence[bytes], pickled: bytes) -> bytes:
    """A payload that begins with data-plane descriptors."""
    parts = [_U32.pack(len(descriptors))]
    for descriptor in descriptors:
        parts += (bytes((len(descriptor),)), descriptor)
    parts.append(pickled)
    return b"".join(parts)


def split_attached(payload: memoryview | bytes) -> tuple[list[bytes], memoryview]:
    """The descriptors and the pickle of a payload with the ATTACHED flag.

    Raises:
      MalformedMessage: the descriptors do not fit into the payload.
    """
    view = memoryview(payload)
    if len(view) < 4:
        raise MalformedMessage("attachments are cut short")
    (count,) = _U32.unpack_from(view)
    descriptors, offset = [], 4
    for _ in range(count):
        if offset >= len(view) or offset + 1 + view[offset] > len(view):
            raise MalformedMessage("attachments are cut short")
        start = offset + 1
        offset = start + view[offset]
        descriptors.append(bytes(view[start:offset]))
    return descriptors, view[offset:]


def pack_borrows(
    lender: int, number: int, borrows: Collection[tuple[int, int]]
) -> bytes:
    """The first part of a payload with Refs in it: the number of their holds, and
    (owner, object number) of each."""
    pairs = b"".join([_PAIR.pack(*borrow) for borrow in borrows])
    return _BORROWS.pack(lender, number, len(borrows)) + pairs


def split_borrows(
    payload: memoryview | bytes,
) -> tuple[int, int, list[tuple[int, int]], memoryview]:
    """The lender, the number of the holds, the borrows, and the rest of a payload with
    the BORROWS flag.

    Raises:
      MalformedMessage: the borrows do not fit into the payload.
    """
    view = memoryview(payload)
    if len(view) < _BORROWS.size:
        raise MalformedMessage("borrows are cut short")
    lender, number, count = _BORROWS.unpack_from(view)
    end = _BORROWS.size + count * _PAIR.size
    if end > len(view):
        raise MalformedMessage("borrows are cut short")
    borrows = list(_PAIR.iter_unpack(view[_BORROWS.size : end]))
    return lender, number, borrows, view[end:]


class Placeholder:
    """Stands in an argument list for the value of a Ref, which arrives separately."""

    __slots__ = ("token",)

    def __init__(self, token: int) -> None:
        self.token = token

    def __reduce__(self) -> tuple[Any, ...]:
        return (Placeholder, (self.token,))


class Placeholders(list[Any]):
    """Those of the values that a Ref to a list of them gathers."""


def pack_tokens(tokens: Sequence[tuple[int, int]], payload: bytes) -> bytes:
    """A payload that begins with (token, producer's process id) pairs."""
    pairs = b"".join([_PAIR.pack(*pair) for pair in tokens])
    return _U16.pack(len(tokens)) + pairs + payload


def split_tokens(
    payload: memoryview | bytes,
) -> tuple[list[tuple[int, int]], memoryview]:
    """The pairs, and the rest of a payload with the REFS flag.

    Raises:
      MalformedMessage: the pairs do not fit into the payload.
    """
    view = memoryview(payload)
    count = _U16.unpack_from(view)[0] if len(view) >= 2 else 1 << 16
    end = 2 + _PAIR.size * count
    if end > len(view):
        raise MalformedMessage("the tokens of a call are cut short")
    return list(_PAIR.iter_unpack(view[2:end])), view[end:]


class Probe(NamedTuple):
    """The payload of a PROBE: the wait that began it, and its path."""

    initiator: int  # process id
    wait: int  # by its number there
    place: int  # of the awaited future, in that wait
    path: list[str]

    def packed(self) -> bytes:
        """As a payload; `of` is its inverse."""
        head = _PROBE.pack(self.initiator, self.wait, self.place)
        return head + "\0".join(self.path).encode()

    @classmethod
    def of(cls, payload: memoryview | bytes) -> Probe:
        """The probe that a payload stands for.

        Raises:
          MalformedMessage: it is cut short.
        """
        if len(payload) < _PROBE.size:
            raise MalformedMessage("a probe is cut short")
        path = bytes(payload[_PROBE.size :]).decode(errors="replace").split("\0")
        initiator, wait, place = _PROBE.unpack_from(payload)
        return cls(initiator, wait, place, path)
