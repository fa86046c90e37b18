# SPDX-License-Identifier: MIT
"""Actors end with the process that spawned them, unless they are detached."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.conftest import eventually


@moo.actor
class Owner:
    """Spawns others, and ends in many ways."""

    def __init__(self, names: list[str] | None = None) -> None:
        self.children = [self._child(name) for name in names or []]

    def _child(self, name: str | None, **options: Any) -> Any:
        return moo.on(Owner, name=name, **options).spawn()

    def add(self, name: str | None = None, **options: Any) -> Any:
        self.children.append(self._child(name, **options))
        return self.children[-1]

    def add_and_die(self) -> Any:
        self.children = [self._child(None) for _ in range(20)]
        os.kill(os.getpid(), signal.SIGKILL)

    def pid(self) -> int:
        return os.getpid()

    def exit(self, code: int) -> None:
        os._exit(code)

    def note_stop(self, path: Path) -> None:
        self.path = path

    def on_stop(self) -> None:
        if hasattr(self, "path"):
            self.path.write_text("stopped")

    def labels(self) -> list[str]:
        return [info.label for info in moo.actors()]


def ends(handle: Any) -> moo.Cause:
    """How it ended, waiting for that."""
    for event in moo.monitor(handle):
        if isinstance(event, moo.Stopped | moo.Died):
            return event.cause
    raise AssertionError("it never ended")


def nobody_is_left() -> bool:
    return eventually(lambda: moo.actors() == [])


WAYS: dict[str, Callable[[Any], Any]] = {
    "killed": moo.kill,
    "stopped": moo.stop,
}


@pytest.mark.parametrize("way", ["killed", "stopped"])
def test_what_an_actor_spawned_ends_with_it(
    spawn: Any, tmp_path: Path, way: str
) -> None:
    owner = spawn(Owner)
    child = owner.add(restart=moo.Restart(max=100))
    grandchild = child.add()
    pids = [handle.pid() for handle in (owner, child, grandchild)]
    child.note_stop(tmp_path / "note")
    WAYS[way](owner)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    for handle in (child, grandchild):
        cause = ends(handle)
        assert (cause.kind, cause.owner) == ("owner", "Owner")
        assert "ended together with Owner" in str(cause)
    with pytest.raises(moo.ActorDied, match="ended together with Owner"):
        child.pid()
    assert (tmp_path / "note").exists() or way != "stopped"
    assert nobody_is_left()


def test_a_detached_actor_outlives_the_one_that_spawned_it(spawn: Any) -> None:
    owner = spawn(Owner)
    child = owner.add("kept", detached=True)
    pid = child.pid()
    moo.kill(owner)
    assert child.pid() == pid
    (info,) = moo.actors()
    assert (info.name, info.owner, info.detached) == ("kept", None, True)
    moo.kill(child)


def test_a_restarted_owner_finds_the_names_of_its_own_free(spawn: Any) -> None:
    names = [f"child-{i}" for i in range(3)]
    owner = spawn(moo.on(Owner, restart=moo.Restart(max=3)), names)
    before = [moo.lookup(name, timeout=10).pid() for name in names]
    os.kill(owner.pid(), signal.SIGKILL)
    assert eventually(lambda: moo.actors()[0].restarts == 1)

    def are_back() -> bool:
        try:
            return not set(before) & {moo.lookup(name).pid() for name in names}
        except moo.MooError:
            return False

    assert eventually(are_back)
    assert len(moo.actors()) == 4


def test_what_an_actor_spawns_while_it_dies_ends_too(group: Any) -> None:
    owners = group(Owner, 3)
    for owner in owners:
        owner.add_and_die.tell()
    for owner in owners:
        assert ends(owner).signal == signal.SIGKILL
    assert nobody_is_left()


def test_an_actor_between_two_lives_ends_when_it_is_to(spawn: Any) -> None:
    later = moo.Restart(backoff=1000.0)
    owner = spawn(Owner)
    alone, child = spawn(moo.on(Owner, restart=later)), owner.add(restart=later)
    for handle in (alone, child):
        handle.exit.tell(1)
    states = ["running", "waiting to restart", "waiting to restart"]
    assert eventually(lambda: [info.state for info in moo.actors()] == states)
    moo.kill(alone)
    assert ends(alone).kind == "killed"
    moo.kill(owner)
    assert ends(child).kind == "owner"
    assert moo.actors() == []


# -- names -----------------------------------------------------------------


def test_the_actors_of_a_session_are_listed(spawn: Any) -> None:
    assert moo.actors() == []
    first = spawn(moo.on(Owner, name="first", restart=moo.Restart()))
    second = first.add()
    pids = first.pid(), second.pid()
    infos = moo.actors()
    labels = ["Owner:first", "Owner"]
    assert [info.label for info in infos] == second.labels() == labels
    assert [info.name for info in infos] == ["first", None]
    assert [info.owner for info in infos] == [None, "Owner:first"]
    assert [info.state for info in infos] == ["running", "running"]
    assert tuple(info.pid for info in infos) == pids
    assert [info.handle for info in infos] == [first, second]
    moo.kill(first)
    with pytest.raises(moo.ActorUnavailable, match="Owner:first has ended"):
        _ = infos[0].handle


def test_names_are_free_again_after_the_death(spawn: Any, group: Any) -> None:
    first = spawn(moo.on(Counter, name="only"), 1)
    assert moo.lookup("only") == first
    with pytest.raises(ValueError, match="'only' is taken"):
        moo.on(Counter, name="only").spawn()
    moo.kill(first)
    second = spawn(moo.on(Counter, name="only"), 2)
    assert moo.lookup("only").add(0) == 2
    assert second != first
    spawn(moo.on(Counter, name="many/2"))
    with pytest.raises(ValueError, match="'many/2' is taken"):
        moo.on(Counter, name="many").group(3)
    # None of its members runs, so the names of the others are free.
    assert len(moo.actors()) == 2


def test_lookup_waits_for_a_name(spawn: Any) -> None:
    with pytest.raises(moo.ActorUnavailable, match="'later'"):
        moo.lookup("later")

    @moo.actor
    class Finder:
        def find(self) -> int:
            return int(moo.lookup("later", timeout=60).add(0))

    ref = spawn(Finder).find.remote()
    spawn(moo.on(Counter, name="later"), 9)
    assert ref.get(timeout=60) == 9
