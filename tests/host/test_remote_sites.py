# SPDX-License-Identifier: MIT
"""What a home does about other hosts, without any: see `LoneHome`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mooactor.control import plain
from tests.host.lone_homes import LoneHome


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., LoneHome]]:
    homes: list[LoneHome] = []

    def make(names: str = "b", **options: Any) -> LoneHome:
        homes.append(LoneHome(tmp_path, names, **options))
        return homes[-1]

    yield make
    for home in homes:
        home.close()


@pytest.fixture
def lone(made: Callable[..., LoneHome]) -> LoneHome:
    return made()


# -- starts that cannot be posted -------------------------------------------------


@pytest.mark.parametrize("error", [plain.NotPlain("too large"), OSError("no parcel")])
def test_an_actor_whose_start_cannot_be_posted_ends_and_leaves_nothing(
    lone: LoneHome, error: Exception
) -> None:
    other = lone.spawn(1)
    wire = lone.wire("b")

    def post(message: Any) -> None:
        if message["what"] == "start":
            raise error

    wire.post = post  # type: ignore[method-assign]
    actor = lone.spawn(2)
    assert actor.over
    assert len(lone.site("b")) == 1
    lone.lose("b")
    assert other.over
