# SPDX-License-Identifier: MIT
"""Environments: the guard around send and recv, and one picture of all back ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode

from mooactor.rl import (
    AtariEnvironments,
    Environments,
    GymEnvironments,
    atari_game,
    make_environments,
)


class Countdown(gymnasium.Env[Any, int]):
    """Observes the steps left of three; ends or is truncated at 0; rewards 1 to 3."""

    def __init__(
        self, shape: tuple[int, ...] = (2,), images: bool = False, first: int = 0
    ) -> None:
        dtype = np.uint8 if images else np.float64
        self.observation_space = Box(0, 255, shape, dtype)
        self.action_space = Discrete(2, start=first)
        self.left = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 3
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        over = self.left == 0
        return self._observe(), 3.0 - self.left, over and action == 0, over, {}

    def _observe(self) -> Any:
        space = self.observation_space
        assert space.shape is not None
        return np.full(space.shape, self.left, space.dtype)


@pytest.fixture(autouse=True)
def countdown() -> Iterator[None]:
    gymnasium.register("Countdown-v0", Countdown)
    yield
    del gymnasium.registry["Countdown-v0"]


@pytest.fixture(params=["ALE/Breakout-v5", "CartPole-v1"])
def environments(request: pytest.FixtureRequest) -> Iterator[Environments]:
    made = make_environments(request.param, 3)
    yield made
    made.close()


def test_a_second_send_in_a_row_is_refused(environments: Environments) -> None:
    environments.reset(seed=0)
    environments.send(np.zeros(3, np.int64))
    with pytest.raises(RuntimeError, match="send called twice"):
        environments.send(np.zeros(3, np.int64))
    environments.recv()


def test_recv_without_send_is_refused(environments: Environments) -> None:
    environments.reset(seed=0)
    with pytest.raises(RuntimeError, match="nothing sent"):
        environments.recv()


def test_send_before_reset_is_refused(environments: Environments) -> None:
    with pytest.raises(RuntimeError, match="reset the environments"):
        environments.send(np.zeros(3, np.int64))


@pytest.mark.parametrize("action", [-1, 4, 2**40])
def test_an_action_that_is_none_is_refused_and_nothing_is_sent(
    environments: Environments, action: int
) -> None:
    environments.reset(seed=0)
    with pytest.raises(ValueError, match=f"actions are 0 to .* not .*{action}"):
        environments.send(np.array([0, action, 0]))
    environments.send(np.array([0, 1, 0]))
    assert environments.recv().rewards.shape == (3,)


def test_outcomes_have_the_shapes_that_were_announced(
    environments: Environments,
) -> None:
    shape = (3, *environments.observation_shape)
    assert environments.reset(seed=0).shape == shape
    environments.send(np.zeros(3, np.int64))
    outcome = environments.recv()
    assert outcome.observations.shape == shape
    assert outcome.observations.dtype == environments.observation_dtype
    assert {part.shape for part in outcome[1:]} == {(3,)}
    assert outcome.rewards.dtype == np.float32


def test_the_same_seed_gives_the_same_game(environments: Environments) -> None:
    def play() -> list[bytes]:
        seen = [environments.reset(seed=5).tobytes()]
        for step in range(30):
            environments.send(np.full(3, step % environments.num_actions))
            seen.append(environments.recv().observations.tobytes())
        return seen

    assert play() == play()


def test_observations_are_never_overwritten(environments: Environments) -> None:
    kept = environments.reset(seed=0)
    copy = kept.copy()
    for _ in range(5):
        environments.send(np.ones(3, np.int64))
        environments.recv()
    np.testing.assert_array_equal(kept, copy)


def test_the_step_after_an_end_brings_the_next_episode() -> None:
    environments = GymEnvironments("Countdown-v0", 2)
    assert environments.reset(seed=0)[:, 0].tolist() == [3, 3]
    steps = []
    for _ in range(5):
        environments.send(np.array([0, 1]))
        steps.append(environments.recv())
    assert [step.observations[0, 0] for step in steps] == [2, 1, 0, 3, 2]
    assert [step.rewards[0] for step in steps] == [1, 2, 3, 0, 1]
    assert [step.terminated.tolist() for step in steps][2:4] == [
        [True, False],
        [False, False],
    ]
    assert [step.truncated.tolist() for step in steps][2:4] == [
        [True, True],
        [False, False],
    ]


@pytest.mark.parametrize(
    ("shape", "seen"),
    [((9, 8), (1, 9, 8)), ((9, 8, 3), (3, 9, 8)), ((3, 9, 8), (3, 9, 8))],
)
def test_images_come_with_channels_first(
    shape: tuple[int, ...], seen: tuple[int, ...]
) -> None:
    environments = GymEnvironments("Countdown-v0", 2, shape=shape, images=True)
    assert environments.observation_shape == seen
    assert environments.observation_dtype == np.uint8
    assert environments.reset(seed=0).shape == (2, *seen)


@pytest.mark.parametrize(
    ("shape", "images"), [((9, 8, 3), False), ((2, 9, 8, 3), True), ((1, 1, 1), False)]
)
def test_images_of_floats_and_stacks_of_images_are_refused(
    shape: tuple[int, ...], images: bool
) -> None:
    with pytest.raises(ValueError, match="must be uint8 of three.*FlattenObservation"):
        GymEnvironments("Countdown-v0", 2, shape=shape, images=images)


def test_a_matrix_of_floats_is_a_vector() -> None:
    environments = GymEnvironments("Countdown-v0", 2, shape=(2, 3))
    assert environments.observation_shape == (6,)
    assert environments.reset(seed=0).tolist() == [[3.0] * 6] * 2


def test_other_autoreset_modes_are_refused() -> None:
    options = {"autoreset_mode": AutoresetMode.SAME_STEP}
    with pytest.raises(ValueError, match="must be NEXT_STEP"):
        GymEnvironments("Countdown-v0", 2, vector_kwargs=options)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "Taxi-v4"])
def test_spaces_that_the_algorithm_cannot_handle_are_refused(env_id: str) -> None:
    with pytest.raises(ValueError, match="only"):
        make_environments(env_id, 1)


def test_actions_that_do_not_start_at_0_are_refused() -> None:
    with pytest.raises(ValueError, match="discrete actions from 0"):
        GymEnvironments("Countdown-v0", 1, first=1)


@pytest.mark.parametrize(
    ("env_id", "game"),
    [
        ("ALE/Breakout-v5", "breakout"),
        ("ALE/SpaceInvaders-v5", "space_invaders"),
        ("PongNoFrameskip-v4", "pong"),
        ("CartPole-v1", None),
    ],
)
def test_ale_ids_name_their_rom(env_id: str, game: str | None) -> None:
    assert atari_game(env_id) == game


def test_all_18_actions_on_request() -> None:
    environments = make_environments("ALE/Breakout-v5", 1, all_actions=True)
    assert environments.num_actions == 18
    assert make_environments("ALE/Breakout-v5", 1).num_actions == 4


def test_lost_lives_are_told_and_do_not_end_the_game() -> None:
    environments = AtariEnvironments("breakout", 2)
    environments.reset(seed=0)
    lost, ended = 0, 0
    while ended < 2:
        environments.send(np.full(2, ended % 2 + 1))
        outcome = environments.recv()
        assert not (outcome.lost_life & outcome.terminated).any()
        lost += int(outcome.lost_life.sum())
        ended += int(outcome.terminated.sum())
        environments.send(np.ones(2, np.int64))
        outcome = environments.recv()
        lost += int(outcome.lost_life.sum())
        ended += int(outcome.terminated.sum())
    assert lost >= 4 * 2  # five lives, of which the last ends the game


@pytest.mark.slow
def test_a_colour_twin_plays_the_same_game() -> None:
    games = AtariEnvironments("breakout", 2), AtariEnvironments("breakout", 2, rgb=True)
    shapes = [game.reset(seed=3).shape for game in games]
    assert shapes == [(2, 4, 84, 84), (2, 3, 210, 160)]
    actions = np.random.default_rng(0).integers(0, 4, (200, 2))
    rewards = []
    for game in games:
        total = []
        for action in actions:
            game.send(action)
            total.append(game.recv().rewards.tolist())
        rewards.append(total)
    assert rewards[0] == rewards[1]
    assert np.sum(rewards[0]) > 0
