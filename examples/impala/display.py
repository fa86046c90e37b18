# SPDX-License-Identifier: MIT
"""The live picture of a run in a terminal, or plain lines without one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from impala.progress import RECENT_GAMES

LINE_PERIOD_S = 5.0
BLOCKS = "▁▂▃▄▅▆▇█"
CURVE_WIDTH = 48


class Display:
    """Shows the newest row of metrics; a context manager.

    In a terminal one panel is redrawn in place. Elsewhere a line is printed at most
    every five seconds, so that logs stay readable; `finish` prints the last one.
    """

    def __init__(self, title: str, total_steps: int) -> None:
        from rich.console import Console
        from rich.live import Live

        self._title = title
        self._total_steps = total_steps
        self._console = Console()
        self._live = (
            Live(console=self._console, auto_refresh=False)
            if self._console.is_terminal
            else None
        )
        self._returns: list[float] = []
        self._last_row: Mapping[str, Any] | None = None
        self._printed_at = -LINE_PERIOD_S

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
        elif self._last_row is not None:
            print(plain_line(self._last_row), flush=True)

    def show(self, row: Mapping[str, Any]) -> None:
        """Draw ``row``, the newest metrics."""
        self._returns.append(float(row["episode_return"]))
        if self._live is not None:
            self._live.update(self._panel(row), refresh=True)
            return
        self._last_row = row
        if time.monotonic() - self._printed_at >= LINE_PERIOD_S:
            self._printed_at = time.monotonic()
            self._last_row = None
            print(plain_line(row), flush=True)

    def _panel(self, row: Mapping[str, Any]) -> Any:
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        grid = Table.grid(padding=(0, 2))
        for name, value in _facts(row):
            grid.add_row(f"[dim]{name}", value)
        grid.add_row("[dim]curve", sparkline(self._returns, CURVE_WIDTH))
        grid.add_row(
            "[dim]done",
            ProgressBar(total=self._total_steps, completed=row["step"], width=48),
        )
        return Panel(grid, title=self._title, expand=False)


def plain_line(row: Mapping[str, Any]) -> str:
    """One row of metrics as one line of text."""
    return "  ".join(f"{name} {value}" for name, value in _facts(row))


def sparkline(values: list[float], width: int) -> str:
    """``values`` as a row of at most ``width`` block characters; NaN is left out."""
    known = [value for value in values if value == value]
    if not known:
        return ""
    stride = max(1, -(-len(known) // width))
    points = known[::-1][::stride][::-1]
    low, high = min(points), max(points)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[int((point - low) * scale)] for point in points)


def _facts(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    games = min(row["episodes"], RECENT_GAMES)  # those that the return is a mean of
    return [
        ("steps", f"{row['step']:,} ({row['frames']:,} frames)"),
        (
            "speed",
            f"{row['steps_per_s']:,.0f} steps/s {row['frames_per_s']:,.0f} frames/s",
        ),
        ("return", f"{row['episode_return']:.2f} over {games} games"),
        ("loss", f"{row['loss']:.2f}"),
        ("entropy", f"{row['entropy']:.3f}"),
        ("lag", f"{row['policy_lag']:.1f} (at most {row['policy_lag_max']:.0f})"),
        ("busy", f"actors {row['actor_busy']:.0%} learners {row['learner_busy']:.0%}"),
    ]
