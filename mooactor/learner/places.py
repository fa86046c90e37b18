# SPDX-License-Identifier: MIT
"""The memory of tensors, and whether two of them share any.

An operation writes each of its results once, in no order that a caller could know. So a
result may share no byte with anything else of the same operation: otherwise it depends
on sizes, on transports and on timing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

# The limit of numpy's work to find out whether two views share memory; beyond it the
# answer is yes.
_MAX_WORK: Any = 100_000  # numpy's annotation knows -1 and 0 only


class Place(NamedTuple):
    """The memory of one tensor. Equal places are the same tensor.

    A tensor that is used in place fills all of `low` to `high`, and has no other
    fields. Tensors without elements, and those whose device has no addresses, lie
    nowhere: `low` is `high`.
    """

    device: str
    low: int  # the first byte
    high: int  # behind the last
    start: int = 0  # of the first element
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()  # in bytes
    item: int = 0  # bytes
    kind: object = None  # how the bytes are read

    def meets(self, other: Place) -> bool:
        """Whether the two may share a byte, by their first and last ones."""
        return (
            self.low < other.high
            and other.low < self.high
            and self.device == other.device
        )

    def shares(self, other: Place) -> bool:
        """Whether the two share a byte: columns of one matrix do not."""
        if not self.meets(other):
            return False
        import numpy as np

        try:
            return np.shares_memory(
                np.asarray(_Elements(self)),
                np.asarray(_Elements(other)),
                max_work=_MAX_WORK,
            )
        except np.exceptions.TooHardError:
            return True

    def repeats(self) -> bool:
        """Whether elements share memory with each other, as an expanded view's do.

        For strides that interleave (`as_strided` makes them) the answer is yes.
        """
        behind = self.item  # bytes from the first to the last one looked at
        for stride, count in sorted(
            (abs(s), n) for s, n in zip(self.strides, self.shape) if n > 1
        ):
            if stride < behind:
                return self.low < self.high
            behind += stride * (count - 1)
        return False


class _Elements:
    """A place for numpy, which reads nothing there."""

    def __init__(self, place: Place) -> None:
        whole = (place.high - place.low,), (1,), 1, place.low
        shape, strides, item, start = (
            (place.shape, place.strides, place.item, place.start)
            if place.item
            else whole
        )
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "strides": strides,
            "typestr": f"|V{item}",
            "data": (start, True),
        }


def place_of(
    device: str,
    start: int,
    shape: Sequence[int],
    strides: Sequence[int],
    item: int,
    kind: object,
) -> Place:
    """The place of a tensor. Args: `strides` in bytes."""
    reaches = [s * (n - 1) for n, s in zip(shape, strides)]
    low = start + sum(r for r in reaches if r < 0)
    high = start + sum(r for r in reaches if r > 0) + item
    if not start or 0 in shape:
        low = high = 0
    return Place(device, low, high, start, tuple(shape), tuple(strides), item, kind)


def first_shared(
    spans: Sequence[tuple[int, int]], place: Callable[[int], Place], written: int
) -> tuple[int, int] | None:
    """The first two tensors that share memory in a way that matters.

    Args:
      spans: the first byte of each, and the one behind its last.
      place: of the tensor with a number; asked only for those whose spans overlap.
      written: the number of results, which come first. The rest is only read: the
        inputs of these results, in the same order.
    """
    order = sorted((low, i) for i, (low, high) in enumerate(spans) if low < high)
    reached: list[int] = []  # those that reach beyond the last one looked at
    behind = 0
    for low, i in order:
        if low >= behind:
            reached.clear()
        reached = [j for j in reached if spans[j][1] > low]
        for j in reached:
            a, b = sorted((i, j))
            if a >= written or (b == a + written and place(a) == place(b)):
                continue
            if place(a).shares(place(b)):
                return a, b
        reached.append(i)
        behind = max(behind, spans[i][1])
    return None
