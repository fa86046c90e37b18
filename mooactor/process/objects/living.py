# SPDX-License-Identifier: MIT
"""`Living`: the objects that were added and are still there, for several threads.

A `weakref.WeakSet` is iterated over by Python code, so it fails with a RuntimeError if
another thread adds to it meanwhile. Here all are listed in one step of the interpreter.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")
_Refs = dict[int, "weakref.ref[T]"]


class Living(Generic[T]):
    """Holds nothing alive. Any thread may add and list."""

    def __init__(self) -> None:
        self._refs: _Refs[T] = {}

    def add(self, one: T) -> None:
        """Note it; again does nothing."""
        number = id(one)  # nobody else's before the reference has ended
        self._refs[number] = weakref.ref(one, partial(_forget, self._refs, number))

    def all(self) -> list[T]:
        """Those that are there now."""
        refs = list(self._refs.values())
        return [one for ref in refs if (one := ref()) is not None]


def _forget(refs: _Refs[T], number: int, ref: weakref.ref[T]) -> None:
    if refs.get(number) is ref:
        del refs[number]
