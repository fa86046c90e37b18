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

from collections.abc import Callable
from typing import Any

from mooactor.tensors.layout import THRESHOLD

__all__ = ["THRESHOLD", "learn", "reduce"]

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
