# SPDX-License-Identifier: MIT
"""For which process this thread is pickling just now, if for one alone.

What it is to receive may then be laid out for that process: memory of a GPU, say, that
only it may open. The layer above knows; it says here whom to ask.
"""

from __future__ import annotations

from collections.abc import Callable


def _nobody() -> int | None:
    return None


_ask: Callable[[], int | None] = _nobody


def learn(ask: Callable[[], int | None]) -> None:
    """From now on `sole_receiver` is what `ask` returns in the calling thread."""
    global _ask
    _ask = ask


def sole_receiver() -> int | None:
    """Its process id; None if it is unknown, or if there are several."""
    return _ask()
