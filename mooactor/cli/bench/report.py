# SPDX-License-Identifier: MIT
"""The table: its rows, the groups that measure them, and how it is printed."""

import json
import pickle
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from mooactor import __version__
from mooactor.cli.bench import peers
from mooactor.cli.bench.measure import QUICK, THOROUGH
from mooactor.cli.command import Failure
from mooactor.tensors.limits import processors

#: The modules that measure, in the order of the table.
GROUPS = [f"{__package__}.{n}" for n in ("calls", "arrays", "allreduce", "startup")]
#: The beginnings of the names of rows that ``tests/bench`` measures.
ELSEWHERE = ("atari.", "broker.", "hosts.", "net.", "ring.", "weights.")
_APART = """import os, pickle, sys
results = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
function, arguments = pickle.load(sys.stdin.buffer)
pickle.dump(function(*arguments), results)"""
HEADINGS = ("work", "mooactor", "beside it", "ratio", "goal", "met")


@dataclass(frozen=True)
class Goal:
    """At most, or at least, `bound`: times the peer's value, or by itself."""

    sense: Literal["at most", "at least"]
    bound: float
    peer: str = ""

    def met_by(self, value: float) -> bool:
        is_met = value <= self.bound if self.sense == "at most" else value >= self.bound
        return bool(is_met)

    def text(self, unit: str) -> str:
        sign = "≤" if self.sense == "at most" else "≥"
        what = f"× {self.peer}" if self.peer else unit
        return f"{sign} {short(self.bound)} {what}"


@dataclass(frozen=True)
class Row:
    """One measurement: `ours` and its `peers`, all in `unit`."""

    name: str
    work: str
    unit: str
    ours: float
    peers: dict[str, float] = field(default_factory=dict)
    goal: Goal | None = None

    def as_json(self) -> dict[str, Any]:
        """The fields, the ratio of `ours` to each peer (below 1 is faster for times,
        above for rates), and whether the goal is met (None without one)."""
        ratios = {peer: self.ours / value for peer, value in self.peers.items()}
        met = self.goal and self.goal.met_by(ratios.get(self.goal.peer, self.ours))
        return asdict(self) | {"ratios": ratios, "met": met}


@dataclass(frozen=True)
class Skipped:
    """A row, or group of rows, that could not be measured here."""

    name: str
    reason: str


def short(value: float) -> str:
    """Three significant digits, and no more zeros than needed: 77 k, 12.4, 0.03."""
    if value >= 10_000:
        return f"{value / 1000:.3g} k"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def run(
    only: list[str] | None, quick: bool, as_json: bool, groups: Sequence[str] = GROUPS
) -> int:
    """Print the table as Markdown, or one JSON object; 1 if something failed."""
    if only == ["list"]:
        every = names(groups)
        listed = {"rows": [{"name": name} for name in every]}
        print(json.dumps(listed, indent=2) if as_json else "\n".join(every))
        return 0
    results = [r for group in groups_with(only, groups) for r in measured(group, quick)]
    rows = [r for r in results if isinstance(r, Row)]
    if only:
        rows = [row for row in rows if row.name.startswith(tuple(only))]
    skipped = [r for r in results if isinstance(r, Skipped)]
    print((as_object if as_json else as_text)(beside_ray(rows), skipped))
    return int(any(entry.reason.startswith("failed") for entry in skipped))


def names(groups: Sequence[str] = GROUPS) -> list[str]:
    """The name of every row, as ``--only`` takes them."""
    return [name for group in groups for name in import_module(group).NAMES]


def groups_with(only: list[str] | None, groups: Sequence[str]) -> list[str]:
    """The groups that hold a row whose name begins with one of `only`.

    Raises:
      Failure: one of them begins no name.
    """
    for prefix in only or ():
        if any(name.startswith(prefix) for name in names(groups)):
            continue
        hint = "`mooactor bench --only list` lists all names"
        if prefix.startswith(ELSEWHERE) or f"{prefix}.".startswith(ELSEWHERE):
            hint = f"`make bench-all ARGS='--only {prefix}'` measures it in a checkout"
        raise Failure(f"no row has a name that begins with {prefix!r}: {hint}")
    wanted = tuple(only or [""])
    return [g for g in groups if any(n.startswith(wanted) for n in names([g]))]


def measured(group: str, quick: bool) -> list[Row | Skipped]:
    """The rows of one group, measured in a Python of its own."""
    name = group.rpartition(".")[2]
    print(f"measuring {name} …", file=sys.stderr, flush=True)
    try:
        return _apart(_rows, group, quick)  # type: ignore[no-any-return]
    except subprocess.CalledProcessError as error:
        return [Skipped(name, f"failed with exit code {error.returncode}")]


def _apart(function: Callable[..., Any], *arguments: object) -> Any:
    """Call it in a new Python, in which all output goes to stderr."""
    command, call = [sys.executable, "-c", _APART], pickle.dumps((function, arguments))
    done = subprocess.run(command, input=call, stdout=subprocess.PIPE, check=True)
    return pickle.loads(done.stdout)


def _rows(group: str, quick: bool) -> list[Row | Skipped]:
    return list(import_module(group).rows(QUICK if quick else THOROUGH))


def beside_ray(rows: list[Row]) -> list[Row]:
    """The rows with Ray's figures in them, if it is installed and any row has one."""
    if not rows or find_spec("ray") is None:
        return rows
    print("measuring Ray …", file=sys.stderr, flush=True)
    try:
        found = _apart(peers.measure_ray)
    except subprocess.CalledProcessError:
        return rows
    for row in rows:
        if row.work in found:
            row.peers["Ray"] = found[row.work]
    return rows


def machine() -> dict[str, Any]:
    """The machine of this measurement."""
    models = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": processors(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "mooactor": __version__,
    }


def as_object(rows: list[Row], skipped: list[Skipped]) -> str:
    """Everything measured, as one JSON object."""
    left_out = {entry.name: entry.reason for entry in skipped}
    found = {"machine": machine(), "rows": [row.as_json() for row in rows]}
    return json.dumps(found | {"skipped": left_out}, indent=2, ensure_ascii=False)


def as_text(rows: list[Row], skipped: list[Skipped]) -> str:
    """A Markdown table, aligned for a terminal, and where it was measured."""
    where = ", ".join(f"{name} {value}" for name, value in machine().items())
    notes = [f"{entry.name}: {entry.reason}" for entry in skipped]
    table = [HEADINGS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        f"| {' | '.join(c.ljust(w) for c, w in zip(cells, widths, strict=True))} |"
        for cells in table
    ]
    lines.insert(1, f"|{'|'.join('-' * (width + 2) for width in widths)}|")
    return "\n".join([*lines, "", f"Measured on: {where}.", *notes])


def _cells(row: Row) -> tuple[str, ...]:
    found = row.as_json()
    peers = ", ".join(f"{peer} {short(v)}" for peer, v in row.peers.items())
    ratios = ", ".join(map(short, found["ratios"].values()))
    goal = row.goal.text(row.unit) if row.goal else ""
    met = {True: "yes", False: "no", None: ""}[found["met"]]
    return (row.work, f"{short(row.ours)} {row.unit}", peers, ratios, goal, met)
