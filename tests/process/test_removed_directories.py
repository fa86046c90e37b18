# SPDX-License-Identifier: MIT
"""Somebody removes the directory of a session that runs."""

from __future__ import annotations

import glob
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mooactor as moo
from mooactor.process import directories
from tests.actors.counter import Counter
from tests.conftest import eventually


@moo.actor
class Asker:
    def ask(self, other: Any) -> int:
        return other.add()


def present() -> set[str]:
    return set(glob.glob(f"{tempfile.gettempdir()}/{directories.PREFIX}*"))


@pytest.fixture
def known() -> Iterator[Any]:
    """An actor that was called already; after that the directory was removed."""
    before = present()
    with moo.init(logs=False):
        asker = moo.spawn(Asker)
        assert asker.ask(moo.spawn(Counter)) == 1
        (directory,) = present() - before
        strangers = moo.on(Counter).group(2)
        assert eventually(lambda: all(a.state == "running" for a in moo.actors()))
        shutil.rmtree(directory)
        yield asker, strangers


FIRST_CALLS: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "the driver's": (lambda _, other: other.add(), False),
    "another actor's": (lambda asker, other: asker.ask(other), True),  # which ran
}


@pytest.mark.parametrize(("call", "ran"), FIRST_CALLS.values(), ids=FIRST_CALLS)
def test_a_first_call_fails_with_what_to_do(known: Any, call: Any, ran: bool) -> None:
    asker, strangers = known
    with pytest.raises(
        moo.ActorUnavailable, match=r"was removed .* moo\.init\(\)"
    ) as e:
        call(asker, strangers[0])
    assert e.value.delivered is ran
    with pytest.raises(moo.ActorUnavailable, match="was removed"):
        strangers.add.call().get()


def test_calls_between_processes_that_know_each_other_go_on(known: Any) -> None:
    asker, strangers = known
    for stranger in strangers:
        with pytest.raises(moo.ActorUnavailable, match="was removed"):
            asker.ask(stranger)


def test_a_runtime_directory_of_a_login_is_the_last_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/0")
    assert directories.bases()[-1] == "/run/user/0"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert directories.bases() == list(dict.fromkeys([tempfile.gettempdir(), "/tmp"]))
