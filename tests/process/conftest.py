# SPDX-License-Identifier: MIT
"""Two hosts in one process of agents, for the tests of calls between hosts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process.hosts import Hosts, hosts


@pytest.fixture
def two() -> Iterator[Hosts]:
    with hosts("a", "b") as made:
        yield made
