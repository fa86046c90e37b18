# SPDX-License-Identifier: MIT
"""Actors of other hosts come and go, and the way to the next one stays open."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mooactor as moo
from mooactor.process.current import current_runtime
from tests.clusters import Cluster, cluster
from tests.conftest import eventually


class Echo:
    """Answers with what it gets."""

    def echo(self, value: int) -> int:
        return value


_WRITES = """
import sys
number = 0
while True:
    try:
        open(f"{sys.argv[1]}/left-{number % 1000}", "w").close()
    except OSError:
        pass
    number += 1
"""


class Leaves:
    """Starts a process that writes into the session's directory, as an actor does that
    is just being born, but for as long as it lives."""

    def leave(self) -> str:
        directory = current_runtime().directory
        words = [sys.executable, "-S", "-c", _WRITES, directory]
        subprocess.Popen(words, start_new_session=True)
        return directory


@pytest.fixture
def joined() -> Iterator[Cluster]:
    with cluster("ab") as made, pytest.MonkeyPatch.context() as patch:
        for key, value in made.environment("d").items():
            patch.setenv(key, value)
        patch.setenv("MOOACTOR_HOST_NAME", "d")
        with made.network.inside("d"), moo.init(made.address):
            yield made


@pytest.mark.slow
def test_no_end_of_an_actor_harms_the_calls_to_others(joined: Cluster) -> None:
    """The end of a connection was once the end of libzmq's thread, and of all calls."""
    for number in range(24):
        actor = moo.on(Echo, host="ab"[number % 2], name="the only one").spawn()
        refs = [actor.echo.remote(n) for n in range(4)]
        assert moo.get(refs) == [0, 1, 2, 3]
        (moo.stop, moo.kill)[number % 3 == 0](actor)


@pytest.mark.slow
def test_a_host_that_ends_leaves_no_directory_that_is_written_to(
    joined: Cluster,
) -> None:
    """Its removal fails until the processes that write there are gone."""
    actor = moo.on(Leaves, host="b").spawn()
    directories = {actor.leave() for _ in range(2)}
    (directory,) = map(Path, directories)
    assert eventually((directory / "left-999").exists)
    assert joined.members["b"].stop() == 0
    assert not directory.exists()
