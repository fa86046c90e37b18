# SPDX-License-Identifier: MIT
"""Objects to bytes and back.

Pickle protocol 5 with out-of-band buffers; cloudpickle names what pickle cannot
(classes and functions of ``__main__``, lambdas). Arrays and tensors of
`tensors.THRESHOLD` bytes and more leave the pickle as buffers, which the data plane
carries; see `mooactor.tensors.codec` for their layout.
"""

from __future__ import annotations

import io
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import cloudpickle

from mooactor.errors import RemoteError
from mooactor.tensors import codec as layout

# Their pickles need neither cloudpickle nor a look inside.
_ATOMS = frozenset((int, float, str, bytes, bool, type(None), complex))

type_ = type
Buffers = list[pickle.PickleBuffer]


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        reduced = layout.reduce(obj)
        if reduced is not NotImplemented:
            return reduced
        return super().reducer_override(obj)


def encode(value: Any) -> tuple[bytes, Buffers]:
    """Pickle `value`; large arrays come back as buffers, in pickling order."""
    if type_(value) in _ATOMS:
        return pickle.dumps(value, 5), []
    return _encode(value, [])


def encode_args(args: tuple[Any, ...]) -> tuple[bytes, Buffers]:
    """As `encode`, for a tuple: quicker where all items are numbers or strings."""
    for arg in args:
        if type_(arg) not in _ATOMS:
            return _encode(args, [])
    return pickle.dumps(args, 5), []


def encode_in_band(value: Any) -> bytes:
    """Pickle `value` whole, with no buffer beside it."""
    stream = io.BytesIO()
    _Pickler(stream, 5).dump(value)
    return stream.getvalue()


def _encode(value: Any, buffers: Buffers) -> tuple[bytes, Buffers]:
    stream = io.BytesIO()
    _Pickler(stream, 5, buffer_callback=buffers.append).dump(value)
    return stream.getvalue(), buffers


decode: Callable[..., Any] = pickle.loads


def find_unpicklable(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The name of the first argument that cannot be pickled, for an error message."""
    named = [(f"argument {i}", arg) for i, arg in enumerate(args)]
    named += [(f"argument {key!r}", arg) for key, arg in kwargs.items()]
    for name, value in named:
        try:
            encode(value)
        except Exception:
            return f"{name} (a {type_(value).__qualname__})"
    return "the arguments"


def encode_error(error: BaseException, where: str) -> bytes:
    """An exception with its remote traceback; never fails.

    What cannot be pickled, or not unpickled again, arrives as a `RemoteError`.
    """
    trace = "".join(traceback.format_exception(error))
    name = f"{type_(error).__module__}.{type_(error).__qualname__}"
    try:
        inner = encode_in_band(error.with_traceback(None))
    except Exception:
        inner = b""
    return pickle.dumps((inner, name, str(error), trace, where), 5)


def decode_error(payload: bytes | memoryview) -> BaseException:
    """The exception of `encode_error`, as its own type where that is possible."""
    inner, name, text, trace, where = pickle.loads(payload)
    error: BaseException | None = None
    if inner:
        try:
            error = pickle.loads(inner)
        except Exception:
            error = None
    if not isinstance(error, BaseException):
        error = RemoteError(f"{name}: {text}", type_name=name)
    error.add_note(f"Remote traceback ({where}):\n{trace.rstrip()}")
    return error
