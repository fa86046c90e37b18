# SPDX-License-Identifier: MIT
"""Mutated messages and frames to real processes harm nobody else's session."""

from __future__ import annotations

import os
import random

import pytest

from tests.fuzz import brokers, inboxes, neighbors, nodes, peers
from tests.fuzz.run import run
from tests.marks import slow

SEED = int(os.environ.get("MOOACTOR_TEST_SEED", "12"))
STEPS = 20
UNEXPECTED = "a message could not be handled"  # an error that no parser documents
PEERS = {**peers.TARGETS, **neighbors.TARGETS, **brokers.TARGETS}
SINGLE = {**inboxes.TARGETS, **nodes.TARGETS}
TARGETS = {**SINGLE, **PEERS}


@pytest.mark.parametrize("name", [*SINGLE, *map(slow, PEERS)])
def test_mutated_messages_harm_nobody_else(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with TARGETS[name]() as target:
        run(target, random.Random(SEED), 0.0, STEPS)
    assert UNEXPECTED not in capfd.readouterr().err


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", TARGETS)
def test_ten_minutes_of_them_harm_nobody_else(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with TARGETS[name]() as target:
        run(target, random.Random(), 600.0)
    assert UNEXPECTED not in capfd.readouterr().err
