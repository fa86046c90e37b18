# SPDX-License-Identifier: MIT
"""The test of the whole: an actor that answers, and an array that crosses."""

from __future__ import annotations

import time
from typing import cast

import numpy as np
from numpy.typing import NDArray

import mooactor as moo
from mooactor.cli.doctor.finding import Finding, broken, ok

ELEMENTS = 1 << 18  # 2 MiB of float64: far above what travels inside a message


@moo.actor
class Trial:
    """Adds up an array, and returns it."""

    def total(self, values: NDArray[np.float64]) -> float:
        return float(values.sum())

    def echo(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values


def actor() -> Finding:
    """Start a session, an actor, send it an array and get it back."""
    began = time.perf_counter()
    try:
        agreed = _round_trip()
    except Exception as error:  # every error is the finding
        detail = f"{type(error).__name__}: {error}"
        return broken(
            "an actor",
            detail,
            "repair the broken parts above; if this still fails, report it",
        )
    if not agreed:
        remedy = "please report it with this report's --json"
        return broken("an actor", "an array came back with other values", remedy)
    spent = time.perf_counter() - began
    return ok("an actor", f"started, called, sent 2 MiB both ways in {spent:.2f} s")


def _round_trip() -> bool:
    values = np.arange(ELEMENTS, dtype=np.float64)
    with moo.init():
        trial = moo.spawn(Trial)
        right = trial.total(values) == values.sum()
        return cast(bool, right and np.array_equal(trial.echo(values), values))


CHECKS = (actor,)
