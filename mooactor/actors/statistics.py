# SPDX-License-Identifier: MIT
"""`Stats`: the result of `moo.stats()`, for programs and for a terminal.

Each key of a size ends in ``_bytes`` or begins with ``bytes_``; every other number is a
count. Printed, the whole fits a screen of 24 lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mooactor.tensors.failures import size_text

_MOST_PEERS = 10
_SIZES = (
    *("limit", "used", "reserved", "resident", "kept_for_forks", "imported"),
    *("fetched_tcp", "fetched_ofi", "served_tcp"),
)


class Stats(dict[str, Any]):
    """A dict whose printed form is a summary; see `mooactor.stats` for its keys."""

    def __repr__(self) -> str:
        return "\n".join(line[:79].rstrip() for line in _lines(self))


def make(found: Mapping[str, Any]) -> Stats:
    """The counts of a runtime, with units in the names."""
    memory = {_named(key): value for key, value in found["memory"].items()}
    return Stats(found, memory=memory)


def _named(key: str) -> str:
    return f"{key}_bytes" if key in _SIZES else key


def _lines(stats: Stats) -> Iterator[str]:
    if "session" in stats:
        counts = ("actors", "actors"), ("deaths", "deaths"), ("restarts", "restarts")
        gave_up = ("gave_up", "supervisors gave up")
        known = stats["session"] and _counts(stats["session"], *counts, gave_up)
        yield f"session  {known or 'the agent does not answer'}"
    calls = f"{stats['calls_pending']} pending, {stats['links']} actors known"
    yield f"calls    {calls}"
    values = ("values_pending", "waited for"), ("arriving", "arriving")
    yield f"values   {_counts(stats, *values)}"
    kept = ("objects", "stored or passed on"), ("relayed", "relayed")
    yield f"objects  {_counts(stats, *kept)}"
    yield from _memory(stats["memory"])
    if stats["cuda"]:
        cuda = ", ".join(f"{key} {value}" for key, value in stats["cuda"].items())
        yield f"cuda     {cuda}"
    yield from _peers(stats["transport"], stats["peers"])


def _counts(table: Mapping[str, Any], *names: tuple[str, str]) -> str:
    return ", ".join(f"{table[key]} {what}" for key, what in names)


def _memory(memory: Mapping[str, Any]) -> Iterator[str]:
    if not memory:
        yield "memory   given back: the session has ended"
        return

    def size(key: str) -> str:
        return size_text(memory[key])

    yield f"memory   {size('used_bytes')} used of {size('limit_bytes')} shared memory"
    yield f"         {size('resident_bytes')} resident in {memory['slabs']} slabs"
    counts = ("blocks", "blocks held"), ("leases", "leases to others")
    yield f"         {_counts(memory, *counts)}"
    copied = f"{memory['exports_copied']} copied ({size('bytes_copied')})"
    yield f"sent     {memory['exports']} buffers, {copied}"
    yield f"got      {memory['imports']} in use ({size('imported_bytes')})"
    over = ", ".join(
        f"{size(key)} {what}"
        for key, what in (
            ("fetched_tcp_bytes", "fetched by TCP"),
            ("fetched_ofi_bytes", "by RDMA"),
            ("served_tcp_bytes", "served by TCP"),
        )
    )
    yield f"network  {over}"


def _peers(allowed: str, peers: list[dict[str, Any]]) -> Iterator[str]:
    yield f"peers    {len(peers)}, allowed transports: {allowed}"
    for row in peers[:_MOST_PEERS]:
        sent, got = size_text(row["bytes_sent"]), size_text(row["bytes_fetched"])
        name = row["actor"] or f"process {row['process']}"
        way = row["transport"] or "no data yet"
        yield f"         {name}: {way}, {sent} sent, {got} fetched"
    if len(peers) > _MOST_PEERS:
        yield f"         and {len(peers) - _MOST_PEERS} more"
