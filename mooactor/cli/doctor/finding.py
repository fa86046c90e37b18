# SPDX-License-Identifier: MIT
"""`Finding`: the answer of one check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "slow", "broken"]


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report.

    ``state`` is ``"ok"``, ``"note"`` (something optional is absent), ``"slow"`` (all
    works, and could be faster or larger) or ``"broken"`` (mooactor cannot run so).
    ``remedy`` is one line that a user can act on, empty if there is nothing to do.
    """

    name: str
    state: State
    detail: str
    remedy: str = ""


def ok(name: str, detail: str) -> Finding:
    return Finding(name, "ok", detail)


def note(name: str, detail: str, remedy: str = "") -> Finding:
    return Finding(name, "note", detail, remedy)


def slow(name: str, detail: str, remedy: str) -> Finding:
    return Finding(name, "slow", detail, remedy)


def broken(name: str, detail: str, remedy: str) -> Finding:
    return Finding(name, "broken", detail, remedy)
