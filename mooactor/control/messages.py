# SPDX-License-Identifier: MIT
"""Messages between agents, brokers, commands and processes: one struct for each.

A message is an instance of a subclass of `Message`, encoded as MessagePack: a map of
its fields, in which ``type`` names the class. A `Decoder` takes the bytes of some
classes, a tagged union, and of no others. Its promises hold for any sender:

* It makes objects of these classes and of their fields' types, and runs no other code.
* Every field has the type that its class declares, within the bounds declared there:
  of numbers, of lengths of texts, and of items in lists. A field that is missing or
  unknown is an error.
* The types contain no type that contains itself, but for `ExitRecord`, which counts its
  origins. So the types bound the depth.
* The bytes themselves are bounded before: see `channel.Terms` and `lifeline.MAX_FRAME`.

A str is UTF-8. Paths, arguments and variables of the system may be other bytes, and
travel as bytes (`os.fsencode`). `readable` makes a text that can be sent of any str.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

Data: TypeAlias = "bytes | memoryview"

MAX_ID = (1 << 64) - 1  # no integer of a message is larger
Id = Annotated[int, Meta(ge=0)]
SomeId = Annotated[int, Meta(ge=1)]
Incarnation = Annotated[int, Meta(ge=0, le=0xFFFF)]
LONGEST_S = 1e9  # of a time: callers cut theirs to it
Seconds = Annotated[float, Meta(ge=0, le=LONGEST_S)]
Name = Annotated[str, Meta(max_length=255)]
Text = Annotated[str, Meta(max_length=1 << 16)]
Path = Annotated[bytes, Meta(max_length=1 << 16)]
Paths = Annotated[list[Path], Meta(max_length=1 << 16)]
Names = Annotated[list[Text], Meta(max_length=1 << 12)]
Ids = Annotated[list[Id], Meta(max_length=1 << 16)]
Handle = Annotated[bytes, Meta(max_length=1 << 21)]  # pickled, opaque to agents
Parcels = Annotated[list[bytes], Meta(max_length=8)]  # as many as `lifeline` carries

_ARRAY_32, _BIN_32, _NO_ITEMS = b"\xdd", b"\xc6", b"\x90"
_MOST_OF_A_BIN = (1 << 32) - 1


class Message(msgspec.Struct, tag=True, omit_defaults=True, forbid_unknown_fields=True):
    """The base of all messages; the name of the class is its tag."""


class Unsendable(TypeError):
    """A message that cannot be encoded: it is too large, has a number of more than 64
    bits, or a text that is not UTF-8."""


class Malformed(ValueError):
    """Bytes that are no message of the expected classes."""


class Head(msgspec.Struct):
    """The fields of a malformed message by which its sender can be answered."""

    type: str = ""
    rid: Id | None = None
    id: Id | None = None


M = TypeVar("M", bound=msgspec.Struct)

_encoder = msgspec.msgpack.Encoder()
_heads = msgspec.msgpack.Decoder(Head)
_NOT_ENCODED = (OverflowError, UnicodeEncodeError, ValueError)
# Beside the errors of msgspec: of a text that is not UTF-8, and of maps in maps.
_NOT_DECODED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode(message: Any) -> bytes:
    """The bytes of a message, or of a struct that is a part of one.

    Raises:
      Unsendable: it has none.
    """
    try:
        return _encoder.encode(message)
    except _NOT_ENCODED as error:
        what = type(message).__name__
        raise Unsendable(f"a {what} cannot be sent: {error!s:.200}") from None


def encode_in_parts(message: Message, parcels: Sequence[Data]) -> list[Data]:
    """The bytes of a message whose last field, an empty list, becomes `parcels`. These
    are not copied: each is a part of the result, in which nothing else is.

    Raises:
      Unsendable: as `encode`.
    """
    head = encode(message)
    if not parcels:
        return [head]
    assert head[-1:] == _NO_ITEMS, "the last field is no empty list"
    head = head[:-1] + _ARRAY_32 + len(parcels).to_bytes(4, "big")
    parts: list[Data] = []
    for parcel in parcels:
        if len(parcel) > _MOST_OF_A_BIN:
            raise Unsendable(f"a parcel of {len(parcel)} bytes cannot be sent")
        parts += (head + _BIN_32 + len(parcel).to_bytes(4, "big"), parcel)
        head = b""
    return parts


class Decoder(Generic[M]):
    """Decodes messages of these classes. It is built on first use, because most
    processes need few of those that they import."""

    def __init__(self, *kinds: type[M]) -> None:
        self.kinds = kinds
        self.tags = frozenset(kind.__name__ for kind in kinds)

    def __repr__(self) -> str:
        return f"<Decoder of {', '.join(kind.__name__ for kind in self.kinds)}>"

    @functools.cached_property
    def _decoder(self) -> msgspec.msgpack.Decoder[M]:
        union: Any = functools.reduce(operator.or_, self.kinds)
        return msgspec.msgpack.Decoder(union)

    def decode(self, data: Data) -> M:
        """Raises Malformed."""
        try:
            return self._decoder.decode(data)
        except _NOT_DECODED as error:
            raise Malformed(f"{error!s:.300}") from None


def leaves_of(kind: type[M]) -> list[type[M]]:
    """The classes that were derived from it so far, without those that are a base of
    others."""
    derived = kind.__subclasses__()
    return [leaf for one in derived for leaf in leaves_of(one)] if derived else [kind]


def head_of(data: Data) -> Head:
    """The readable part of a malformed message: its defaults, if none is."""
    try:
        return _heads.decode(data)
    except _NOT_DECODED:
        return Head()


def readable(text: str, most: int = 1 << 16) -> str:
    """At most so many characters of a text for people, with what is not UTF-8
    replaced."""
    return text[:most].encode("utf-8", "replace").decode()
