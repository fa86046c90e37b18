# SPDX-License-Identifier: MIT
"""Plain values as bytes and back, for messages between processes and the host's agent.

The format can express these values and nothing else, so decoding makes no object of a
class and runs no code, for any sender. Each value is a tag and its contents; numbers
are little-endian.

======  =========  ==================================================================
tag     value      what follows
======  =========  ==================================================================
``N``   None       nothing
``T``   True       nothing
``F``   False      nothing
``i``   int        length (1 byte, at most 16), that many bytes of two's complement
``f``   float      8 bytes, IEEE 754
``s``   str        length (4 bytes), UTF-8; a lone surrogate as its three bytes
``b``   bytes      length (4 bytes), the bytes
``l``   list       number of items (4 bytes), the items
``d``   dict       number of entries (4 bytes); for each a ``s`` without its tag, which
                   is the key, and a value. No key comes twice.
======  =========  ==================================================================

Values nest at most `MAX_DEPTH` deep. Every length is checked against the bytes that
are left before anything is allocated, so a value takes memory in proportion to its
encoding. `pack` takes exact types only: a subclass may carry more than its value.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

MAX_DEPTH = 16
_MAX_INT_BYTES = 16
_LENGTH = struct.Struct("<I")
_FLOAT = struct.Struct("<d")
_CONSTANTS = {ord("N"): None, ord("T"): True, ord("F"): False}


class NotPlain(TypeError):
    """A value that the format cannot express."""


class Malformed(ValueError):
    """Bytes that are no encoded value."""


def pack(value: Any) -> bytes:
    """Encode a plain value.

    Raises:
      NotPlain: it, or a value in it, is of another type, too deep or too large.
    """
    out = bytearray()
    _pack(value, out, MAX_DEPTH)
    return bytes(out)


def pack_in_parts(
    value: dict[str, Any], key: str, blobs: Sequence[bytes | memoryview]
) -> list[bytes | memoryview]:
    """Encode ``{**value, key: blobs}``, where `value` has no such key, without a copy
    of the blobs: each is a part of the result, in which nothing else is.

    Raises:
      NotPlain: as `pack`.
    """
    assert key not in value
    head = pack({**value, key: []})  # its last bytes are the number of the blobs
    parts: list[bytes | memoryview] = [head[: -_LENGTH.size] + _LENGTH.pack(len(blobs))]
    for blob in blobs:
        parts += (_head_of(b"b", blob), blob)
    return parts


def unpack(data: bytes | bytearray) -> Any:
    """Decode the result of `pack`.

    Raises:
      Malformed: these are other bytes.
    """
    reader = _Reader(bytes(data))
    value = reader.value(MAX_DEPTH)
    if reader.left():
        raise Malformed(f"{reader.left()} bytes after the value")
    return value


def _pack(value: Any, out: bytearray, depth: int) -> None:
    kind = type(value)
    if value is None:
        out += b"N"
    elif kind is bool:
        out += b"T" if value else b"F"
    elif kind is int:
        _pack_int(value, out)
    elif kind is float:
        out += b"f" + _FLOAT.pack(value)
    elif kind is str:
        _pack_bytes(b"s", _utf8(value), out)
    elif kind is bytes:
        _pack_bytes(b"b", value, out)
    elif kind is list or kind is dict:
        if depth == 0:
            raise NotPlain(f"more than {MAX_DEPTH} values inside each other")
        _pack_items(value, out, depth - 1)
    else:
        raise NotPlain(
            f"{value!r:.80} is of type {kind.__qualname__}, which is not plain"
        )


def _pack_int(value: int, out: bytearray) -> None:
    # Two's complement has one more negative value than positive ones.
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    if size > _MAX_INT_BYTES:
        raise NotPlain(f"an integer of {size} bytes; at most {_MAX_INT_BYTES} fit")
    out += b"i" + bytes((size,)) + value.to_bytes(size, "little", signed=True)


def _pack_bytes(tag: bytes, data: bytes, out: bytearray) -> None:
    out += _head_of(tag, data) + data


def _head_of(tag: bytes, data: bytes | memoryview) -> bytes:
    if len(data) > 0xFFFFFFFF:
        raise NotPlain(f"{len(data)} bytes in one value; at most {0xFFFFFFFF} fit")
    return tag + _LENGTH.pack(len(data))


def _pack_items(value: Any, out: bytearray, depth: int) -> None:
    if type(value) is list:
        out += b"l" + _LENGTH.pack(len(value))
        for item in value:
            _pack(item, out, depth)
        return
    out += b"d" + _LENGTH.pack(len(value))
    for key, item in value.items():
        if type(key) is not str:
            raise NotPlain(f"the key {key!r:.80} is of type {type(key).__qualname__}")
        _pack_bytes(b"", _utf8(key), out)
        _pack(item, out, depth)


def _utf8(text: str) -> bytes:
    # Paths and variables that are not UTF-8 have lone surrogates (PEP 383).
    return text.encode("utf-8", "surrogatepass")


class _Reader:
    """Takes values off the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def left(self) -> int:
        return len(self._data) - self._at

    def value(self, depth: int) -> Any:
        tag = self._byte()
        if tag == 0x73:  # s
            return self._str()
        if tag == 0x69:  # i
            return self._int()
        if tag in _CONSTANTS:
            return _CONSTANTS[tag]
        if tag == 0x62:  # b
            return self._bytes(self._length())
        if tag == 0x66:  # f
            return _FLOAT.unpack(self._bytes(8))[0]
        if tag not in (0x6C, 0x64):  # l, d
            raise Malformed(f"no value begins with the byte {tag}")
        if depth == 0:
            raise Malformed(f"more than {MAX_DEPTH} values inside each other")
        return self._list(depth - 1) if tag == 0x6C else self._dict(depth - 1)

    def _byte(self) -> int:
        at = self._at
        if at >= len(self._data):
            raise Malformed("a value was announced, 0 bytes left")
        self._at = at + 1
        return self._data[at]

    def _bytes(self, size: int) -> bytes:
        at = self._at
        end = at + size
        if end > len(self._data):
            raise Malformed(f"{size} bytes announced, {self.left()} left")
        self._at = end
        return self._data[at:end]

    def _length(self) -> int:
        start = self._at + _LENGTH.size
        left = len(self._data) - start
        if left < 0:
            raise Malformed(f"a length was announced, {self.left()} bytes left")
        length: int = _LENGTH.unpack_from(self._data, self._at)[0]
        if length > left:  # each byte, item and entry takes a byte at least
            raise Malformed(f"a length of {length}, {left} bytes left")
        self._at = start
        return length

    def _int(self) -> int:
        size = self._byte()
        if not 1 <= size <= _MAX_INT_BYTES:
            raise Malformed(f"an integer of {size} bytes")
        return int.from_bytes(self._bytes(size), "little", signed=True)

    def _str(self) -> str:
        try:
            return self._bytes(self._length()).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise Malformed(f"a text that is not UTF-8: {error.reason}") from None

    def _list(self, depth: int) -> list[Any]:
        return [self.value(depth) for _ in range(self._length())]

    def _dict(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(self._length()):
            key = self._str()
            if key in found:
                raise Malformed(f"the key {key!r:.80} comes twice")
            found[key] = self.value(depth)
        return found
