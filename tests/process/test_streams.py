# SPDX-License-Identifier: MIT
"""Random streams: each actor has its own, and a seed brings all of them back."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.host import session as session_module
from mooactor.process.environment import Streams

pytestmark = pytest.mark.usefixtures("no_session")
Draw = tuple[float, ...]


@moo.actor
class Draws:
    """Draws from every generator that a process has for all its code."""

    def draw(self) -> Draw:
        return random.random(), float(np.random.rand())

    def draws_of_children(self, count: int) -> list[Draw]:
        return [moo.spawn(Draws).draw() for _ in range(count)]

    def die(self) -> None:
        raise SystemExit(1)


def draw_again(actor: Any) -> Draw:
    """Another process's first numbers, in the same actor."""
    with pytest.raises(moo.ActorRestarted):
        actor.die()
    drawn: Draw = actor.draw()
    return drawn


def draws_of_a_session(seed: int | None) -> dict[str, Draw]:
    """The first numbers of actors of all kinds."""
    with moo.init(seed=seed):
        group = moo.on(Draws, restart=moo.Restart(max=3)).group(2)
        named = moo.on(Draws, name="named").spawn()
        found = {f"rank {rank}": group[rank].draw() for rank in (0, 1)}
        found["named"] = named.draw()
        found["child"], found["second child"] = named.draws_of_children(2)
        found["restarted"] = draw_again(group[1])
        found["child of a restarted one"] = group[1].draws_of_children(1)[0]
        moo.kill(named)
        found["of the same name"] = moo.on(Draws, name="named").spawn().draw()
        return found


def all_differ(draws: list[Draw]) -> bool:
    """Whether no generator gave the same number twice."""
    return all(len(set(of_one)) == len(draws) for of_one in zip(*draws, strict=True))


@pytest.mark.slow
def test_no_two_actors_share_a_stream_and_a_seed_repeats_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_module, "PRELOADABLE", ("numpy",))
    before = random.getstate(), repr(np.random.get_state())
    seeded, other = draws_of_a_session(seed=5), draws_of_a_session(None)
    assert all_differ([*seeded.values(), *other.values()])
    assert draws_of_a_session(seed=5) == seeded
    now = random.getstate(), repr(np.random.get_state())
    assert now == before  # the driver's own are not touched


def test_gpus_have_the_actors_own_stream_and_cuda_is_not_initialised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
    seeds: list[int] = []
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    was_initialised = torch.cuda.is_initialized()
    for seed, who in ((5, "first"), (5, "second"), (6, "first"), (5, "first")):
        Streams(seed, who).begin()
    assert seeds[0] == seeds.pop()
    assert len(set(seeds)) == 3
    assert torch.cuda.is_initialized() == was_initialised
    random.setstate(kept[0])  # those of this process come back
    np.random.set_state(kept[1])
    torch.set_rng_state(kept[2])
