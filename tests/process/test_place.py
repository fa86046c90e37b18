# SPDX-License-Identifier: MIT
"""Actors start where their spawner is when it spawns them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.process.environment import Place

Spawn = Callable[..., Any]


@moo.actor
class Roams:
    def where(self) -> tuple[str, list[str]]:
        return os.getcwd(), list(sys.path)

    def answer(self) -> int:
        import found_late  # type: ignore[import-not-found]

        return int(found_late.ANSWER)

    def go(self, directory: str) -> None:
        os.chdir(directory)
        sys.path.append(directory)

    def where_a_child_is(self) -> tuple[str, list[str]]:
        found: tuple[str, list[str]] = moo.spawn(Roams).where()
        return found

    def die(self) -> None:
        raise SystemExit(1)


def here() -> tuple[str, list[str]]:
    """The place of this process, as `Roams.where` tells that of an actor."""
    place = Place.here()
    return os.fsdecode(place.cwd), list(map(os.fsdecode, place.path))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a module, to which this process has gone since the session
    began."""
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    (directory / "found_late.py").write_text("ANSWER = 42")
    monkeypatch.chdir(directory)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return directory


def test_an_actor_starts_where_the_program_is_at_the_spawn(
    spawn: Spawn, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sys.path.insert(0, str(elsewhere))
    actor = spawn(moo.on(Roams, restart=moo.Restart()))
    monkeypatch.chdir(elsewhere.parent)
    sys.path.pop(0)
    _, path = here()
    there = str(elsewhere), [str(elsewhere), *path]
    assert actor.where() == there
    assert actor.answer() == 42
    with pytest.raises(moo.ActorRestarted):
        actor.die()
    assert actor.where() == there
    assert spawn(Roams).where() == here()
    monkeypatch.chdir(elsewhere)
    sys.path.insert(0, "")  # which stands for the directory at the spawn
    assert spawn(Roams).answer() == 42


def test_what_an_actor_spawns_starts_where_that_actor_is(
    spawn: Spawn, tmp_path: Path
) -> None:
    actor = spawn(Roams)
    assert actor.where_a_child_is() == here()
    actor.go(str(tmp_path))
    assert actor.where_a_child_is() == actor.where()
    assert actor.where()[0] == str(tmp_path)


def test_a_spawn_from_a_directory_that_is_gone_says_so(
    spawn: Spawn, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "found_late.py").unlink()
    elsewhere.rmdir()
    with pytest.raises(moo.PlacementError, match=r"working directory.*os\.chdir with"):
        spawn(Roams)
    monkeypatch.chdir(elsewhere.parent)
    assert spawn(Roams).where()[0] == str(elsewhere.parent)
