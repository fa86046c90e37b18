# SPDX-License-Identifier: MIT
"""A cluster for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.clusters import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Its processes and nodes end with the test."""
    found = Cluster(tmp_path)
    yield found
    found.close()
