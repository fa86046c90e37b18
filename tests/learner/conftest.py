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


@pytest.fixture
def members(session: Any) -> Iterator[Callable[..., Any]]:
    """``members(n, min_size=n)``: n actors in one group, a `Group` in rank order."""
    groups: list[Any] = []

    def make(
        size: int, min_size: int | None = None, timeout: float = 60.0
    ) -> moo.Group[Any]:
        group = moo.on(Member).group(size)
        groups.append(group)
        name = f"test-{next(_numbers)}"
        joined = group.join.call(name, min_size or size, size, timeout)
        by_rank = sorted(zip(joined.get(), group), key=lambda pair: pair[0])
        return moo.Group([handle for _, handle in by_rank])

    yield make
    for group in groups:
        for handle in group:
            moo.kill(handle)
