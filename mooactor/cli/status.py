# SPDX-License-Identifier: MIT
"""``mooactor status`` and ``top``: the hosts of a cluster, its sessions and their
actors."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from msgspec.structs import asdict

from mooactor.cli.client import Client, Row, homes
from mooactor.cli.command import Failure
from mooactor.host.protocol import SessionStatus, Status

PATIENCE_S = 2.0  # for the agents of drivers
_CLEAR = "\x1b[H\x1b[2J"


def run(options: argparse.Namespace) -> int:
    """Print it once."""
    with Client(options.connect, options.key_file) as client:
        found = look(client)
    print(as_json(found) if options.json else as_text(found))
    return 0


def top(options: argparse.Namespace) -> int:
    """Show it every `options.interval` seconds; --json: an object a line."""
    with Client(options.connect, options.key_file, interrupted=0) as client:
        found = look(client)
        while True:
            _show(found, options.json)
            client.wait(lambda: False, options.interval)
            found = _next(client, found)


def _next(client: Client, last: dict[str, Any]) -> dict[str, Any]:
    """A look at it now; if no broker answers just now the last look, with the reason
    in its `error`."""
    try:
        return look(client)
    except Failure as failure:
        print(f"mooactor top: {failure}", file=sys.stderr, flush=True)
        return {**last, "error": str(failure)}


def _show(found: dict[str, Any], in_json: bool) -> None:
    if in_json:
        print(as_json(found), flush=True)
        return
    head = time.strftime("%H:%M:%S  Ctrl-C ends this")
    clear = _CLEAR if sys.stdout.isatty() else ""
    print(f"{clear}{head}\n{as_text(found)}\n", flush=True)


def as_json(found: dict[str, Any]) -> str:
    """One line."""
    return json.dumps(found)


def look(client: Client) -> dict[str, Any]:
    """Everything, as plain values."""
    rows = client.rows()
    answers = client.ask(homes(rows), Status(), SessionStatus, PATIENCE_S)
    return {
        "hosts": [{**row, "alive": True} for row in rows],
        "sessions": [_session(row, answer) for row, answer in answers],
    }


def _session(row: Row, answer: SessionStatus | None) -> dict[str, Any]:
    return {
        "host": row["name"],
        "session": None if answer is None else answer.session,
        "driver": None if answer is None else answer.driver,
        "actors": [] if answer is None else list(map(asdict, answer.actors)),
        "answered": answer is not None,
    }


# -- text ------------------------------------------------------------------

_HOSTS = (
    "host",
    "cpus free",
    "gpus free",
    "memory free",
    "load (1 min)",
    "actors",
    "labels",
    "runs",
)
_ACTORS = ("actor", "host", "pid", "state", "restarts", "mailbox", "memory")


def as_text(found: dict[str, Any]) -> str:
    """Tables for a terminal."""
    # a driver's agent that offers nothing is no host: its session is listed below
    hosts = [row for row in found["hosts"] if row["kind"] == "host" or row["cpus"]]
    lines = table([_HOSTS, *map(_host, hosts)])
    if not hosts:
        lines = ["no hosts: start one with `mooactor host --join ADDR`"]
    for session in found["sessions"]:
        lines += ["", _title(session)]
        if session["actors"]:
            lines += table([_ACTORS, *map(_actor, session["actors"])])
    return "\n".join(lines)


def _host(row: Row) -> tuple[str, ...]:
    free, versions = row["free"], row["versions"]
    runs = [f"{what} {versions[what]}" for what in versions if what != "wire"]
    return (
        row["name"] + (" (driver)" if row["kind"] == "home" else ""),
        f"{free['cpus']:g} of {row['cpus']}",
        f"{free['gpus']:g} of {row['gpus']}",
        f"{size(free['memory'])} of {size(row['memory'])}",
        "-" if row["load"] is None else f"{row['load']:.2f}",
        str(row["actors"]),
        " ".join(f"{key}={value}" for key, value in sorted(row["labels"].items())),
        ", ".join(text for text in runs if not text.endswith("None")),
    )


def _title(session: dict[str, Any]) -> str:
    if not session["answered"]:
        return f"a session of {session['host']} does not answer: it is busy or ending"
    actors = session["actors"]
    count = f"{len(actors)} actor{'' if len(actors) == 1 else 's'}"
    return shown(f"session {session['session']}, {session['driver']}: {count}")


def _actor(row: Row) -> tuple[str, ...]:
    memory = row.get("memory")
    return (
        *(_cell(row.get(key)) for key in ("label", "host", "pid", "state")),
        _cell(row.get("restarts")),
        _cell(row.get("mailbox")),
        size(memory) if isinstance(memory, int | float) else "-",
    )


def _cell(value: Any) -> str:
    return "-" if value is None else str(value)


def shown(text: str) -> str:
    """Labels and names are others' texts: nothing of them moves a terminal's cursor."""
    return "".join(c if c.isprintable() else "�" for c in text)


def size(count: float) -> str:
    """Bytes in the unit that suits."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def table(rows: list[tuple[str, ...]]) -> list[str]:
    """Aligned columns, the first row being the heading."""
    rows = [tuple(map(shown, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return [line.rstrip() for line in lines]
