# SPDX-License-Identifier: MIT
"""Rows of members as a broker sends them: each encoded, many in a message.

A broker keeps rows encoded, so it sends them without looking at them again. The rows
of a large cluster come in several messages, so that neither side is held up by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from mooactor.control import plain
from mooactor.host import fields
from mooactor.host.addresses import is_reachable
from mooactor.host.fields import Refused
from mooactor.host.load import told_by_broker

Row = dict[str, Any]
AT_A_TIME = 256
AMOUNTS = ("cpus", "gpus", "memory")
_TEXTS = ("id", "name", "kind", "address")


def messages(
    rows: Sequence[bytes],
    rid: int | None = None,
    loads: Sequence[float | None] | None = None,
) -> Iterator[dict[str, Any]]:
    """The messages ``hosts`` with these rows; the last has no ``more``. `loads`: of
    each row's machine."""
    extra = {} if rid is None else {"rid": rid}
    for start in range(0, max(1, len(rows)), AT_A_TIME):
        some = list(rows[start : start + AT_A_TIME])
        more = start + AT_A_TIME < len(rows)
        message = {"ev": "hosts", "rows": some, "more": more, **extra}
        if loads is not None:
            message["loads"] = list(loads[start : start + AT_A_TIME])
        yield message


def check(row: Row) -> None:
    """Whether a home can place actors by a row.

    Raises:
      Refused: a field that it needs is missing or wrong.
    """
    for key in _TEXTS:
        fields.required(row, key, str)
    if not is_reachable(row["address"]):
        raise Refused(f"address={row['address']!r:.80} is none")
    for key in AMOUNTS:
        fields.number(row, key)
    fields.strings(row, "labels")
    _amount(row, "free")
    if row.get("shares") is not None:
        for value in fields.required(row, "shares", list):
            _finite("a share", value)
    if "reserved" in row:
        for session in fields.required(row, "reserved", dict):
            _amount(row["reserved"], session)


def _amount(row: Row, key: str) -> None:
    found = fields.required(row, key, dict)
    for kind in AMOUNTS:
        _finite(f"{key:.40}.{kind}", found.get(kind))


def _finite(what: str, value: Any) -> None:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise Refused(f"{what}={value!r:.40} is no number")


def unpack(value: Any) -> Row | None:
    """A row of a broker's, None if it is none."""
    try:
        row = plain.unpack(value) if type(value) is bytes else None
        if type(row) is not dict:
            return None
        check(row)
    except (plain.Malformed, Refused):
        return None
    return row


def unpack_all(values: Any) -> list[Row]:
    """Those of a message."""
    found = map(unpack, values) if type(values) is list else ()
    return [row for row in found if row is not None]


def unpack_answer(message: dict[str, Any]) -> list[Row]:
    """The rows of an answer to ``hosts``, each with the ``load`` of its machine."""
    values, loads = message.get("rows"), message.get("loads")
    if type(values) is not list:
        return []
    loads = loads if type(loads) is list else []
    return [
        {**row, "load": told_by_broker(load)}
        for value, load in zip_longest(values, loads[: len(values)])
        if (row := unpack(value)) is not None
    ]
