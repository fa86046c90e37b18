# SPDX-License-Identifier: MIT
"""Sessions whose data travels by a transport that is named, on one host."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.tensors import DataPlane
from mooactor.tensors.network import Network
from tests.actors.counter import Counter
from tests.conftest import running_session

for module in ("test_tensors",):
    pytest.register_assert_rewrite(f"tests.actors.{module}")

# The quick run keeps to TCP: above the plane both go the same ways.
NETWORKS = ("tcp", pytest.param("ofi", marks=pytest.mark.slow))
STAND_IN = "tcp;ofi_rxm"


def obstacle(transport: str) -> str | None:
    """Why a transport cannot be tested here."""
    with tempfile.TemporaryDirectory(prefix="moo-plane-") as directory:
        try:
            DataPlane(directory, 1 << 16, b"key", Network((transport,))).close()
        except moo.ActorUnavailable as error:
            return str(error)
    return None


@pytest.fixture(scope="module", params=NETWORKS)
def transport(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each network in turn; where there is no RDMA, what stands in for it."""
    with pytest.MonkeyPatch.context() as patch:
        if "MOOACTOR_FABRIC" not in os.environ:
            patch.setenv("MOOACTOR_FABRIC", STAND_IN)
        why = obstacle(request.param)
        if why is not None:
            pytest.skip(why)
        yield request.param


@pytest.fixture(scope="module")
def session(transport: str) -> Iterator[Any]:
    with running_session(transport=transport) as running:
        warm_up(moo.on(Counter))
        yield running


def warm_up(place: Any) -> None:
    """Send data both ways: what that needs is opened when it is needed first."""
    counter = place.spawn()
    counter.pid()
    counter.echo(np.zeros(1 << 20, np.uint8))
    moo.kill(counter)
