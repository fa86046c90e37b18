# SPDX-License-Identifier: MIT
"""Actors of other hosts come and go, and the way to the next one stays open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mooactor as moo
from tests.clusters import cluster


class Echo:
    """Answers with what it gets."""

    def echo(self, value: int) -> int:
        return value


@pytest.fixture
def joined() -> Iterator[None]:
    with cluster("ab") as made, pytest.MonkeyPatch.context() as patch:
        for key, value in made.environment("d").items():
            patch.setenv(key, value)
        patch.setenv("MOOACTOR_HOST_NAME", "d")
        with made.network.inside("d"), moo.init(made.address):
            yield


@pytest.mark.slow
def test_no_end_of_an_actor_harms_the_calls_to_others(joined: None) -> None:
    """The end of a connection was once the end of libzmq's thread, and of all calls."""
    for number in range(24):
        actor = moo.on(Echo, host="ab"[number % 2], name="the only one").spawn()
        refs = [actor.echo.remote(n) for n in range(4)]
        assert moo.get(refs) == [0, 1, 2, 3]
        (moo.stop, moo.kill)[number % 3 == 0](actor)
