# SPDX-License-Identifier: MIT
"""Amounts of memory as users write them, such as 64GB or 64GiB."""

from __future__ import annotations

from mooactor.process.needs import MOST_BYTES

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
for _exponent, _letter in enumerate("KMGT", 1):
    for _rest in ("", "I", "IB"):
        _UNITS[_letter + _rest] = 1 << 10 * _exponent


def bytes_of(said: str, option: str = "--memory") -> int:
    """The number of bytes; K, M, G and T alone are powers of 1024.

    Raises:
      ValueError: it is no amount, a negative one, or more than any host has.
    """
    number = said.strip().rstrip("BbIiKkMmGgTt")
    unit = said.strip()[len(number) :].strip().upper()
    try:
        found = int(float(number) * _UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        found = -1
    if not 0 <= found <= MOST_BYTES:
        raise ValueError(
            f"{option} {said!r:.80} is no amount: write one such as 64GB or 64GiB"
        )
    return found


def quantity(count: int) -> str:
    """A number of bytes as Kubernetes writes it, the shortest way."""
    sizes = {f"{'KMGT'[n - 1]}i": 1 << 10 * n for n in (1, 2, 3, 4)}
    sizes |= {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
    exact = (
        f"{count // size}{name}" for name, size in sizes.items() if not count % size
    )
    return min((str(count), *exact), key=len)
