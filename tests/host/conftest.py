# SPDX-License-Identifier: MIT
"""Drivers on hosts of a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

import mooactor as moo
from tests.clusters import Cluster


@pytest.fixture
def as_driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Cluster]]:
    """Call it with a cluster: this process is a driver on its `host`, under the name
    `name`, until the test ends. Ask for it after the cluster, to end before that."""
    with contextlib.ExitStack() as places:

        def become(made: Cluster, host: str = "d", name: str | None = None) -> Cluster:
            for key, value in made.environment(host).items():
                monkeypatch.setenv(key, value)
            monkeypatch.setenv("MOOACTOR_HOST_NAME", name or host)
            monkeypatch.setenv("MOOACTOR_ADDRESS", made.address)
            places.enter_context(made.network.inside(host))
            return made

        yield become
        moo.shutdown()
