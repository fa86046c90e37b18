# SPDX-License-Identifier: MIT
"""Session directories: made by some while others clean up."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.process import files
from tests.actors.counter import Counter
from tests.conftest import eventually


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "_usable", lambda: [str(tmp_path)])
    return tmp_path


@pytest.fixture
def own() -> Iterator[Callable[[tuple[str, int]], str]]:
    """Note what `make` returned; its lock is closed when the test is over."""
    locks: list[int] = []

    def note(made: tuple[str, int]) -> str:
        locks.append(made[1])
        return made[0]

    yield note
    for lock in locks:
        os.close(lock)


Step = tuple[Any, str]

# Each step of a maker, before which somebody else may clean up.
STEPS: list[Step] = [
    (os, "open"),
    (files.fcntl, "flock"),
    (os, "fstat"),
    (os, "stat"),
]


@pytest.mark.parametrize(("module", "name"), STEPS, ids=[name for _, name in STEPS])
def test_a_start_succeeds_whenever_another_cleans_up(
    base: Path, own: Any, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    real = getattr(module, name)
    cleaned = []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(module, name, real)
        cleaned.append(os.listdir(base))
        files.remove_abandoned_directories()
        return real(*args, **kwargs)

    monkeypatch.setattr(module, name, interrupted)
    path = own(files.make_directory())
    assert len(cleaned) == len(cleaned[0]) == 1  # there was a directory to be met
    files.remove_abandoned_directories()
    assert os.listdir(base) == [os.path.basename(path)]
    assert os.listdir(path) == [files.LOCK]


@pytest.mark.parametrize(("module", "name"), STEPS[1:], ids=["flock", "fstat", "stat"])
def test_who_cleans_up_spares_what_its_maker_has_locked_meanwhile(
    base: Path, own: Any, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    """The same steps with the roles exchanged: the maker is the quicker one."""
    path, abandoned = files.make_directory()
    os.close(abandoned)
    real, made = getattr(module, name), []

    def overtaken(*args: Any, **kwargs: Any) -> Any:
        if name != "stat" or args[0] == f"{path}/{files.LOCK}":
            monkeypatch.setattr(module, name, real)
            made.append(files._lock(path, os.O_CREAT))
        return real(*args, **kwargs)

    monkeypatch.setattr(module, name, overtaken)
    files.remove_abandoned_directories()
    (lock,) = made
    if lock is None:  # the cleaner was the first
        assert os.listdir(base) == []
    else:
        own((path, lock))
        assert os.listdir(path) == [files.LOCK]


def test_what_nobody_has_locked_is_removed(base: Path) -> None:
    empty = base / f"{files.PREFIX}no_lock_"  # its maker was killed
    empty.mkdir()
    path, lock = files.make_directory()
    (Path(path) / "socket").touch()
    os.close(lock)
    (base / "not-ours").mkdir()
    (base / f"{files.PREFIX}file").touch()
    files.remove_abandoned_directories()
    assert sorted(os.listdir(base)) == [f"{files.PREFIX}file", "not-ours"]


def test_what_somebody_else_calls_so_is_left_alone(base: Path) -> None:
    for name in ("examples", "main", "0.1.0", "test-Xy12ab"):
        for held in ("notes.txt", "lock", "folder/mooactor.lock"):
            theirs = base / f"{files.PREFIX}{name}-{held[0]}" / held
            theirs.parent.mkdir(parents=True)
            theirs.write_text("theirs")
            files.remove_abandoned_directories()
            assert theirs.read_text() == "theirs"


def put_before_rmdir(
    monkeypatch: pytest.MonkeyPatch, put: Callable[[str], object], times: int
) -> None:
    """The next `times` that a directory is about to be removed, `put` is quicker."""
    real, left = os.rmdir, [times]

    def overtaken(path: str, **kwargs: Any) -> None:
        if left[0]:
            left[0] -= 1
            put(path)
        real(path, **kwargs)

    monkeypatch.setattr(os, "rmdir", overtaken)


def test_what_is_put_into_it_at_the_last_moment_goes_with_it(
    base: Path, own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An actor that is just being born makes its socket there."""
    path = own(files.make_directory())
    put_before_rmdir(monkeypatch, lambda path: Path(path, "socket").touch(), 3)
    assert files.remove_directory(path)
    assert os.listdir(base) == []


def test_one_that_its_maker_has_locked_at_the_last_moment_is_spared(
    base: Path, own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, abandoned = files.make_directory()
    os.close(abandoned)

    def lock(path: str) -> None:
        own((path, files._lock(path, os.O_CREAT)))
        Path(path, "used").touch()

    put_before_rmdir(monkeypatch, lock, 1)
    files.remove_abandoned_directories()
    assert sorted(os.listdir(path)) == [files.LOCK, "used"]


def test_it_is_made_in_the_next_place_if_one_takes_none(
    base: Path, monkeypatch: pytest.MonkeyPatch, own: Callable[[tuple[str, int]], str]
) -> None:
    """The kernel's own file systems look writable to root, and take no directory."""
    monkeypatch.setattr(files, "_usable", lambda: ["/proc", str(base)])
    assert os.path.dirname(own(files.make_directory())) == str(base)


def test_a_runtime_directory_of_a_login_is_the_last_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/0")
    assert files.directory_bases()[-1] == "/run/user/0"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert files.directory_bases() == list(
        dict.fromkeys([tempfile.gettempdir(), "/tmp"])
    )


# -- a directory that is gone, or full -------------------------------------------


@moo.actor
class Asker:
    def ask(self, other: Any) -> int:
        return other.add()


def test_first_calls_fail_with_what_to_do_once_somebody_has_removed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Calls between processes that know each other go on."""
    temporary = Path(tempfile.gettempdir())  # a short path, as those of sockets must be
    monkeypatch.setattr(files, "_usable", lambda: [str(temporary)])
    before = set(temporary.glob(f"{files.PREFIX}*"))
    with moo.init(logs=False):
        asker = moo.spawn(Asker)
        assert asker.ask(moo.spawn(Counter)) == 1
        (directory,) = set(temporary.glob(f"{files.PREFIX}*")) - before
        strangers = moo.on(Counter).group(2)
        assert eventually(lambda: all(a.state == "running" for a in moo.actors()))
        shutil.rmtree(directory)
        what = r"was removed .* moo\.init\(\)"
        for call, ran in ((strangers[0].add, False), (asker.ask, True)):
            args = strangers[1:] if ran else ()
            with pytest.raises(moo.ActorUnavailable, match=what) as caught:
                call(*args)
            assert caught.value.delivered is ran  # `ask` has run
        with pytest.raises(moo.ActorUnavailable, match="was removed"):
            strangers.add.call().get()
