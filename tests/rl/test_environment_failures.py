# SPDX-License-Identifier: MIT
"""Environments that raise, give what cannot be used, or cannot be made."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from mooactor.rl import (
    EnvironmentFailed,
    Environments,
    GymEnvironments,
    make_environments,
)


class Fragile(gymnasium.Env[Any, int]):
    """Observes its number in order of construction and its steps in this episode.

    Those in ``weak`` have the ``trouble`` at step ``at`` of their first episode, or of
    each with ``always``. Episodes last four steps, and each step rewards 1.
    """

    made: ClassVar[list[Fragile]] = []
    observation_space = Box(-1e300, 1e300, (2,), np.float64)
    action_space = Discrete(2)
    episodes = steps = 0
    closed = False

    def __init__(
        self,
        trouble: str = "",
        weak: tuple[int, ...] = (),
        at: int = 2,
        always: bool = False,
    ) -> None:
        self.number = len(self.made)
        self.made.append(self)
        self.trouble = trouble if self.number in weak else ""
        self.at, self.always = at, always
        self.seeds: list[int | None] = []
        self._strike("construction")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episodes, self.steps = self.episodes + 1, 0
        self._strike("reset")
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.steps += 1
        self._strike("step")
        reward: Any = {"inf reward": np.inf, "no reward": None}.get(self._now(), 1.0)
        return self._observe(), reward, self.steps == 4, False, {}

    def close(self) -> None:
        assert not self.closed, "closed twice"
        self.closed = True

    def _now(self) -> str:
        due = self.steps == self.at and (self.always or self.episodes == 1)
        return self.trouble if due else ""

    def _strike(self, place: str) -> None:
        if self.trouble == place and (place != "step" or self._now()):
            raise KeyError(f"a bug in {place}")

    def _observe(self) -> Any:
        steps = {"nan observation": np.nan, "huge observation": 1e200}
        seen = [self.number, steps.get(self._now(), self.steps)]
        return np.array(seen[:1] if self._now() == "bad shape" else seen, np.float64)


Make = Callable[..., Environments]


@pytest.fixture
def fragile() -> Iterator[Make]:
    """Makes a batch of `Fragile` environments; closes them after the test."""
    batches = []

    def make(count: int = 3, restart: bool = False, **options: Any) -> Environments:
        options.setdefault("disable_env_checker", True)
        batches.append(GymEnvironments("Fragile-v0", count, restart=restart, **options))
        return batches[-1]

    Fragile.made.clear()
    gymnasium.register("Fragile-v0", Fragile)
    yield make
    for batch in batches:
        batch.close()
    del gymnasium.registry["Fragile-v0"]


def step(environments: Environments) -> Any:
    environments.send(np.zeros(environments.num_envs, np.int64))
    return environments.recv()


def test_an_error_names_the_environment_shows_its_traceback_and_crosses_processes(
    fragile: Make,
) -> None:
    environments = fragile(trouble="step", weak=(1,))
    environments.reset(seed=0)
    step(environments)
    with pytest.raises(EnvironmentFailed) as caught:
        step(environments)
    first_line, _, rest = str(caught.value).partition("\n")
    assert first_line == (
        "Fragile-v0, environment 1 of its batch, failed in step: KeyError: "
        "'a bug in step'"
    )
    assert "self._strike" in rest and __name__.rpartition(".")[2] in rest
    assert isinstance(caught.value.__cause__, KeyError)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is EnvironmentFailed and str(copy) == str(caught.value)
    assert (copy.env_id, copy.index) == ("Fragile-v0", 1)


@pytest.mark.parametrize("trouble", ["step", "nan observation", "bad shape"])
def test_after_a_failure_the_batch_must_be_reset_and_then_works(
    fragile: Make, trouble: str
) -> None:
    environments = fragile(trouble=trouble, weak=(1,), at=1)
    environments.reset(seed=0)
    with pytest.raises(EnvironmentFailed):
        step(environments)
    with pytest.raises(RuntimeError, match="nothing sent"):
        environments.recv()
    with pytest.raises(RuntimeError, match="reset the environments"):
        step(environments)
    assert environments.reset(seed=5).tolist() == [[0, 0], [1, 0], [2, 0]]
    assert step(environments).observations.tolist() == [[0, 1], [1, 1], [2, 1]]
    assert [each.seeds[-1] for each in Fragile.made] == [5, 6, 7]
    assert environments.restarted == 0


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("nan observation", "its observation is not finite but nan"),
        ("huge observation", "its observation is not finite but inf"),
        ("inf reward", "its reward is not finite but inf"),
        ("bad shape", r"float64 of shape \(1,\), but its space is float64 of shape"),
        ("no reward", "failed in step: TypeError"),
        ("reset", "failed in reset: KeyError"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(
    fragile: Make, trouble: str, said: str
) -> None:
    """Also of a first observation."""
    for at in (0, 2) if trouble.endswith("observation") else (2,):
        Fragile.made.clear()
        environments = fragile(trouble=trouble, weak=(2,), at=at)
        with pytest.raises(EnvironmentFailed, match=said) as caught:
            environments.reset(seed=0)
            step(environments), step(environments)
        assert "Fragile-v0, environment 2 of its batch" in str(caught.value)


@pytest.mark.parametrize(
    "trouble", ["step", "nan observation", "inf reward", "bad shape", "no reward"]
)
@pytest.mark.parametrize("at", [2, 4])  # in the middle, and where the episode ends
def test_a_restarted_environment_ends_its_episode_and_begins_another(
    fragile: Make, trouble: str, at: int
) -> None:
    environments = fragile(restart=True, trouble=trouble, weak=(1,), at=at)
    environments.reset(seed=10)
    steps = [step(environments) for _ in range(at + 3)]

    failed = steps[at - 1]
    assert failed.truncated.tolist() == [False, True, False]
    assert failed.terminated[1] == np.False_
    assert failed.rewards.tolist() == [1, 0, 1]
    assert failed.observations.tolist() == [[0, at], [1, at - 1], [2, at]]

    first = steps[at]  # as after any end: only the first observation
    assert first.observations[1].tolist() == [3, 0]
    assert (first.rewards[1], first.truncated[1], first.terminated[1]) == (0, 0, 0)
    for later, outcome in enumerate(steps[at + 1 :], start=1):
        assert outcome.observations[1].tolist() == [3, later]
        assert outcome.rewards[1] == 1

    assert Fragile.made[1].closed
    assert environments.restarted == 1
    assert "Fragile-v0, environment 1 of its batch" in environments.last_error
    assert len(Fragile.made) == 4


def test_a_new_environment_has_a_seed_of_its_own_that_follows_from_the_first(
    fragile: Make,
) -> None:
    def seeds(seed: int) -> list[int | None]:
        Fragile.made.clear()
        environments = fragile(3, True, trouble="step", weak=(0, 1), at=3, always=True)
        environments.reset(seed=seed)
        for _ in range(9):
            step(environments)
        assert environments.restarted == 2
        return [each.seeds[0] for each in Fragile.made]

    first = seeds(7)
    assert len(set(first)) == 5 and None not in first
    assert seeds(7) == first
    assert set(seeds(70)).isdisjoint(first)


def test_an_environment_that_fails_in_reset_is_made_anew_at_once(fragile: Make) -> None:
    environments = fragile(restart=True, trouble="reset", weak=(1, 3))
    assert environments.reset(seed=0).tolist() == [[0, 0], [4, 0], [2, 0]]
    assert environments.restarted == 2
    assert step(environments).rewards.tolist() == [1, 1, 1]


def test_a_constructor_that_raises_is_told_of_and_the_others_are_closed(
    fragile: Make,
) -> None:
    with pytest.raises(
        EnvironmentFailed, match="environment 1 of its batch, failed in"
    ):
        fragile(restart=True, trouble="construction", weak=(1,))
    assert Fragile.made[0].closed


def test_next_step_autoreset_is_exactly_that_of_gymnasium() -> None:
    ours = make_environments("CartPole-v1", 4, restart=True)
    theirs = gymnasium.make_vec("CartPole-v1", 4, vectorization_mode="sync")
    np.testing.assert_array_equal(ours.reset(seed=3), theirs.reset(seed=3)[0])
    rng = np.random.default_rng(0)
    for _ in range(200):
        actions = rng.integers(0, 2, 4)
        ours.send(actions)
        for own, other in zip(ours.recv(), theirs.step(actions)[:4], strict=False):
            np.testing.assert_array_equal(own, other)
    assert ours.restarted == 0 and ours.last_error == ""
    ours.close(), theirs.close()
