# SPDX-License-Identifier: MIT
"""Arrays and tensors as pickle reductions: a few words of layout plus one buffer.

`reduce` is asked first for every object that a pickler meets. It answers for exact
numpy arrays and torch tensors (and `torch.nn.Parameter`), with a reduction whose
data is one flat `pickle.PickleBuffer` from `THRESHOLD` bytes up, and a bytearray
inside the pickle below. Everything else it leaves to pickle.

Shapes, dtypes, `requires_grad`, devices and dense memory orders survive. Slices
with gaps and negative strides arrive compact; dimensions of stride 0 are sent once and
expanded again: a tensor's with stride 0, an array's into memory of their own, because
numpy would let an in-place operation work on one element several times. Two views of
one memory arrive as two arrays with right values that share nothing; one object met
twice in a pickle arrives as one.

Neither numpy nor torch is imported here before an object of theirs is met.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

# From this size on the data plane beats bytes inside the pickle (measured: see
# docs/data-plane.md). Below, one copy through the socket is cheaper than a lease.
THRESHOLD = 32 * 1024

_Handler = Callable[[Any], Any]
_handlers: dict[type, _Handler] = {}


def reduce(obj: Any) -> Any:
    """The reduction of an array or tensor, `NotImplemented` for anything else.

    The result is as from `object.__reduce_ex__`: a callable and its arguments. The
    buffer in it keeps the memory alive until it is dropped; it is read when the data
    plane exports it, so the object must not change before that.
    """
    handler = _handlers.get(type(obj))
    if handler is not None:
        return handler(obj)
    if type(obj).__module__ in _LIBRARIES:
        return _reduce_of_new_library(obj)
    return NotImplemented


def learn(kind: type, handler: Callable[[Any], Any]) -> None:
    """Have `reduce` answer for objects of exactly this type, too.

    `handler` may return `NotImplemented`, which leaves the object to pickle.
    """
    _handlers[kind] = handler


def _reduce_of_new_library(obj: Any) -> Any:
    # It is forgotten last: a signal handler may raise in the import, and other threads
    # may meet objects of the library meanwhile.
    module = type(obj).__module__
    if learn_library := _LIBRARIES.get(module):
        learn_library()
        _LIBRARIES.pop(module, None)
    handler = _handlers.get(type(obj))
    return NotImplemented if handler is None else handler(obj)


def _learn_numpy() -> None:
    from mooactor.tensors import arrays

    _handlers.update(arrays.HANDLERS)


def _learn_torch() -> None:
    from mooactor.tensors import torches

    _handlers.update(torches.HANDLERS)


# The modules that name the classes; each entry goes when it has been used.
_LIBRARIES = {
    "numpy": _learn_numpy,
    "torch": _learn_torch,
    "torch.nn.parameter": _learn_torch,
}


# -- layouts, for `arrays` and `torches` -------------------------------------


def axes_by_stride(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The axes from the outermost in memory to the innermost."""
    return sorted(
        range(len(shape)), key=lambda axis: (-strides[axis], -shape[axis], axis)
    )


def is_dense(shape: Sequence[int], strides: Sequence[int], item: int) -> bool:
    """Whether elements fill one stretch of memory without gaps, in some order.

    Args:
      strides: in the unit of `item`, the distance of two adjacent elements.
    """
    expected = item
    for axis in reversed(axes_by_stride(shape, strides)):
        if shape[axis] != 1:
            if strides[axis] != expected:
                return False
            expected *= shape[axis]
    return True


def has_repeats(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether some dimension repeats the same memory (an expanded view)."""
    return any(s == 0 and n > 1 for n, s in zip(shape, strides))


def without_repeats(shape: Sequence[int], strides: Sequence[int]) -> tuple[slice, ...]:
    """The index that keeps one element of every repeated dimension."""
    return tuple(
        slice(0, 1) if s == 0 and n > 1 else slice(None) for n, s in zip(shape, strides)
    )


# -- the receiver ------------------------------------------------------------


def ask_for_receiver(ask: Callable[[], int | None]) -> None:
    """Have `sole_receiver` return the result of `ask` in the calling thread."""
    global _ask
    _ask = ask


def sole_receiver() -> int | None:
    """The process for which this thread is pickling; None if it is unknown, or if there
    are several. The pickle may be laid out for it: memory of a GPU, say, that only it
    may open."""
    return None if _ask is None else _ask()


_ask: Callable[[], int | None] | None = None
