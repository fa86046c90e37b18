# SPDX-License-Identifier: MIT
"""`Violation`: a promise that a history shows broken."""

from __future__ import annotations

from typing import NamedTuple

from tests.chaos.history import Event


class Violation(NamedTuple):
    """A broken rule, in a sentence, with the events that show it."""

    text: str
    events: list[Event]
    rule: str = ""  # the checker fills it in
