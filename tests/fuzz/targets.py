# SPDX-License-Identifier: MIT
"""All targets by name."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Protocol

from tests.fuzz import brokers, inboxes, neighbors, nodes, parsers, peers


class Target(Protocol):
    """Something that gets mutated bytes or messages."""

    def step(self, rng: random.Random) -> int:
        """Make some cases; returns their number."""

    def check(self) -> None:
        """All that must hold still holds."""


TARGETS: dict[str, Callable[[], contextlib.AbstractContextManager[Target]]] = {
    **parsers.TARGETS,
    **peers.TARGETS,
    **neighbors.TARGETS,
    **brokers.TARGETS,
    **inboxes.TARGETS,
    **nodes.TARGETS,
}
