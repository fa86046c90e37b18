# SPDX-License-Identifier: MIT
"""Calls to workers that depend on each other."""

from __future__ import annotations

from collections.abc import Sequence

from mooactor import Ref, as_completed


def raise_first_error(calls: Sequence[Ref[object]]) -> None:
    """Wait for all calls, but no longer when one has failed: others may wait for it."""
    for call in as_completed(calls):
        call.get()
