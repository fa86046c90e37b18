# SPDX-License-Identifier: MIT
"""`members(n)`: a learner group of n actors, gone when the test is over."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mooactor as moo
from tests.learner.member import Member

_numbers = itertools.count()


# How the members reach each other: in shared memory; or, as if each were on a host
# of its own, in a ring of connections.
MEDIA: dict[str, dict[str, str]] = {"shm": {}, "ring": {"MOOACTOR_TRANSPORT": "tcp"}}


@pytest.fixture(params=MEDIA)
def medium(request: Any) -> dict[str, str]:
    """The variables of the members' environment."""
    return MEDIA[request.param]


@pytest.fixture
def members(medium: dict[str, str], session: Any) -> Iterator[Callable[..., Any]]:
    """``members(n, min_size=n)``: n actors in one group, a `Group` in rank order."""
    groups: list[Any] = []
    on = moo.on(Member, env=medium)

    def make(
        size: int,
        min_size: int | None = None,
        timeout: float = 60.0,
        on_loss: str = "raise",
    ) -> moo.Group[Any]:
        group = on.group(size)
        groups.append(group)
        name = f"test-{next(_numbers)}"
        joined = group.join.call(name, min_size or size, size, timeout, on_loss)
        by_rank = sorted(zip(joined.get(), group), key=lambda pair: pair[0])
        return moo.Group([handle for _, handle in by_rank])

    yield make
    for group in groups:
        for handle in group:
            moo.kill(handle)
