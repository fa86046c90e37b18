# SPDX-License-Identifier: MIT
"""A run's directory: metrics.csv, TensorBoard events and the learning curve."""

from __future__ import annotations

import csv
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from mooactor.rl.checkpoints import replace_file

METRICS = "metrics.csv"
CURVE = "curve.png"
DRAW_PERIOD_S = 30.0

Row = Mapping[str, float | int | str]


class RunLog:
    """Writes one row of metrics at a time to metrics.csv and to TensorBoard.

    The first row fixes the columns. A row is on disk when `write` returns, so neither a
    run that is killed nor a host that crashes loses it. ``from_step`` continues a log:
    rows at a later step (written after the checkpoint that is resumed) are taken out
    first. The learning curve, curve.png, has ``title`` and is drawn every
    `DRAW_PERIOD_S`.

    Raises:
      FileExistsError: the directory holds metrics and ``from_step`` is None.
    """

    def __init__(
        self, directory: Path, title: str = "", *, from_step: int | None = None
    ) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.directory = directory
        self._title = title
        self._drawn_at = time.monotonic()
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / METRICS
        kept = self._keep_until(from_step)
        self._columns: list[str] = list(kept[0]) if kept else []
        purge = None if from_step is None else from_step + 1  # the first that goes
        _let_its_second_pass(directory)
        self._board = SummaryWriter(str(directory), purge_step=purge)

    def write(self, row: Row) -> None:
        """Append ``row``: it holds a ``step``, and the columns of the first row."""
        if not self._columns:
            self._columns = list(row)
            _write_rows(self._path, self._columns, [])
        with self._path.open("a", newline="") as file:
            csv.DictWriter(file, self._columns).writerow(dict(row))
            file.flush()
            os.fsync(file.fileno())
        for name, value in row.items():
            if not isinstance(value, str) and not math.isnan(value):
                self._board.add_scalar(name, value, int(row["step"]))
        self._board.flush()
        if time.monotonic() - self._drawn_at > DRAW_PERIOD_S:
            self.draw()

    def draw(self) -> None:
        """Bring the learning curve up to date."""
        draw_curve(read_metrics(self._path), self.directory / CURVE, self._title)
        self._drawn_at = time.monotonic()

    def close(self) -> None:
        """Close TensorBoard's events; all rows are written already."""
        self._board.close()

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Draw the curve a last time, unless something was raised, and close."""
        if error is None:
            self.draw()
        self.close()

    def _keep_until(self, step: int | None) -> list[dict[str, str]]:
        if not holds_run(self.directory):
            return []
        if step is None:
            raise FileExistsError(
                f"{self.directory} holds a run already: resume it, or choose another"
            )
        rows = read_metrics(self._path)
        kept = [row for row in rows if int(row["step"]) <= step]
        _write_rows(self._path, list(rows[0]) if rows else [], kept)
        return kept


def _let_its_second_pass(directory: Path) -> None:
    """TensorBoard reads files of events in the order of their names, which begin with
    the second. So a file of the same second could come before the one that it
    continues."""
    now = time.time()
    if any(directory.glob(f"events.out.tfevents.{int(now)}.*")):
        time.sleep(int(now) + 1 - now)


def holds_run(directory: Path) -> bool:
    """Whether a run has written its metrics there."""
    return (directory / METRICS).exists()


def read_metrics(path: Path) -> list[dict[str, str]]:
    """The rows of a metrics.csv, oldest first."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def draw_curve(rows: Sequence[Mapping[str, str]], path: Path, title: str) -> None:
    """Plot episode_return over step into a PNG; rows without a return are left out."""
    from matplotlib.figure import Figure

    points = [
        (int(row["step"]), float(row["episode_return"]))
        for row in rows
        if not math.isnan(float(row["episode_return"]))
    ]
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([step for step, _ in points], [score for _, score in points])
    axes.set(title=title, xlabel="agent steps", ylabel="return of a full game")
    axes.grid(alpha=0.3)
    replace_file(path, lambda partial: figure.savefig(partial, format="png", dpi=110))


def _write_rows(
    path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, str]]
) -> None:
    def write(partial: Path) -> None:
        with partial.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns)
            if columns:
                writer.writeheader()
            writer.writerows(rows)

    replace_file(path, write)
