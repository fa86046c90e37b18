# SPDX-License-Identifier: MIT
"""The ways in which data reaches another process, by name."""

from __future__ import annotations

from collections.abc import Iterable

from mooactor.tensors.extension import lib, missing

#: In the order in which they are chosen if several are possible.
NAMES = ("shm", "ofi", "tcp")
#: TCP connections for each pair and direction, and threads that move bulk over them.
MOST_STRIPES = 0 if missing is not None else lib.MOO_STRIPES_MAX
MOST_THREADS = 0 if missing is not None else lib.MOO_THREADS_MAX

_BITS = (
    {}
    if missing is not None
    else {
        "shm": lib.MOO_TRANSPORT_SHM,
        "ofi": lib.MOO_TRANSPORT_OFI,
        "tcp": lib.MOO_TRANSPORT_TCP,
    }
)


def mask_of(names: Iterable[str]) -> int:
    """Their bits, for C.

    Raises:
      ValueError: one is unknown, or there are none.
    """
    mask = 0
    for name in names:
        if name not in _BITS:
            raise ValueError(
                f"{name!r} is not a transport: use some of {', '.join(NAMES)}"
            )
        mask |= _BITS[name]
    if not mask:
        raise ValueError(f"no transport is allowed: give some of {', '.join(NAMES)}")
    return mask


def name_of(bit: int) -> str | None:
    """The transport of one bit; None for 0."""
    return next((name for name, known in _BITS.items() if known == bit), None)
