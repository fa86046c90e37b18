# SPDX-License-Identifier: MIT
"""``mooactor stop``: end the sessions of a cluster, then hosts and broker."""

from __future__ import annotations

import argparse
import json

from mooactor.cli.client import Client, homes
from mooactor.cli.failure import Failure
from mooactor.host.rows import Row

PATIENCE_S = 15.0  # actors may finish what is queued


def run(options: argparse.Namespace) -> int:
    """End them, and wait for it."""
    with Client(options.connect, options.key_file) as client:
        rows = client.rows()
        drivers = homes(rows)
        hosts = [row for row in rows if row not in drivers]
        left = _end(client, drivers) + _end(client, hosts)
        if not left:
            _end_broker(client)
    if left:
        names = ", ".join(f"{row['kind']} {row['name']}" for row in left)
        raise Failure(f"still there after {PATIENCE_S:g} s: {names}; try again", 1)
    counts = {"sessions": len(drivers), "hosts": len(hosts), "brokers": 1}
    text = f"{_some(drivers, 'session')}, {_some(hosts, 'host')} and the broker"
    print(json.dumps(counts) if options.json else f"stopped {text}")
    return 0


def _some(rows: list[Row], noun: str) -> str:
    return f"{len(rows)} {noun}{'' if len(rows) == 1 else 's'}"


def _end(client: Client, rows: list[Row]) -> list[Row]:
    """Ask them to end; return those that are still there after a while."""
    talks = [client.open(row) for row in rows]
    for talk in talks:
        talk.post({"op": "stop"})
    client.wait(lambda: all(talk.closed is not None for talk in talks), PATIENCE_S)
    return [talk.row for talk in talks if talk.closed is None]


def _end_broker(client: Client) -> None:
    broker = client.broker
    broker.post({"op": "stop"})
    if not client.wait(lambda: broker.closed is not None, PATIENCE_S):
        raise Failure("the broker has not ended; try again", 1)
