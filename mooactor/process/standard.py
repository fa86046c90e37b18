# SPDX-License-Identifier: MIT
"""Standard input, output and error (0, 1, 2) of a process that was started without.

A shell closes them with ``2>&-``, and so do some supervisors. The next descriptor that
is opened then gets such a number, and what anybody prints goes into it: into the epoll
of an event loop, say. So a process of ours opens them on ``/dev/null`` first
(`open_all`). A program that uses mooactor keeps its descriptors as they are; only none
of ours takes such a number while a session starts (`held`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_LAST = 2


def open_all() -> None:
    """Open those that are closed on ``/dev/null``, for this process and its children,
    and the streams of `sys` that are None because of that."""
    _open_closed([])
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)


@contextmanager
def held() -> Iterator[None]:
    """Have those that are closed open on ``/dev/null`` within, also in children that
    are started there."""
    opened: list[int] = []
    try:
        _open_closed(opened)
        yield
    finally:
        for fd in opened:
            os.close(fd)


def _open_closed(opened: list[int]) -> None:
    """Add the numbers to `opened`. The kernel takes the lowest number that is free, so
    no other thread's descriptor is ever replaced."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _LAST:
        opened.append(fd)
        os.set_inheritable(fd, True)
    os.close(fd)
