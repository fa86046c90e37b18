# SPDX-License-Identifier: MIT
"""Bytes from the network are taken or refused by every parser, and nothing else."""

from __future__ import annotations

import os
import random

import pytest

from mooactor.process import parcel
from tests.fuzz.parsers import PARCEL, TARGETS
from tests.fuzz.run import run

SEED = int(os.environ.get("MOOACTOR_TEST_SEED", "12"))
CASES = 2000


@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_takes_or_refuses_and_does_nothing_else(name: str) -> None:
    with TARGETS[name]() as target:
        run(target, random.Random(SEED), least=CASES)


def test_a_parcel_that_is_cut_short_is_none() -> None:
    whole = 192 + 7  # where its last buffer ends
    assert [len(one) for one in parcel.split(memoryview(PARCEL[:whole]))[1]] == [100, 7]
    for size in range(whole):
        with pytest.raises(ValueError, match="parcel"):
            parcel.split(memoryview(PARCEL[:size]))
