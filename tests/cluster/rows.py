# SPDX-License-Identifier: MIT
"""Announcements for tests."""

from __future__ import annotations

from typing import Any

import msgspec

from mooactor.cluster.registry import Announcement, read
from mooactor.control.envelope import VERSION
from mooactor.control.messages import encode
from mooactor.host.members import Announce, Row


def fields(name: str, /, node: str = "", **more: Any) -> dict[str, Any]:
    """The fields of a row of a host of this name; by default its node is the only one
    of that name."""
    amounts = {"cpus": 4, "gpus": 1, "memory": 8 << 30}
    return {
        "name": name,
        "id": node or f"node-of-{name}",
        "address": "tcp://127.0.0.1:1",
        "kind": "host",
        **amounts,
        "labels": {"rack": "r1"},
        "free": dict(amounts),
        "versions": {
            "mooactor": "0.1.0",
            "python": "3.11.7",
            "torch": None,
            "wire": VERSION,
        },
        "sessions": [],
        "actors": 0,
        **more,
    }


def row(name: str, /, node: str = "", **more: Any) -> Row:
    return msgspec.convert(fields(name, node, **more), Row)


def announce(
    name: str, /, node: str = "", load: float | None = None, **more: Any
) -> Announce:
    return Announce(encode(fields(name, node, **more)), load)


def announced(
    name: str, /, node: str = "", load: float | None = None, **more: Any
) -> Announcement:
    """The same, as the broker has read it."""
    return read(announce(name, node, load, **more))
