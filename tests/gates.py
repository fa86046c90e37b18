# SPDX-License-Identifier: MIT
"""Gates: files that a test makes when an actor, or any other process, is to go on."""

from __future__ import annotations

import os
import time


def wait_at(gate: str | os.PathLike[str]) -> None:
    """Hold this thread until there is that file."""
    while not os.path.exists(gate):
        time.sleep(0.001)  # nothing tells of a new file
