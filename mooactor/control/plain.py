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

Values nest at most `MAX_DEPTH` deep, and there are at most `MAX_VALUES`: an empty dict
takes five bytes encoded, and seventy otherwise. Every length is checked against the
bytes that are left before anything is allocated. `pack` takes exact types only: a
subclass may carry more than its value.

Each message between agents passes here, and lifelines bring hundreds of thousands of
values a second: so each half is one step for each type, with few calls in it.

``surrogatepass``: paths and variables that are not UTF-8 have surrogates (PEP 383).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

MAX_DEPTH = 16
MAX_VALUES = 1 << 20  # in one, itself included; about a second's work
_MAX_INT_BYTES = 16
_MAX_LENGTH = 0xFFFFFFFF
_TOO_LARGE = f"more than {_MAX_LENGTH} bytes or items in one value"
_TOO_MANY = f"more than {MAX_VALUES} values in one message"
_LENGTH = struct.Struct("<I")
_HEAD = struct.Struct("<cI")
_FLOAT = struct.Struct("<d")
_TAG_AND_FLOAT = struct.Struct("<cd")
_CONSTANTS = {ord("N"): None, ord("T"): True, ord("F"): False}
_INT_HEADS = [b"i" + bytes((size,)) for size in range(_MAX_INT_BYTES + 1)]
_INT, _FLT, _STR, _BYTES, _LIST, _DICT = b"ifsbld"


class NotPlain(TypeError):
    """A value that the format cannot express."""


class Malformed(ValueError):
    """Bytes that are no encoded value."""


def pack(value: Any) -> bytes:
    """Encode a plain value.

    Raises:
      NotPlain: it, or a value in it, is of another type, too deep or too large, or
        there are too many.
    """
    out = bytearray()
    try:
        _pack(value, out, MAX_DEPTH)
    except struct.error:
        raise NotPlain(_TOO_LARGE) from None
    if len(out) > MAX_VALUES and _has_too_many(out):
        raise NotPlain(_TOO_MANY)
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
        if len(blob) > _MAX_LENGTH:
            raise NotPlain(_TOO_LARGE)
        parts += (_HEAD.pack(b"b", len(blob)), blob)
    return parts


def unpack(data: bytes | bytearray) -> Any:
    """Decode the result of `pack`.

    Raises:
      Malformed: these are other bytes.
    """
    data = bytes(data)
    try:
        if len(data) > MAX_VALUES and _has_too_many(data):
            raise Malformed(_TOO_MANY)
        value, at = _unpack(data, 0, MAX_DEPTH)
    except (IndexError, struct.error):
        raise Malformed("the bytes end within a value") from None
    except UnicodeDecodeError as error:
        raise Malformed(f"a text that is not UTF-8: {error.reason}") from None
    if at != len(data):
        raise Malformed(f"{len(data) - at} bytes after the value")
    return value


# -- values to bytes -------------------------------------------------------


def _pack(value: Any, out: bytearray, depth: int) -> None:
    packed = _PACKED.get(type(value))
    if packed is None:
        raise NotPlain(
            f"{value!r:.80} is of type {type(value).__qualname__}, which is not plain"
        )
    packed(value, out, depth)


def _pack_none(value: None, out: bytearray, depth: int) -> None:
    out += b"N"


def _pack_bool(value: bool, out: bytearray, depth: int) -> None:
    out += b"T" if value else b"F"


def _pack_int(value: int, out: bytearray, depth: int) -> None:
    # Two's complement has one more negative value than positive ones.
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    if size > _MAX_INT_BYTES:
        raise NotPlain(f"an integer of {size} bytes; at most {_MAX_INT_BYTES} fit")
    out += _INT_HEADS[size] + value.to_bytes(size, "little", signed=True)


def _pack_float(value: float, out: bytearray, depth: int) -> None:
    out += _TAG_AND_FLOAT.pack(b"f", value)


def _pack_str(value: str, out: bytearray, depth: int) -> None:
    data = value.encode("utf-8", "surrogatepass")
    out += _HEAD.pack(b"s", len(data)) + data


def _pack_bytes(value: bytes, out: bytearray, depth: int) -> None:
    out += _HEAD.pack(b"b", len(value))
    out += value


def _pack_list(value: list[Any], out: bytearray, depth: int) -> None:
    out += _HEAD.pack(b"l", len(value))
    depth = _deeper(depth, NotPlain)
    for item in value:
        _pack(item, out, depth)


