# SPDX-License-Identifier: MIT
"""Shared by the codecs of arrays and of tensors: sizes, strides, threshold."""

from __future__ import annotations

from collections.abc import Sequence

# From this size on the data plane beats bytes inside the pickle (measured: see
# docs/data-plane.md). Below, one copy through the socket is cheaper than a lease.
THRESHOLD = 32 * 1024


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
