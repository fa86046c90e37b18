# SPDX-License-Identifier: MIT
"""A kill for memory counts for a process that died about then, not for others."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mooactor.host import reaper
from mooactor.host.eventloop import EventLoop
from mooactor.host.reaper import OomKills
from tests.conftest import eventually


class Group:
    """A control group that is populated, and then frozen: the kernel counts these here,
    and gives notice as it does of kills."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.path = directory / "cgroup.events"
        self._changes = [("cgroup.freeze", "1"), ("cgroup.procs", "")]
        self._member = subprocess.Popen(["sleep", "600"])

    def kill(self) -> None:
        """Something that counts as one."""
        name, value = self._changes.pop()
        before = self.path.read_text()
        (self._directory / name).write_text(value or str(self._member.pid))
        assert eventually(lambda: self.path.read_text() != before)

    def close(self) -> None:
        self._member.kill()
        self._member.wait()
        assert eventually(lambda: "populated 0" in self.path.read_text())
        self._directory.rmdir()


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[Group]:
    directory = Path(mount_of_version_2(), f"moo-test-{os.getpid()}")
    try:
        directory.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    monkeypatch.setattr(reaper, "_KEY", b"")  # every line counts
    made = Group(directory)
    yield made
    made.close()


def mount_of_version_2() -> str:
    mounts = [
        line.split() for line in Path("/proc/self/mounts").read_text().split("\n")
    ]
    for words in mounts:
        if words[2:3] == ["cgroup2"]:
            return words[1]
    pytest.skip("no control groups of version 2")


class Loop(EventLoop):
    """An event loop whose timers run when they are told to."""

    def __init__(self) -> None:
        super().__init__()
        self._due: list[Callable[[], None]] = []

    def later(self, delay: float, action: Callable[[], None]) -> None:
        self._due.append(action)

    def hear(self) -> None:
        """The kernel's notice of a kill."""
        while not self._due:
            self.serve(time.monotonic() + 0.01)

    def pass_time(self) -> None:
        """The news is old now."""
        due, self._due = self._due, []
        for action in due:
            action()


@pytest.fixture
def open_kills() -> Iterator[Callable[..., OomKills]]:
    opened = []

    def make(path: Path | None, loop: EventLoop | None = None) -> OomKills:
        opened.append(OomKills(loop or EventLoop(), path and str(path)))
        return opened[-1]

    yield make
    for kills in opened:
        kills.close()
        kills._loop._selector.close()


def test_a_kill_of_now_counts_once(group: Group, open_kills: Callable[..., OomKills]):
    kills = open_kills(group.path)
    assert not kills.happened()
    group.kill()
    assert kills.happened()
    assert not kills.happened()


def test_an_old_kill_does_not_count_and_one_just_after_it_does(
    group: Group, open_kills: Callable[..., OomKills]
):
    loop = Loop()
    kills = open_kills(group.path, loop)
    group.kill()
    loop.hear()
    loop.pass_time()
    assert not kills.happened()
    group.kill()
    assert kills.happened()


def test_a_kill_while_an_old_one_is_fresh_counts(
    group: Group, open_kills: Callable[..., OomKills]
):
    loop = Loop()
    kills = open_kills(group.path, loop)
    group.kill()
    loop.hear()
    group.kill()
    loop.pass_time()  # for the first
    assert kills.happened()


def test_without_notices_the_kills_since_the_last_question_count(
    tmp_path: Path, open_kills: Callable[..., OomKills]
):
    events = tmp_path / "memory.events"
    events.write_text("low 0\noom 3\noom_kill 3\noom_group_kill 0\n")
    kills = open_kills(events)
    assert not kills.happened()
    events.write_text("low 0\noom 4\noom_kill 4\noom_group_kill 0\n")
    assert kills.happened()
    assert not kills.happened()


def test_where_nothing_counts_there_are_no_kills(
    tmp_path: Path, open_kills: Callable[..., OomKills]
):
    for path in (None, tmp_path / "none", tmp_path):
        assert not open_kills(path).happened()
