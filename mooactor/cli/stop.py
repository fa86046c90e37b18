# SPDX-License-Identifier: MIT
"""``mooactor stop``: end the sessions of a cluster, then its hosts and its brokers.

Invariant: what counts as stopped has taken the request and then closed its channel, or
is known to be gone: nothing listens at its address, and no broker lists it. A member
that was not reached keeps its broker, by which it can be found.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable
from typing import Any

from mooactor.cli.client import PATIENCE_S, Client, Talk, homes
from mooactor.cli.command import Failure
from mooactor.host.addresses import is_reachable
from mooactor.host.rows import Row
from mooactor.times import LISTED_S

_END_S = 15.0  # actors may finish what is queued
_LOOK_S = 0.1
_MOST_BROKERS = 32


def run(options: argparse.Namespace) -> int:
    """End them, and wait for it."""
    with Client(options.connect, options.key_file) as client:
        brokers = Brokers(client)
        rows = brokers.rows()
        drivers = homes(rows)
        hosts = [row for row in rows if row not in drivers]
        left = [*_end(client, brokers, drivers), *_end(client, brokers, hosts)]
        counts = {
            "sessions": _number_of("home", rows) - _number_of("home", left),
            "hosts": _number_of("host", rows) - _number_of("host", left),
        }
        if left:
            raise Failure(_still_there(counts, left), 1)
        there = brokers.end(_END_S)
    counts["brokers"] = len(brokers.answered) - len(there)
    lost = [talk for talk in brokers.silent if not talk.refused]
    if there or lost:
        raise Failure(_unstopped(counts, there, lost), 1)
    absent = [talk.row["address"] for talk in brokers.silent]
    print(json.dumps(counts) if options.json else _said(counts, absent))
    return 0


def _number_of(kind: str, rows: Iterable[Row | Talk]) -> int:
    found = (row.row if isinstance(row, Talk) else row for row in rows)
    return sum(row["kind"] == kind for row in found)


def _end(client: Client, brokers: Brokers, rows: list[Row]) -> list[Talk]:
    """Ask them to end; the talks with those of which it is not known that they have."""
    left = _tell(client, rows)
    # One that ends just now refuses channels; the next try finds nobody there.
    again = [talk for talk in left if talk.closed is not None and not talk.refused]
    left = [talk for talk in left if talk not in again]
    left += _tell(client, [talk.row for talk in again])
    if gone := [talk for talk in left if talk.refused]:
        listed = _listed(client, brokers, {talk.row["id"] for talk in gone})
        left = [t for t in left if t not in gone or t.row["id"] in listed]
    return left


def _tell(client: Client, rows: list[Row]) -> list[Talk]:
    """The same, once, without a look at the brokers."""
    talks = [client.open(row) for row in rows]
    for talk in talks:
        talk.post({"op": "stop"})
    client.wait(lambda: all(talk.closed is not None for talk in talks), _END_S)
    return [talk for talk in talks if not talk.over]


def _listed(client: Client, brokers: Brokers, ids: set[str]) -> set[str]:
    """Those of these nodes that a broker lists for longer than it does after the end of
    one."""
    latest = time.monotonic() + LISTED_S
    while found := ids & {row["id"] for row in brokers.rows()}:
        if time.monotonic() >= latest:
            break
        client.wait(lambda: False, _LOOK_S)
    return found


# -- all brokers of a cluster ------------------------------------------------------


class Brokers:
    """Those that the user names, those whose stand-by one of them is, and stand-bys.

    ``answered`` has a talk with each broker that answers. ``silent`` has one with each
    address at which another one should be; stand-bys whose first broker answers are not
    among these, because that one tells them to end.

    Raises:
      Failure: none of those that the user names answers.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._asked: dict[str, Talk] = {}
        address = client.broker.row["address"]  # fails if there is none
        self._ask([address, *client.addresses])
        talks = [talk for talk in self._asked.values() if _answer(talk)]
        found = {talk.channel.peer: talk for talk in talks if talk.channel is not None}
        self.answered = list(found.values())
        first = [one for t in talks for one in _told(t, "first")]
        ids = dict(first)
        known = {peer.hex() for peer in found}
        self.silent = [
            self._asked[address]
            for address in dict.fromkeys([*client.addresses, *ids])
            # One that answers by another name is none.
            if address in self._asked
            and self._asked[address] not in talks
            and ids.get(address) not in known
        ]

    def _ask(self, addresses: list[str]) -> None:
        """Ask all at these addresses, and at those that they tell of."""
        client = self._client
        while new := [a for a in dict.fromkeys(addresses) if a not in self._asked]:
            for address in new[: _MOST_BROKERS - len(self._asked)]:
                talk = client.open({"address": address})
                talk.post({"op": "peers"})
                self._asked[address] = talk
            client.wait(self._heard, PATIENCE_S)
            talks = self._asked.values()
            told = [one for t in talks for one in _told(t, "first", "standbys")]
            addresses = [address for address, _ in told]
            if len(self._asked) >= _MOST_BROKERS:
                return

    def _heard(self) -> bool:
        talks = self._asked.values()
        return all(talk.closed is not None or _answer(talk) for talk in talks)

    def rows(self) -> list[Row]:
        """The members that any of them knows."""
        found: dict[str, Row] = {}
        for broker in self.answered:
            for row in self._client.rows_of(broker):
                found.setdefault(row["id"], row)
        return list(found.values())

    def end(self, patience_s: float) -> list[Talk]:
        """Have them end; those that have not."""
        for talk in self.answered:
            talk.post({"op": "stop"})
        self._client.wait(
            lambda: all(talk.closed is not None for talk in self.answered), patience_s
        )
        return [talk for talk in self.answered if not talk.over]


def _answer(talk: Talk) -> dict[str, Any]:
    return talk.answer("peers") or {}


def _told(talk: Talk, *keys: str) -> list[tuple[str, str]]:
    """The brokers that one tells of in these fields: address and id."""
    told: list[Any] = []
    for key in keys:
        value = _answer(talk).get(key)
        told += value if type(value) is list else [value]
    return [
        (one["address"], str(one.get("id")))
        for one in told
        if type(one) is dict
        and type(one.get("address")) is str
        and is_reachable(one["address"])
    ]


# -- words -------------------------------------------------------------------------


def _said(counts: dict[str, int], absent: list[str]) -> str:
    text = f"stopped {_some(counts)}"
    for address in absent:
        text += f"; nothing listens at {address}, where another broker was"
    return text


def _some(counts: dict[str, int]) -> str:
    sessions, hosts = (_count(counts[f"{n}s"], n) for n in ("session", "host"))
    if "brokers" not in counts:
        return f"{sessions} and {hosts}"
    brokers = counts["brokers"]
    last = "the broker" if brokers == 1 else _count(brokers, "broker")
    return f"{sessions}, {hosts} and {last}"


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


def _unstopped(counts: dict[str, int], there: list[Talk], lost: list[Talk]) -> str:
    names = [f"{t.row['address']} (it has not ended)" for t in there]
    names += [f"{t.row['address']} ({t.closed or 'it does not answer'})" for t in lost]
    return (
        f"stopped {_some(counts)}, but not the broker at {'; '.join(names)}: try again "
        "from a machine that reaches it, or end it there with SIGTERM"
    )
