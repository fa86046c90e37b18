# SPDX-License-Identifier: MIT
"""Two nodes exchange frames over a connection, one ZeroMQ message each.

A frame is a head and a body. The head is little-endian:

=======  =======  ====================================================================
bytes    field    meaning
=======  =======  ====================================================================
1        kind     see below
8        channel  the key of the channel, chosen at random by the side that opened it
8        number   of the piece (DATA), or of the attempt to connect (HELLO), from 1
8        taken    how many pieces of the other side the sender has taken in all
=======  =======  ====================================================================

=======  ==============================  =============================================
kind     body                            meaning
=======  ==============================  =============================================
HELLO    `Hello`                         first frame of a connection: who opens the
                                         channel, or comes back to it (`peer` is then
                                         the id of the node that it belongs to);
                                         if it opens the channel, pieces may follow
WELCOME  `Welcome`                       the answer; pieces may follow
DATA     bytes                           a piece
ACK      empty                           for its head
CLOSE    `Why`                           the sender has closed the channel
CLOSED   `Why`                           the answer; and the answer to every frame of
                                         a channel that is not open here
=======  ==============================  =============================================

Structs are encoded as `control.messages` has it. Every frame has passed libzmq's
authentication; it is nevertheless parsed as if it came from a stranger.
"""

from __future__ import annotations

import struct
from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from mooactor.control.messages import readable
from mooactor.control.reliable import PIECE_BYTES, Data

WIRE = 2  # the version of all this
OTHER_WIRE = "of the protocol between hosts"  # in the reason for which one is refused
HELLO, WELCOME, DATA, ACK, CLOSE, CLOSED = range(1, 7)
KEY_BYTES = 8
ID_BYTES = 8
_MAX_BODY = 4096  # of a struct
_MAX_TEXT = 500  # characters, of a reason
_HEAD = struct.Struct("<B8sQQ")
MAX_FRAME = _HEAD.size + PIECE_BYTES


class Malformed(Exception):
    """Bytes that are no frame."""


class Frame(NamedTuple):
    kind: int
    channel: bytes
    number: int
    taken: int
    body: bytes


NodeId = Annotated[bytes, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]


class Hello(msgspec.Struct):
    """The body of a HELLO. `peer`: None if the channel is new."""

    wire: int
    id: NodeId
    address: str
    peer: NodeId | None = None


class _OtherHello(msgspec.Struct):
    """The part of it that every version has."""

    wire: int


class Welcome(msgspec.Struct):
    id: NodeId


class Why(msgspec.Struct):
    why: str


Body = Hello | Welcome | Why
B = TypeVar("B", _OtherHello, Hello, Welcome, Why)


def pack(
    kind: int, channel: bytes, number: int = 0, taken: int = 0, body: Data = b""
) -> bytes:
    return b"".join((_HEAD.pack(kind, channel, number, taken), body))


def pack_struct(
    kind: int, channel: bytes, body: Body, number: int = 0, taken: int = 0
) -> bytes:
    return pack(kind, channel, number, taken, msgspec.msgpack.encode(body))


def pack_why(kind: int, channel: bytes, why: str) -> bytes:
    """A CLOSE or CLOSED."""
    return pack_struct(kind, channel, Why(readable(why, _MAX_TEXT)))


def unpack(data: bytes) -> Frame:
    """Raises Malformed."""
    if not _HEAD.size <= len(data) <= MAX_FRAME:
        raise Malformed(f"a frame of {len(data)} bytes")
    kind, channel, number, taken = _HEAD.unpack_from(data)
    if not HELLO <= kind <= CLOSED:
        raise Malformed(f"a frame of kind {kind}")
    return Frame(kind, channel, number, taken, data[_HEAD.size :])


def read_hello(frame: Frame) -> Hello:
    """One of another version has its number and nothing else. Raises Malformed."""
    wire = _read(frame, _OtherHello).wire
    if wire != WIRE:
        return Hello(wire, b"", "")
    return _read(frame, Hello)


def read_welcome(frame: Frame) -> bytes:
    """The id of the node. Raises Malformed."""
    return _read(frame, Welcome).id


def read_why(frame: Frame) -> str:
    """Raises Malformed."""
    return _read(frame, Why).why[:_MAX_TEXT]


def _read(frame: Frame, kind: type[B]) -> B:
    if len(frame.body) > _MAX_BODY:
        raise Malformed(f"a frame of kind {frame.kind} and {len(frame.body)} bytes")
    try:
        return msgspec.msgpack.decode(frame.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"{error!s:.300}") from None
