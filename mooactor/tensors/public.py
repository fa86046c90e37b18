# SPDX-License-Identifier: MIT
"""The public functions: memory that is shared from the start, and moving memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from mooactor.tensors.codec import THRESHOLD
from mooactor.tensors.plane import DataPlane

if TYPE_CHECKING:
    import numpy as np
    import torch

T = TypeVar("T")

_current: DataPlane | None = None
_at_end: list[Callable[[], None]] = []


def set_current(plane: DataPlane | None) -> None:
    """Make `plane` the one that `empty` and `move` of this process use."""
    global _current
    _current = plane
    if plane is None:
        for action in _at_end:
            action()


def disown_current() -> None:
    """In the child of a fork: the plane is the parent's, and its session goes on."""
    global _current
    _current = None


def at_end(action: Callable[[], None]) -> None:
    """Call `action` whenever a session ends here, before its plane is closed."""
    _at_end.append(action)


def current() -> DataPlane | None:
    """This process's plane, None without a runtime."""
    return _current


def cuda_statistics() -> dict[str, int | str]:
    """Counts of this process's CUDA tensors by their way; empty if there were none."""
    # Imported with the first of them.
    cuda = sys.modules.get("mooactor.tensors.cuda.codec")
    count = getattr(cuda, "statistics", None)
    return {} if count is None else count()


@overload
def empty(
    shape: int | Sequence[int],
    dtype: torch.dtype,
    *,
    like: Literal["torch"] | None = None,
) -> torch.Tensor: ...
@overload
def empty(
    shape: int | Sequence[int], dtype: Any = "float32", *, like: Literal["torch"]
) -> torch.Tensor: ...
@overload
def empty(
    shape: int | Sequence[int],
    dtype: Any = "float32",
    *,
    like: Literal["numpy"] | None = None,
) -> np.ndarray[Any, np.dtype[Any]]: ...


def empty(
    shape: int | Sequence[int],
    dtype: Any = "float32",
    *,
    like: Literal["numpy", "torch"] | None = None,
) -> Any:
    """An uninitialised array or tensor in shared memory, sent without a copy.

    A `torch.dtype` gives a tensor, everything else that numpy takes as a dtype an
    array; `like` decides otherwise, with a dtype's name. Sending it costs the same
    whatever its size. The receivers keep its value at the send: later writes stay here,
    and make the next send copy it.

    Small ones lie in ordinary memory, and so do all without a runtime.

    Raises:
      OutOfMemory: this process's limit of shared memory is reached.
      TypeError, ValueError: an argument makes no sense.
    """
    dims = _dims(shape)
    if like not in (None, "numpy", "torch"):
        raise ValueError(f"like={like!r} must be 'numpy', 'torch' or None")
    torch_ = sys.modules.get("torch")
    if like == "torch" or (torch_ is not None and isinstance(dtype, torch_.dtype)):
        return _empty_tensor(dims, dtype)
    return _empty_array(dims, dtype)


def _dims(shape: Any) -> tuple[int, ...]:
    try:
        sizes = (shape,) if hasattr(shape, "__index__") else tuple(shape)
        dims = tuple(map(index, sizes))
    except TypeError:
        raise TypeError(
            f"shape={shape!r} must be a whole number, or a sequence of them"
        ) from None
    if any(dim < 0 for dim in dims):
        raise ValueError(f"shape={shape!r} must not have a negative size")
    return dims


def _empty_array(dims: tuple[int, ...], dtype: Any) -> Any:
    import numpy as np

    try:
        kind = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"dtype={dtype!r} must be a dtype, or its name") from None
    size = kind.itemsize
    for dim in dims:
        size *= dim
    if _current is None or size < THRESHOLD or kind.hasobject:
        return np.empty(dims, kind)
    return np.ndarray(dims, kind, _current.empty_buffer(size))


def _empty_tensor(dims: tuple[int, ...], dtype: Any) -> Any:
    import torch

    kind = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(kind, torch.dtype):
        raise TypeError(f"dtype={dtype!r} must be a torch.dtype, or its name")
    size = kind.itemsize
    for dim in dims:
        size *= dim
    if _current is None or size < THRESHOLD:
        return torch.empty(dims, dtype=kind)
    return torch.frombuffer(_current.empty_buffer(size), dtype=kind).view(dims)


def move(obj: T) -> T:
    """Give `obj`, an array or tensor, away: send the result, once.

    The receiver gets the memory itself, writable; a plain send would leave both sides
    with values of their own. Nothing is copied if the memory is shared and nobody else
    holds it; private memory is copied once, as in a plain send.

    From here on `obj` is empty (an array in private memory: read-only), so that a later
    use of it is noticed. The returned object must not be used after it was sent;
    sending it again raises `ValueError`. Nor must other views of the same memory.

    Without a runtime, and for objects of other types, `obj` is returned.
    """
    plane = _current
    kind = type(obj).__module__
    moved: T = obj
    if plane is not None and kind == "numpy":
        from mooactor.tensors import arrays

        moved = arrays.move(plane, obj)
    elif plane is not None and kind == "torch":
        from mooactor.tensors import torches

        moved = torches.move(plane, obj)
    return moved
