# SPDX-License-Identifier: MIT
"""Runs the groups one after the other and prints the table."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mooactor import __version__
from mooactor.cli.bench import ray
from mooactor.cli.bench.groups import groups_with, names
from mooactor.cli.bench.row import Row, Skipped, short
from mooactor.cli.command import Failure
from mooactor.tensors.limits import processors

HEADINGS = ("work", "mooactor", "beside it", "ratio", "goal", "met")


def run(
    only: list[str] | None = None, *, quick: bool = False, as_json: bool = False
) -> int:
    """Print the table as Markdown, or one JSON object; 1 if something failed."""
    if only == ["list"]:
        print("\n".join(names()) if not as_json else names_as_object())
        return 0
    if not sys.platform.startswith("linux"):
        raise Failure("it measures on Linux only: run it there", code=1)
    groups = groups_with(only)
    results = [found for group in groups for found in measured(group, quick)]
    rows = [r for r in results if isinstance(r, Row) and _wanted(r.name, only)]
    rows = ray.beside(rows)
    skipped = [r for r in results if isinstance(r, Skipped)]
    print(as_text(rows, skipped) if not as_json else as_object(rows, skipped))
    return int(any(s.reason.startswith("failed") for s in skipped))


def _wanted(name: str, only: list[str] | None) -> bool:
    return not only or name.startswith(tuple(only))


def measured(group: str, quick: bool) -> Iterator[Row | Skipped]:
    """The rows of one group, measured in a Python of its own."""
    print(f"measuring {group} …", file=sys.stderr, flush=True)
    flags = ["--quick"] if quick else []
    command = [sys.executable, "-m", "mooactor.cli.bench", group, *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield parsed(json.loads(line))
    if process.returncode:
        yield Skipped(group, f"failed with exit code {process.returncode}")


def parsed(fields: dict[str, Any]) -> Row | Skipped:
    """A row from the output of `__main__`."""
    return Skipped(**fields) if "reason" in fields else Row.from_json(fields)


def machine() -> dict[str, Any]:
    """The machine of this measurement."""
    return {
        "cpu": _cpu(),
        "cores": processors(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "mooactor": __version__,
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def names_as_object() -> str:
    """The names of all rows, where the object of a measurement has them."""
    return json.dumps({"rows": [{"name": name} for name in names()]}, indent=2)


def as_object(rows: list[Row], skipped: list[Skipped]) -> str:
    """Everything measured, as one JSON object."""
    left_out = {entry.name: entry.reason for entry in skipped}
    found = {"machine": machine(), "rows": [row.as_json() for row in rows]}
    return json.dumps(found | {"skipped": left_out}, indent=2, ensure_ascii=False)


def as_text(rows: list[Row], skipped: list[Skipped]) -> str:
    """A Markdown table, aligned for a terminal, and where it was measured."""
    where = ", ".join(f"{name} {value}" for name, value in machine().items())
    lines = _aligned([HEADINGS, *map(_cells, rows)])
    notes = [f"{entry.name}: {entry.reason}" for entry in skipped]
    return "\n".join([*lines, "", f"Measured on: {where}.", *notes])


def _cells(row: Row) -> tuple[str, ...]:
    peers = ", ".join(f"{peer} {short(v)}" for peer, v in row.peers.items())
    ratios = ", ".join(short(ratio) for ratio in row.ratios().values())
    goal = row.goal.text(row.unit) if row.goal else ""
    met = {True: "yes", False: "no", None: ""}[row.as_json()["met"]]
    return (row.work, f"{short(row.ours)} {row.unit}", peers, ratios, goal, met)


def _aligned(table: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
        for row in table
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return lines