def _pack_dict(value: dict[str, Any], out: bytearray, depth: int) -> None:
    out += _HEAD.pack(b"d", len(value))
    depth = _deeper(depth, NotPlain)
    for key, item in value.items():
        if type(key) is not str:
            raise NotPlain(f"the key {key!r:.80} is of type {type(key).__qualname__}")
        data = key.encode("utf-8", "surrogatepass")
        out += _LENGTH.pack(len(data)) + data
        _pack(item, out, depth)


def _deeper(depth: int, error: type[Exception]) -> int:
    if depth == 0:
        raise error(f"more than {MAX_DEPTH} values inside each other")
    return depth - 1


_PACKED: dict[type, Callable[[Any, bytearray, int], None]] = {
    type(None): _pack_none,
    bool: _pack_bool,
    int: _pack_int,
    float: _pack_float,
    str: _pack_str,
    bytes: _pack_bytes,
    list: _pack_list,
    dict: _pack_dict,
}


# -- bytes to values -------------------------------------------------------


def _unpack(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    """The value that begins at `at`, and where it ends. Beside Malformed, it raises
    IndexError and struct.error where the bytes end, and UnicodeDecodeError."""
    tag = data[at]
    at += 1
    if tag == _STR:
        end = _end(data, at)
        return str(data[at + 4 : end], "utf-8", "surrogatepass"), end
    if tag == _INT:
        size = data[at]
        at += 1
        end = at + size
        if not 1 <= size <= _MAX_INT_BYTES or end > len(data):
            raise Malformed(f"an integer of {size} bytes, {len(data) - at} left")
        return int.from_bytes(data[at:end], "little", signed=True), end
    if tag == _DICT:
        return _unpack_dict(data, at, _deeper(depth, Malformed))
    if tag in _CONSTANTS:
        return _CONSTANTS[tag], at
    if tag == _BYTES:
        end = _end(data, at)
        return data[at + 4 : end], end
    if tag == _FLT:
        return _FLOAT.unpack_from(data, at)[0], at + 8
    if tag == _LIST:
        return _unpack_list(data, at, _deeper(depth, Malformed))
    raise Malformed(f"no value begins with the byte {tag}")


def _end(data: bytes, at: int) -> int:
    """Where the text or the bytes end whose length is at `at`."""
    end: int = at + 4 + _LENGTH.unpack_from(data, at)[0]
    if end > len(data):
        raise Malformed(f"{end - at - 4} bytes announced, {len(data) - at - 4} left")
    return end


def _count(data: bytes, at: int) -> int:
    """The number of items or entries at `at`: each takes a byte at least."""
    count: int = _LENGTH.unpack_from(data, at)[0]
    if count > len(data) - at - 4:
        raise Malformed(f"{count} items announced, {len(data) - at - 4} bytes left")
    return count


def _has_too_many(data: bytes | bytearray) -> bool:
    """Whether more than `MAX_VALUES` begin there. Each takes a byte, so this is asked
    of large messages only, and most of these are a few large values. It makes nothing;
    what is malformed is left to `_unpack`, but for the errors of `_unpack` itself."""
    at, values = 0, 0
    left = [(1, False)]  # of each container around: values to come, and whether a dict
    while left and values <= MAX_VALUES:
        count, is_dict = left.pop()
        if count == 0:
            continue
        left.append((count - 1, is_dict))
        values += 1
        if is_dict:
            at += 4 + _LENGTH.unpack_from(data, at)[0]  # the key
        tag = data[at]
        at += 1
        if tag == _INT:
            at += 1 + data[at]
        elif tag == _FLT:
            at += 8
        elif tag in (_STR, _BYTES):
            at += 4 + _LENGTH.unpack_from(data, at)[0]
        elif tag in (_LIST, _DICT):
            left.append((_LENGTH.unpack_from(data, at)[0], tag == _DICT))
            at += 4
            if len(left) > MAX_DEPTH + 1:
                return False
    return values > MAX_VALUES


def _unpack_list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    found = []
    count = _count(data, at)
    at += 4
    for _ in range(count):
        value, at = _unpack(data, at, depth)
        found.append(value)
    return found, at


def _unpack_dict(data: bytes, at: int, depth: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    count = _count(data, at)
    at += 4
    for _ in range(count):
        end = _end(data, at)
        key = str(data[at + 4 : end], "utf-8", "surrogatepass")
        if key in found:
            raise Malformed(f"the key {key!r:.80} comes twice")
        found[key], at = _unpack(data, end, depth)
    return found, at
