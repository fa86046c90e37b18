# SPDX-License-Identifier: MIT
"""Mutated messages and frames to real processes harm nobody else's session."""

from __future__ import annotations

import os
import random
from itertools import product

import pytest

from mooactor.control import bodies, envelope
from tests.fuzz import inboxes, nodes
from tests.fuzz.run import run

SEED = int(os.environ.get("MOOACTOR_TEST_SEED", "12"))
CASES = 160  # or one step, which is more
UNEXPECTED = "a message could not be handled"  # an error that no parser documents
TARGETS = {**inboxes.TARGETS, **nodes.TARGETS}
_PICKLE = b"\x80\x05N."
_BODIES = [  # as short as each layout may be
    b"",
    _PICKLE,
    bodies.pack_numbers(5),
    bodies.pack_numbers(5, 6),
    bodies.pack_numbers(5) + _PICKLE,
    bodies.pack_attached([b"d" * 40], _PICKLE),
    b"\x04ping",
]


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_messages_harm_nobody_else(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with TARGETS[name]() as target:
        run(target, random.Random(SEED), least=CASES)
    assert UNEXPECTED not in capfd.readouterr().err


def test_every_kind_of_message_with_every_flag_does_no_harm(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with TARGETS["inbox"]() as target:
        for kind in range(envelope.CALL - 1, envelope.KNOWS + 2):
            target.send([(kind, *rest) for rest in product(range(256), _BODIES)])
        target.check()
    assert UNEXPECTED not in capfd.readouterr().err
