# SPDX-License-Identifier: MIT
"""The tensors in one argument of a collective, their order and their names.

Members put the tensors of dicts together by position, and so do `tensors` and `out=`.
Invariant: positions are those of the sorted keys, and the keys are compared. They are
part of a call's layout, so members with other keys get an error before anything is
reduced, not each other's tensors.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mooactor.learner.kinds import is_array, is_torch


def listed(tensors: Any) -> list[Any]:
    """The tensors: the argument itself, or its values in order.

    Raises:
      TypeError: they are no tensors, or their keys have no order.
    """
    if type(tensors) is list:  # the usual case; the rest takes a while
        return tensors
    if is_array(tensors) or is_torch(tensors):
        return [tensors]
    if isinstance(tensors, Mapping):
        return [tensors[key] for key in _in_order(tensors)]
    if isinstance(tensors, Iterable):
        return list(tensors)
    raise TypeError(
        "expected an array, a tensor, or a list or dict of them, "
        f"not {type(tensors).__name__}"
    )


def reusable(tensors: Any) -> Any:
    """The same argument; of an iterator, which can be read only once, a list."""
    return list(tensors) if isinstance(tensors, Iterator) else tensors


def label(tensors: Any, index: int) -> str:
    """The name of a tensor: its key, or its position."""
    if is_array(tensors) or is_torch(tensors):
        return ""
    if isinstance(tensors, Mapping):
        return repr(_in_order(tensors)[index])
    return str(index)


def keys_of(tensors: Any) -> tuple[Any, ...]:
    """The keys of a dict, in order and as plain values; none of other arguments.

    Raises:
      TypeError: they cannot be compared with those of other processes.
    """
    if type(tensors) is list or not isinstance(tensors, Mapping):
        return ()
    return tuple(map(_plain, _in_order(tensors)))


def refuse_other_keys(keys: tuple[Any, ...], out: tuple[Any, ...]) -> None:
    """Check that `out=` has the keys of the tensors.

    Raises:
      ValueError: it has not.
    """
    other = [key for key in (*keys, *out) if (key in keys) != (key in out)]
    if other:
        raise ValueError(
            f"out= must have the keys of the tensors: {other[0]!r} is in one of them "
            "only"
        )


def _in_order(tensors: Mapping[Any, Any]) -> list[Any]:
    try:
        return sorted(tensors)
    except TypeError:
        kinds = " and ".join(sorted({type(key).__name__ for key in tensors}))
        raise TypeError(
            "the keys of a dict of tensors must be all strings, or all integers, so "
            f"that all members have them in one order: these are {kinds}"
        ) from None


def _plain(key: Any) -> Any:
    """A key as all processes write it: `str` and `int` have subclasses."""
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, numbers.Integral):
        return int(key)
    if isinstance(key, tuple):
        return tuple(map(_plain, key))
    raise TypeError(
        "the keys of a dict of tensors must be strings, integers or tuples of them, so "
        f"that members can compare them: {key!r} is of type {type(key).__name__}"
    )
