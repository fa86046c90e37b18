# SPDX-License-Identifier: MIT
"""Objects to bytes and back.

Pickle protocol 5 with out-of-band buffers; cloudpickle takes what pickle cannot, such
as lambdas, and `script` what is defined in ``__main__``. Arrays and tensors of
`tensors.THRESHOLD` bytes and more leave the pickle as buffers, which the data plane
carries; see `mooactor.tensors.codec` for their layout. Exceptions are rebuilt without
their constructors; see `exceptions`.

A message has at most 4 GiB, so a pickle without its buffers is bounded by `MAX_BYTES`.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

from mooactor.control import exceptions, script
from mooactor.control.complaints import pass_interruption
from mooactor.tensors import codec as layout

# Their pickles need neither cloudpickle nor a look inside.
_ATOMS = frozenset((int, float, str, bytes, bool, type(None), complex))

#: Picklers for objects of exactly one type; see `tensors.codec`.
learn = layout.learn
type_ = type
Buffers = list[pickle.PickleBuffer]

#: The most that a pickle may have: a record counts its bytes with 32 bits, and holds
#: the descriptors of the buffers, too.
MAX_BYTES = (1 << 32) - (1 << 25)
MAX_BUFFERS = (1 << 16) - 1


def encode(value: Any) -> tuple[bytes, Buffers]:
    """Pickle `value`; large arrays come back as buffers, in pickling order.

    Raises:
      ValueError: it is too large for one message.
      BaseException: it cannot be pickled.
    """
    if type_(value) in _ATOMS:
        data = pickle.dumps(value, 5)
        if len(data) > MAX_BYTES:
            raise _too_large(data)
        return data, []
    return _encode(value)


def encode_args(args: tuple[Any, ...]) -> tuple[bytes, Buffers]:
    """As `encode`, for a tuple: quicker where all items are numbers or strings."""
    for arg in args:
        if type_(arg) not in _ATOMS:
            return _encode(args)
    data = pickle.dumps(args, 5)
    if len(data) > MAX_BYTES:
        raise _too_large(data)
    return data, []


def encode_in_band(value: Any) -> bytes:
    """Pickle `value` whole, with no buffer beside it.

    Raises:
      ValueError, BaseException: as `encode` does.
    """
    return _pickled(value, None)


def _encode(value: Any) -> tuple[bytes, Buffers]:
    buffers: Buffers = []
    data = _pickled(value, buffers)
    if len(buffers) > MAX_BUFFERS:
        raise ValueError(
            f"it holds {len(buffers)} large arrays, and a message carries "
            f"{MAX_BUFFERS} at most: stack them into fewer"
        )
    return data, buffers


def _pickled(value: Any, buffers: Buffers | None) -> bytes:
    stream = io.BytesIO()
    callback = None if buffers is None else buffers.append
    pickler = script.Pickler(stream, 5, buffer_callback=callback)
    pickler.dump(value)
    data = stream.getvalue()
    if pickler.table:
        data = pickler.table.pack(buffers) + data
    if len(data) > MAX_BYTES:
        raise _too_large(data)
    return data


def _too_large(data: bytes) -> ValueError:
    return ValueError(
        f"its pickle has {len(data)} bytes, and a message carries {MAX_BYTES} at most: "
        "pass large data as numpy arrays or tensors, which do not travel in the "
        "pickle (numpy.frombuffer views bytes without a copy), or in several calls"
    )


decode: Callable[..., Any] = script.loads


def find_unpicklable(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The name of the first argument that cannot be pickled, for an error message."""
    named = [(f"argument {i}", arg) for i, arg in enumerate(args)]
    named += [(f"argument {key!r}", arg) for key, arg in kwargs.items()]
    for name, value in named:
        try:
            encode(value)
        except BaseException as error:
            pass_interruption(error)
            return f"{name} (a {type_(value).__qualname__})"
    return "the arguments"


def encode_error(
    error: BaseException, where: str, max_bytes: int = exceptions.MAX_BYTES
) -> bytes:
    """An exception with its remote traceback; never fails. See `exceptions`."""
    return exceptions.encode(error, where, encode_in_band, max_bytes)


decode_error = exceptions.decode
