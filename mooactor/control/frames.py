# SPDX-License-Identifier: MIT
"""What goes over a connection between two nodes: frames, one ZeroMQ message each.

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
HELLO    dict: wire, id, address, peer   first frame of a connection: who opens the
                                         channel, or comes back to it (`peer` is then
                                         the id of the node that it belongs to);
                                         if it opens the channel, pieces may follow
WELCOME  dict: id                        the answer; pieces may follow
DATA     bytes                           a piece
ACK      empty                           for its head
CLOSE    dict: why                       the sender has closed the channel
CLOSED   dict: why                       the answer; and the answer to every frame of
                                         a channel that is not open here
=======  ==============================  =============================================

Dicts are encoded by `control.plain`. Every frame has passed libzmq's authentication;
it is nevertheless parsed as if it came from a stranger.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from mooactor.control import plain
from mooactor.control.reliable import PIECE_BYTES, Data

WIRE = 1  # the version of all this
OTHER_WIRE = "of the protocol between hosts"  # in the reason for which one is refused
HELLO, WELCOME, DATA, ACK, CLOSE, CLOSED = range(1, 7)
KEY_BYTES = 8
ID_BYTES = 8
_MAX_DICT = 4096
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


class Hello(NamedTuple):
    """The body of a HELLO."""

    wire: int
    id: bytes
    address: str
    peer: bytes  # empty if the channel is new


def pack(
    kind: int, channel: bytes, number: int = 0, taken: int = 0, body: Data = b""
) -> bytes:
    return b"".join((_HEAD.pack(kind, channel, number, taken), body))


def pack_dict(
    kind: int, channel: bytes, body: dict[str, Any], number: int = 0, taken: int = 0
) -> bytes:
    return pack(kind, channel, number, taken, plain.pack(body))


def pack_why(kind: int, channel: bytes, why: str) -> bytes:
    """A CLOSE or CLOSED."""
    return pack_dict(kind, channel, {"why": why[:_MAX_TEXT]})


def unpack(data: bytes) -> Frame:
    """Raises Malformed."""
    if not _HEAD.size <= len(data) <= MAX_FRAME:
        raise Malformed(f"a frame of {len(data)} bytes")
    kind, channel, number, taken = _HEAD.unpack_from(data)
    if not HELLO <= kind <= CLOSED:
        raise Malformed(f"a frame of kind {kind}")
    return Frame(kind, channel, number, taken, data[_HEAD.size :])


def read_hello(frame: Frame) -> Hello:
    """Raises Malformed."""
    body = _read_dict(frame)
    wire = _field(body, "wire", int)
    if wire != WIRE:  # the rest may look different
        return Hello(wire, b"", "", b"")
    hello = Hello(
        wire,
        _field(body, "id", bytes),
        _field(body, "address", str),
        _field(body, "peer", bytes),
    )
    if len(hello.id) != ID_BYTES or len(hello.peer) not in (0, ID_BYTES):
        raise Malformed("an id of another length")
    return hello


def read_welcome(frame: Frame) -> bytes:
    """The id of the node. Raises Malformed."""
    found: bytes = _field(_read_dict(frame), "id", bytes)
    if len(found) != ID_BYTES:
        raise Malformed("an id of another length")
    return found


def read_why(frame: Frame) -> str:
    """Raises Malformed."""
    why: str = _field(_read_dict(frame), "why", str)
    return why[:_MAX_TEXT]


def _read_dict(frame: Frame) -> dict[str, Any]:
    if len(frame.body) > _MAX_DICT:
        raise Malformed(f"a frame of kind {frame.kind} and {len(frame.body)} bytes")
    try:
        body = plain.unpack(frame.body)
    except plain.Malformed as error:
        raise Malformed(str(error)) from None
    if type(body) is not dict:
        raise Malformed(f"a {type(body).__name__} in place of a dict")
    return body


def _field(body: dict[str, Any], name: str, kind: type) -> Any:
    value = body.get(name)
    if type(value) is not kind:
        raise Malformed(f"no {kind.__name__} as {name!r}")
    return value
