# SPDX-License-Identifier: MIT
"""Environments: the guard around send and recv, and one picture of all back ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from mooactor.rl import (
    AtariEnvironments,
    Environments,
    GymEnvironments,
    make_environments,
)


class Blank(gymnasium.Env[Any, int]):
    """Observes nothing, in some space."""

    def __init__(
        self,
        shape: tuple[int, ...] = (2,),
        images: bool = False,
    ) -> None:
        self.observation_space = Box(0, 255, shape, np.uint8 if images else np.float64)
        self.action_space = Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape, self.observation_space.dtype), {}


@pytest.fixture(autouse=True)
def blank() -> Iterator[None]:
    gymnasium.register("Blank-v0", Blank)
    yield
    del gymnasium.registry["Blank-v0"]


@pytest.fixture(params=["ALE/Breakout-v5", "CartPole-v1"])
def environments(request: pytest.FixtureRequest) -> Iterator[Environments]:
    made = make_environments(request.param, 3)
    yield made
    made.close()


def test_send_and_recv_alternate_after_a_reset(environments: Environments) -> None:
    with pytest.raises(RuntimeError, match="reset the environments"):
        environments.send(np.zeros(3, np.int64))
    environments.reset(seed=0)
    with pytest.raises(RuntimeError, match="nothing sent"):
        environments.recv()
    environments.send(np.zeros(3, np.int64))
    with pytest.raises(RuntimeError, match="send called twice"):
        environments.send(np.zeros(3, np.int64))
    outcome = environments.recv()
    assert outcome.observations.shape == (3, *environments.observation_shape)
    assert outcome.observations.dtype == environments.observation_dtype
    assert {part.shape for part in outcome[1:]} == {(3,)}
    assert outcome.rewards.dtype == np.float32


def test_an_action_that_is_none_is_refused_and_nothing_is_sent(
    environments: Environments,
) -> None:
    environments.reset(seed=0)
    for action in (-1, 4, 2**40):
        with pytest.raises(ValueError, match=f"actions are 0 to .* not .*{action}"):
            environments.send(np.array([0, action, 0]))
    with pytest.raises(ValueError, match=r"3 environments need as many actions"):
        environments.send(np.zeros(2, np.int64))
    environments.send(np.array([0, 1, 0]))
    assert environments.recv().rewards.shape == (3,)


def test_the_same_seed_gives_the_same_game(environments: Environments) -> None:
    """And observations are never overwritten."""

    def play() -> tuple[list[NDArray[Any]], list[bytes]]:
        seen = [environments.reset(seed=5)]
        copies = [seen[0].tobytes()]
        for step in range(30):
            environments.send(np.full(3, step % environments.num_actions))
            seen.append(environments.recv().observations)
            copies.append(seen[-1].tobytes())
        return seen, copies

    seen, first = play()
    _, again = play()
    assert first == again == [one.tobytes() for one in seen]


@pytest.mark.parametrize(
    ("shape", "images", "seen"),
    [
        ((9, 8), True, (1, 9, 8)),
        ((9, 8, 3), True, (3, 9, 8)),
        ((3, 9, 8), True, (3, 9, 8)),
        ((2, 3), False, (6,)),
    ],
)
def test_images_come_with_channels_first_and_all_else_as_a_vector(
    shape: tuple[int, ...], images: bool, seen: tuple[int, ...]
) -> None:
    environments = GymEnvironments("Blank-v0", 2, shape=shape, images=images)
    assert environments.observation_shape == seen
    assert environments.observation_dtype == (np.uint8 if images else np.float32)
    assert environments.reset(seed=0).shape == (2, *seen)


def test_lost_lives_are_told_and_do_not_end_the_game() -> None:
    environments = AtariEnvironments("breakout", 2)
    environments.reset(seed=0)
    lost, ended = 0, 0
    while ended < 2:
        for action in (ended % 2 + 1, 1):
            environments.send(np.full(2, action))
            outcome = environments.recv()
            assert not (outcome.lost_life & outcome.terminated).any()
            lost += int(outcome.lost_life.sum())
            ended += int(outcome.terminated.sum())
    assert lost >= 4 * 2  # five lives, of which the last ends the game


def test_a_colour_twin_plays_the_same_game() -> None:
    games = AtariEnvironments("breakout", 2), AtariEnvironments("breakout", 2, rgb=True)
    shapes = [game.reset(seed=3).shape for game in games]
    assert shapes == [(2, 4, 84, 84), (2, 3, 210, 160)]
    rewards: list[list[list[float]]] = [[], []]
    for action in np.random.default_rng(0).integers(0, 4, (200, 2)):
        for game, total in zip(games, rewards, strict=True):
            game.send(action)
            total.append(game.recv().rewards.tolist())
    assert rewards[0] == rewards[1]
    assert np.sum(rewards[0]) > 0
