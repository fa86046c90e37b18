# SPDX-License-Identifier: MIT
"""Rows of members as a broker sends them: each encoded, many in a message.

A broker keeps rows encoded, so it sends them without looking at them again. The rows
of a large cluster come in several messages, so that neither side is held up by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mooactor.control import plain

Row = dict[str, Any]
AT_A_TIME = 256


def messages(rows: Sequence[bytes], rid: int | None = None) -> Iterator[dict[str, Any]]:
    """The messages ``hosts`` with these rows; the last has no ``more``."""
    extra = {} if rid is None else {"rid": rid}
    for start in range(0, max(1, len(rows)), AT_A_TIME):
        some = list(rows[start : start + AT_A_TIME])
        more = start + AT_A_TIME < len(rows)
        yield {"ev": "hosts", "rows": some, "more": more, **extra}


def unpack(value: Any) -> Row | None:
    """A row of a broker's, None if it is none. The broker has checked its fields."""
    try:
        row = plain.unpack(value) if type(value) is bytes else None
    except plain.Malformed:
        return None
    if type(row) is not dict:
        return None
    keys = ("id", "name", "kind", "address")
    return row if all(type(row.get(key)) is str for key in keys) else None


def unpack_all(values: Any) -> list[Row]:
    """Those of a message."""
    found = map(unpack, values) if type(values) is list else ()
    return [row for row in found if row is not None]
