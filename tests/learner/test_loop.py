# SPDX-License-Identifier: MIT
"""The loop that the docstring of `LearnerGroup` shows survives what it is there for."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from tests.conftest import eventually
from tests.learner.conftest import MEDIA
from tests.learner.looping import Looper, documented_loop
from tests.marks import slow, soak

ROOT = Path(__file__).parents[2]
ALIVE = 3  # at a time, and one more or less


def test_the_docs_show_the_loop_of_the_docstring() -> None:
    page = (ROOT / "docs" / "allreduce.md").read_text()
    loop = documented_loop().strip().splitlines()[1:]
    shown = page.partition(f"```text\n  {loop[0]}\n")[2].partition("```")[0]
    lines = [line.removeprefix("  ") for line in shown.splitlines()]
    assert lines[:-1] == loop[1:]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("medium", MEDIA)
def test_the_documented_loop_survives_kills_leaves_and_joins(
    session: Any, medium: str
) -> None:
    survive(medium, events=10 if medium == "shm" else 4, seed=1)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("medium", "events"), [slow("shm", 70), soak("shm", 200), soak("ring", 200)]
)
def test_the_documented_loop_survives_many_of_them(
    session: Any, medium: str, events: int
) -> None:
    survive(medium, events, seed=2)


def survive(medium: str, events: int, seed: int) -> None:
    """Start a member whenever one ends, until `events` have; all but the killed ones
    must have left of their own will, and the last ones still go on.
    """
    draw = random.Random(seed)
    on = moo.on(Looper, env=MEDIA[medium])
    running: dict[Any, tuple[Any, str]] = {}

    def start(end: str) -> None:
        member = on.spawn()
        name = f"loop-{medium}-{seed}"
        ref = member.loop.remote(name, draw.randrange(1 << 32), end)
        running[ref] = (member, end)

    def ended(what: str) -> list[Any]:
        return [ref for ref, (_, end) in running.items() if end == what and ref.done()]

    try:
        left: list[float] = []
        for _ in range(events):
            while len(running) < draw.randint(ALIVE - 1, ALIVE + 1):
                start(draw.choice(["killed", "leaves"]))
            done, _ = moo.wait(list(running), num_returns=1, timeout=120)
            assert done, "no member has come to its end"
            for ref in done:
                member, end = running.pop(ref)
                if end == "killed":
                    with pytest.raises(moo.ActorDied, match="SIGKILL"):
                        ref.get()
                else:
                    left.append(ref.get())
                moo.kill(member)
        assert left or events < 10
        for _ in range(2):
            start("stays")
        start("leaves")
        assert eventually(lambda: ended("leaves"), 120)
        for ref in ended("leaves"):
            ref.get()
        assert not ended("stays")
    finally:
        for member, _ in running.values():
            moo.kill(member)
