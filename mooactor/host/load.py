# SPDX-License-Identifier: MIT
"""The load of a machine, which a member tells with whatever it says to a broker.

It changes all the time, so it is no part of a member's row: each change of a row goes
to all who watch. The broker keeps the last one, for those who ask.
"""

from __future__ import annotations

import os
from typing import Any

from mooactor.host import fields
from mooactor.host.fields import Refused

MOST = 1e6


def load_average() -> float | None:
    """The number of processes of this machine that ran or waited to run, in the mean of
    the last minute, as ``uptime`` has it. None where the kernel does not tell."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def told(message: dict[str, Any]) -> float | None:
    """The load in a member's message; None if it tells none.

    Raises:
      Refused: it is no number of processes.
    """
    if message.get("load") is None:
        return None
    return fields.quantity(message, "load", most=MOST)


def told_by_broker(value: Any) -> float | None:
    """One of a broker's; None, too, for what is none."""
    try:
        return told({"load": value})
    except Refused:
        return None
