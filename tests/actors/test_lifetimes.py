# SPDX-License-Identifier: MIT
"""Actors end with the process that spawned them, unless they are detached."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from tests.conftest import eventually, leaked, resources
from tests.marks import slow


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

    def fails(self) -> None:
        raise ValueError("no reason to end")

    def pid(self) -> int:
        return os.getpid()

    def exit(self, code: int) -> None:
        os._exit(code)

    def note_stop(self, path: Path) -> None:
        self.path = path

    def on_stop(self) -> None:
        if hasattr(self, "path"):
            self.path.write_text("stopped")


@pytest.fixture
def running() -> Iterator[None]:
    """A session that is left as it was found."""
    before = resources()
    with moo.init(logs=False):
        yield
    assert not leaked(before)


def ends(handle: Any) -> moo.Cause:
    """How it ended, waiting for that."""
    for event in moo.monitor(handle):
        if isinstance(event, moo.Stopped | moo.Died):
            return event.cause
    raise AssertionError("it never ended")


WAYS: dict[str, Callable[[Any], Any]] = {
    "killed": moo.kill,
    "stopped": moo.stop,
    "crashed": lambda owner: os.kill(owner.pid(), signal.SIGSEGV),
    "left": lambda owner: owner.exit.tell(0),
}


@pytest.mark.parametrize("way", ["killed", "stopped", slow("crashed"), slow("left")])
def test_what_an_actor_spawned_ends_with_it(running: None, way: str) -> None:
    owner = moo.spawn(Owner)
    child = owner.add()
    grandchild = child.add()
    assert grandchild.pid() != child.pid()
    WAYS[way](owner)
    for handle, of in ((child, "Owner"), (grandchild, "Owner")):
        cause = ends(handle)
        assert (cause.kind, cause.owner) == ("owner", of)
        assert "ended together with Owner" in str(cause)
    with pytest.raises(moo.ActorDied, match="ended together with Owner"):
        child.pid()
    assert eventually(lambda: moo.actors() == [])


@pytest.mark.slow
def test_kill_and_stop_return_when_all_are_gone(running: None) -> None:
    for end in (moo.kill, moo.stop):
        owner = moo.spawn(Owner)
        pids = [owner.pid(), *(owner.add().pid() for _ in range(3))]
        end(owner)
        assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_a_stopped_owner_has_its_own_asked_to_stop(
    running: None, tmp_path: Path
) -> None:
    owner = moo.spawn(Owner)
    child = owner.add()
    child.note_stop(tmp_path / "note")
    moo.stop(owner)
    assert (tmp_path / "note").read_text() == "stopped"


def test_an_exception_in_a_method_ends_nothing(running: None) -> None:
    owner = moo.spawn(Owner)
    child = owner.add()
    with pytest.raises(ValueError, match="no reason"):
        owner.fails()
    assert child.pid()


def test_a_detached_actor_outlives_the_one_that_spawned_it(running: None) -> None:
    owner = moo.spawn(Owner)
    child = owner.add("kept", detached=True)
    pid = child.pid()
    moo.kill(owner)
    assert child.pid() == pid
    (info,) = moo.actors()
    assert (info.name, info.owner, info.detached) == ("kept", None, True)


def test_a_restarted_owner_finds_the_names_of_its_own_free(running: None) -> None:
    again = moo.Restart(max=3)
    names = [f"child-{i}" for i in range(3)]
    owner = moo.on(Owner, restart=again).spawn(names)
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


def test_what_an_actor_spawns_while_it_dies_ends_too(running: None) -> None:
    owners = moo.on(Owner).group(3)
    for owner in owners:
        owner.add_and_die.tell()
    for owner in owners:
        assert ends(owner).signal == signal.SIGKILL
    assert eventually(lambda: moo.actors() == [])


def test_a_supervised_child_is_not_restarted_without_its_owner(running: None) -> None:
    owner = moo.spawn(Owner)
    child = owner.add(restart=moo.Restart(max=100))
    child.pid()
    moo.kill(owner)
    assert ends(child).kind == "owner"
    assert moo.actors() == []


def test_the_actors_of_a_session_are_listed(running: None) -> None:
    assert moo.actors() == []
    first = moo.on(Owner, name="first", restart=moo.Restart()).spawn()
    second = first.add()
    pids = first.pid(), second.pid()
    infos = moo.actors()
    assert [info.label for info in infos] == ["Owner:first", "Owner"]
    assert [info.name for info in infos] == ["first", None]
    assert [info.owner for info in infos] == [None, "Owner:first"]
    assert [info.state for info in infos] == ["running", "running"]
    assert tuple(info.pid for info in infos) == pids
    assert [info.handle for info in infos] == [first, second]
    moo.kill(first)
    with pytest.raises(moo.ActorUnavailable, match="Owner:first has ended"):
        _ = infos[0].handle


def test_an_actor_that_an_actor_lists_is_the_same(running: None) -> None:
    @moo.actor
    class Lists:
        def labels(self) -> list[str]:
            return [info.label.rpartition(".")[2] for info in moo.actors()]

    assert moo.spawn(Lists).labels() == ["Lists"]


def test_a_handle_of_another_session_is_unavailable() -> None:
    with moo.init():
        old = moo.spawn(Owner)
        old.pid()
    with moo.init(), pytest.raises(moo.ActorUnavailable, match="another session"):
        old.pid()


def test_orphans_of_actors_are_gone_with_the_session(running: None) -> None:
    @moo.actor
    class Leaves:
        def daemon(self) -> int:
            import subprocess
            import sys

            program = (
                "import os, sys\n"
                "if os.fork(): os._exit(0)\n"
                "os.setsid()\n"
                "print(os.getpid(), flush=True)\n"
                "os.close(1)\n"
                "import time; time.sleep(60)\n"
            )
            said = subprocess.run([sys.executable, "-c", program], stdout=-1)
            return int(said.stdout)

    leaves: Any = moo.spawn(Leaves)
    pid = leaves.daemon()
    moo.kill(leaves)
    moo.shutdown()
    assert not os.path.exists(f"/proc/{pid}")


def test_an_actor_between_two_lives_ends_when_it_is_to(running: None) -> None:
    later = moo.Restart(backoff=50.0)
    owner = moo.spawn(Owner)
    alone, child = moo.on(Owner, restart=later).spawn(), owner.add(restart=later)
    for handle in (alone, child):
        handle.exit.tell(1)
    states = ["running", "waiting to restart", "waiting to restart"]
    assert eventually(lambda: [info.state for info in moo.actors()] == states)
    moo.kill(alone)
    assert ends(alone).kind == "killed"
    moo.kill(owner)
    assert ends(child).kind == "owner"
    assert moo.actors() == []


def test_a_broken_pipe_is_an_error_of_the_call(running: None) -> None:
    @moo.actor
    class Writes:
        def write(self) -> None:
            read, write = os.pipe()
            os.close(read)
            os.write(write, b"nobody reads this")

        def ping(self) -> str:
            return "pong"

    writes = moo.spawn(Writes)
    with pytest.raises(BrokenPipeError):
        writes.write()
    assert writes.ping() == "pong"
