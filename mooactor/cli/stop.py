# SPDX-License-Identifier: MIT
"""``mooactor stop``: end the sessions of a cluster, then its hosts and its brokers.

Invariant: what counts as stopped has taken the request and then closed its channel, or
is known to be gone: nothing listens at its address, and the broker does not list it. A
member that was not reached keeps its broker, by which it can be found.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable

from mooactor.cli.client import Client, Row, Talk, homes
from mooactor.cli.command import Failure
from mooactor.host.members import Stop
from mooactor.times import LISTED_S

_END_S = 15.0  # actors may finish what is queued
_LOOK_S = 0.1


def run(options: argparse.Namespace) -> int:
    """End them, and wait for it."""
    with Client(options.connect, options.key_file) as client:
        rows = client.rows()
        drivers = homes(rows)
        hosts = [row for row in rows if row not in drivers]
        left = [*_end(client, drivers), *_end(client, hosts)]
        counts = {
            "sessions": _number_of("home", rows) - _number_of("home", left),
            "hosts": _number_of("host", rows) - _number_of("host", left),
        }
        if left:
            raise Failure(_still_there(counts, left), 1)
        # Each tells its stand-bys, and the one that it stands by.
        brokers = _tell(client, [{"address": one} for one in client.addresses])
        if lost := [talk for talk in brokers if not talk.refused]:
            raise Failure(_unstopped(counts, lost), 1)
    said = f"stopped {_some(counts, ', ')} and the broker"
    print(json.dumps(counts) if options.json else said)
    return 0


def _number_of(kind: str, rows: Iterable[Row | Talk]) -> int:
    found = (row.row if isinstance(row, Talk) else row for row in rows)
    return sum(row["kind"] == kind for row in found)


def _end(client: Client, rows: list[Row]) -> list[Talk]:
    """Ask them to end; the talks with those of which it is not known that they have."""
    left = _tell(client, rows)
    # One that ends just now refuses channels; the next try finds nobody there.
    again = [talk for talk in left if talk.closed is not None and not talk.refused]
    left = [talk for talk in left if talk not in again]
    left += _tell(client, [talk.row for talk in again])
    if gone := [talk for talk in left if talk.refused]:
        listed = _listed(client, {talk.row["id"] for talk in gone})
        left = [t for t in left if t not in gone or t.row["id"] in listed]
    return left


def _tell(client: Client, rows: list[Row]) -> list[Talk]:
    """The same, once, without a look at the broker."""
    talks = [client.open(row) for row in rows]
    for talk in talks:
        talk.post(Stop())
    client.wait(lambda: all(talk.closed is not None for talk in talks), _END_S)
    return [talk for talk in talks if not talk.over]


def _listed(client: Client, ids: set[str]) -> set[str]:
    """Those of these nodes that the broker lists for longer than it does after the end
    of one."""
    latest = time.monotonic() + LISTED_S
    while found := ids & {row["id"] for row in client.rows()}:
        if time.monotonic() >= latest:
            break
        client.wait(lambda: False, _LOOK_S)
    return found


# -- words -------------------------------------------------------------------------


def _some(counts: dict[str, int], between: str = " and ") -> str:
    return between.join(_count(counts[f"{n}s"], n) for n in ("session", "host"))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _still_there(counts: dict[str, int], left: list[Talk]) -> str:
    names = "; ".join(_name(talk) for talk in left)
    return (
        f"stopped {_some(counts)}, but not {names}. The broker still runs: try again, "
        "from a machine that reaches these if this one does not, or end each on its "
        "own machine with SIGTERM"
    )


def _name(talk: Talk) -> str:
    row = talk.row
    what = "the session of" if row["kind"] == "home" else "host"
    why = talk.closed or f"it is still there after {_END_S:g} s"
    return f"{what} {row['name']} at {row['address']} ({why})"


def _unstopped(counts: dict[str, int], lost: list[Talk]) -> str:
    names = [f"{t.row['address']} ({t.closed or 'it has not ended'})" for t in lost]
    return (
        f"stopped {_some(counts)}, but not the broker at {'; '.join(names)}: try again "
        "from a machine that reaches it, or end it there with SIGTERM"
    )
