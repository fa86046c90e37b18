# SPDX-License-Identifier: MIT
"""Queues whose entries stay until they are seen to.

A signal handler that waits, or the thread that leads after it, may see to the same
entries between any two lines. So what was there a line before may be gone, and whoever
takes an entry out says which.
"""

from __future__ import annotations

from collections import deque
from typing import TypeVar

T = TypeVar("T")


def first_of(queue: deque[T]) -> T | None:
    try:
        return queue[0]
    except IndexError:
        return None


def take_out(queue: deque[T], entry: T) -> None:
    """Remove `entry`, unless it was removed already."""
    try:
        queue.remove(entry)
    except ValueError:
        pass
