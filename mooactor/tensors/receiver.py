# SPDX-License-Identifier: MIT
"""The process for which this thread is pickling, if there is exactly one.

The pickle may then be laid out for that process: memory of a GPU, say, that only it may
open. The layer above knows the process, and gives the function to ask here.
"""

from __future__ import annotations

from collections.abc import Callable


def _nobody() -> int | None:
    return None


_ask: Callable[[], int | None] = _nobody


def learn(ask: Callable[[], int | None]) -> None:
    """Have `sole_receiver` return the result of `ask` in the calling thread."""
    global _ask
    _ask = ask


def sole_receiver() -> int | None:
    """Its process id; None if it is unknown, or if there are several."""
    return _ask()
