# SPDX-License-Identifier: MIT
"""A kill for memory counts for the processes that died since, once."""

from __future__ import annotations

from pathlib import Path

from mooactor.host.site import OomKills


def test_the_kills_since_the_last_question_count(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    events.write_text("low 0\noom 3\noom_kill 3\noom_group_kill 0\n")
    kills = OomKills(str(events))
    assert not kills.happened()
    events.write_text("low 0\noom 4\noom_kill 4\noom_group_kill 0\n")
    assert kills.happened()
    assert not kills.happened()


def test_where_nothing_counts_there_are_no_kills(tmp_path: Path) -> None:
    for path in (None, tmp_path / "none", tmp_path):
        assert not OomKills(path and str(path)).happened()
