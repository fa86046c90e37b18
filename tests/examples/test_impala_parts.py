# SPDX-License-Identifier: MIT
"""The parts of the IMPALA example: its plan, its loss, its actor, its learners."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import mooactor as moo
from impala import AllLearnersLost, SettingsError
from mooactor.rl import RESTART, Supply, Unroll, fingerprint
from tests.conftest import eventually
from tests.examples.conftest import flags_of

pytestmark = pytest.mark.usefixtures("session")
STEPS, BATCH = 6, 8
_numbers = itertools.count()


def plain_plan(impala: ModuleType, **settings: Any) -> Any:
    base: dict[str, Any] = {"env": "CartPole-v1", "actors": 2, "learners": 2}
    base |= {"batch": BATCH, "unroll": STEPS, "envs_per_actor": 4}
    return impala.make_plan(impala.read_config(flags_of(base | settings)))


@pytest.fixture
def alone(impala: ModuleType) -> Iterator[Callable[[Any], Any]]:
    """``alone(plan)`` is a learner that has the whole batch, in a group of its own."""
    with ExitStack() as groups:

        def alone(plan: Any) -> Any:
            layout = replace(plan.layout, learners=1)
            name = f"alone-{next(_numbers)}"
            learner = impala.Learner(replace(plan, layout=layout, name=name), 0)
            groups.callback(learner.join().group.leave)
            return learner

        yield alone


def allocate(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype)


def random_batch(plan: Any, seed: int, batch: int = BATCH) -> Unroll:
    """An unroll of random games, in which a sixth of the steps end an episode."""
    generator = torch.Generator().manual_seed(seed)
    core = plan.network().initial_core(batch)
    spaces = plan.spaces
    unroll = Unroll.empty(STEPS, batch, spaces.shape, spaces.dtype, core, allocate)
    if spaces.images:
        unroll.observations.random_(0, 256, generator=generator)
    else:
        unroll.observations.normal_(generator=generator)
    shape = (STEPS, batch)
    unroll.actions.random_(0, spaces.num_actions, generator=generator)
    unroll.log_probs.copy_(-torch.rand(shape, generator=generator))
    unroll.rewards.normal_(generator=generator)
    unroll.terminal.copy_(torch.rand(shape, generator=generator) < 1 / 6)
    unroll.valid.fill_(True)
    unroll.valid[1:] = ~unroll.terminal[:-1]
    return unroll


def test_the_loss_is_the_sum_that_the_paper_writes(impala: ModuleType) -> None:
    plan = plain_plan(impala, clip_reward=0.5)
    config, network, batch = plan.config, plan.network(), random_batch(plan, 0)
    output = network(batch.observations, batch.first, batch.core)
    log_policy = F.log_softmax(output.logits, dim=-1)
    expected = 0.0
    for b in range(BATCH):
        target = output.values[STEPS, b].item()
        for t in reversed(range(STEPS)):
            value = output.values[t, b].item()
            if not batch.valid[t, b]:
                target = value
                continue
            log_prob = log_policy[t, b, batch.actions[t, b]].item()
            rho = min(1.0, np.exp(log_prob - batch.log_probs[t, b].item()))
            gamma = 0.0 if batch.terminal[t, b] else config.gamma
            reward = float(np.clip(batch.rewards[t, b].item(), -0.5, 0.5))
            after = output.values[t + 1, b].item()
            advantage = rho * (reward + gamma * target - value)
            delta = rho * (reward + gamma * after - value)
            target = value + delta + gamma * rho * (target - after)
            entropy = -(log_policy[t, b].exp() * log_policy[t, b]).sum().item()
            expected += -log_prob * advantage - config.entropy_cost * entropy
            expected += config.baseline_cost * 0.5 * (target - value) ** 2
    loss, facts = impala.impala_loss(network, batch, config)
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    assert facts["rho"] < 1.0


def test_an_unroll_is_what_happened(impala: ModuleType) -> None:
    plan = plain_plan(impala, envs_per_actor=2, unroll=40, lstm=True)
    actor, network = impala.Actor(plan, 0), plan.network()
    game, continued = gymnasium.make("CartPole-v1"), False
    first_seed = plan.seed(0, 0, 0, 0, 0)  # games, actor, half, incarnation, resumes
    for version in range(3):
        actor.adopt(version, network.state_dict())
        unroll = actor.play()
        assert unroll.version == version
        assert 0 < unroll.environment_s + unroll.inference_s < unroll.busy_s
        assert_recomputes(network, unroll)
        for t in range(unroll.steps):
            if not continued:
                observation, _ = game.reset(seed=first_seed if not version else None)
                continued = True
            np.testing.assert_array_equal(unroll.observations[t, 0], observation)
            if unroll.valid[t, 0]:
                action = int(unroll.actions[t, 0])
                observation, reward, terminated, _, _ = game.step(action)
                assert unroll.rewards[t, 0] == reward
                assert unroll.terminal[t, 0] == terminated
            else:
                observation, _ = game.reset()
                assert unroll.rewards[t, 0] == 0
                assert unroll.first[t + 1, 0]
        np.testing.assert_array_equal(unroll.observations[-1, 0], observation)


def assert_recomputes(network: Any, unroll: Unroll) -> None:
    """The network gives the recorded probabilities again, from the recorded state."""
    with torch.no_grad():
        output = network(unroll.observations, unroll.first, unroll.core)
    log_policy = F.log_softmax(output.logits[:-1], dim=-1)
    log_probs = log_policy.gather(2, unroll.actions[..., None])[..., 0]
    torch.testing.assert_close(log_probs, unroll.log_probs)


def test_an_actor_is_nicer_than_its_program_each_time_it_is_started(
    impala: ModuleType, spawn: Callable[..., Any]
) -> None:
    plan = plain_plan(impala)
    actor = spawn(moo.on(impala.Actor, restart=RESTART), plan, 0)
    expected = min(19, os.getpriority(os.PRIO_PROCESS, 0) + impala.BEHIND_LEARNERS)

    def pid() -> int:
        actor.adopt.options(retries=20).remote(0, None).get()  # it is there
        (row,) = [one for host in moo.hosts() for one in host["actors"]]
        return int(row["pid"])

    first = pid()
    assert os.getpriority(os.PRIO_PROCESS, first) == expected
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: pid() != first)
    assert os.getpriority(os.PRIO_PROCESS, pid()) == expected


def test_games_differ_between_actors_their_halves_and_their_incarnations(
    impala: ModuleType, spawn: Callable[..., Any]
) -> None:
    plan = plain_plan(impala)
    supply = spawn(Supply, 8)
    born = [impala.Actor(plan, index, supply) for index in (0, 1, 0)]
    born.append(impala.Actor(replace(plan, resumes=1), 2, supply))
    starts = [
        tuple(game)
        for actor in born
        for half in actor.halves
        for game in half.observations
    ]
    assert len(set(starts)) == len(starts) == 4 * plan.layout.envs_per_actor


@pytest.mark.slow
def test_two_learners_equal_one_with_the_doubled_batch(
    impala: ModuleType, spawn: Callable[..., Any], alone: Callable[[Any], Any]
) -> None:
    settings = {"optimizer": "rmsprop", "total_steps": 10_000, "deterministic": True}
    plan = plain_plan(impala, **settings)
    pair = [spawn(impala.Learner, plan, rank) for rank in range(2)]
    single = alone(plan)
    half = BATCH // 2
    for update in range(4):
        batch = random_batch(plan, update)
        parts = batch.columns(0, half), batch.columns(half, BATCH)
        calls = zip(pair, parts, strict=True)
        moo.get([moo.submit(learner.learn, part) for learner, part in calls])
        single.learn(batch)
        weights = moo.get([moo.submit(learner.weights) for learner in pair])
        assert fingerprint(weights[0]) == fingerprint(weights[1])
        for name, value in single.weights().items():
            torch.testing.assert_close(weights[0][name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_a_learner_goes_on_from_its_state(
    impala: ModuleType, alone: Callable[[Any], Any], optimizer: str
) -> None:
    plan = plain_plan(impala, optimizer=optimizer, total_steps=10_000)
    learner = alone(plan)
    for update in range(3):
        learner.learn(random_batch(plan, update))
    other = impala.Learner(replace(plan, name="other", layout=learner.plan.layout), 0)
    other.load(deepcopy(learner.state()))  # as a checkpoint would
    for each in (learner, other):
        each.learn(random_batch(plan, 9))
    assert fingerprint(learner.weights()) == fingerprint(other.weights())
    assert (other.version, other.steps) == (4, 4 * BATCH * plan.config.unroll)
    other.join().group.leave()


def test_a_learner_refuses_to_begin_anew_when_all_others_are_gone(
    impala: ModuleType, alone: Callable[[Any], Any]
) -> None:
    with pytest.raises(AllLearnersLost, match="of update 3 are lost; --resume goes"):
        alone(plain_plan(impala)).train(3, 4)


def test_a_virtual_batch_is_the_sum_of_several_batches(
    impala: ModuleType, alone: Callable[[Any], Any]
) -> None:
    one = alone(plain_plan(impala, batch=2 * BATCH))
    two = alone(plain_plan(impala, virtual_batch_size=2 * BATCH))
    batch = random_batch(one.plan, 0, 2 * BATCH)
    one.learn(batch)
    two.learn(batch.columns(0, BATCH))
    assert (one.version, two.version) == (1, 0)
    two.learn(batch.columns(BATCH, 2 * BATCH))
    assert (one.version, two.version) == (1, 1)
    assert one.steps == two.steps == 2 * BATCH * STEPS
    for name, value in one.weights().items():
        torch.testing.assert_close(two.weights()[name], value, rtol=1e-4, atol=1e-5)


def test_the_learning_rate_falls_to_zero(
    impala: ModuleType, alone: Callable[[Any], Any]
) -> None:
    plan = plain_plan(impala, total_steps=4 * STEPS * BATCH, lr=1e-3)
    learner = alone(plan)
    for _ in range(5):
        learner.learn(random_batch(plan, 0))
    rates = learner.meter.values("lr").tolist()
    assert rates == pytest.approx([1e-3, 7.5e-4, 5e-4, 2.5e-4, 0.0])


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_a_gradient_that_is_not_finite_changes_nothing_and_ends_the_run(
    impala: ModuleType, alone: Callable[[Any], Any], optimizer: str
) -> None:
    plan = plain_plan(impala, optimizer=optimizer)
    learner = alone(plan)
    bad = random_batch(plan, 1)
    bad.rewards[2, 3] = torch.nan
    for batch in (random_batch(plan, 0), bad, random_batch(plan, 2)):
        if batch is bad:  # and the next one, which is finite, changes nothing, either
            before = deepcopy(learner.state())
        learner.learn(batch)
    after = learner.state()
    assert fingerprint(after["network"]) == fingerprint(before["network"])
    torch.testing.assert_close(
        after["optimizer"]["state"], before["optimizer"]["state"], rtol=0, atol=0
    )
    with pytest.raises(FloatingPointError, match="the gradient of update 2 is not"):
        learner._report()


def test_a_gradient_is_clipped_to_a_norm_unless_that_is_0(
    impala: ModuleType, alone: Callable[[Any], Any]
) -> None:
    norms: list[Tensor] = []
    for clip_norm in (0.0, 1.0, 1e9):
        plan = plain_plan(impala, clip_norm=clip_norm)
        learner = alone(plan)
        parameters = list(learner.network.parameters())
        learner.optimizer.register_step_pre_hook(
            lambda *_, own=parameters: norms.append(
                torch.nn.utils.get_total_norm([one.grad for one in own])
            )
        )
        learner.learn(random_batch(plan, 0))
    network = plan.network()
    impala.impala_loss(network, random_batch(plan, 0), plan.config)[0].backward()
    whole = torch.nn.utils.get_total_norm([one.grad for one in network.parameters()])
    assert norms[0].item() == pytest.approx(whole.item(), rel=1e-4)
    assert norms[1] == pytest.approx(1.0)
    assert norms[0] == norms[2] == learner.meter.values("grad_norm")[0] > 1.0


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"batch": 1}, "--batch 1 is too small for 2 learners"),
        ({"virtual_batch_size": 12}, "--virtual-batch-size 12: it must be a multiple"),
        ({"lr": float("nan")}, "--lr nan: it must be at least 0"),
        ({"env": "Pendulum-v1"}, "--env Pendulum-v1: only discrete actions"),
        ({"env": "ALE/Brakeout-v5"}, "--env ALE/Brakeout-v5: .*Breakout"),
        ({"env": "tests.examples.odd_envs:Tiny-v0"}, "Tiny-v0: .*7"),
        ({"env": "tests.examples.odd_envs:Float-v0"}, "Float-v0: .*float"),
    ],
)
def test_plans_that_cannot_work_are_refused(
    impala: ModuleType, wrong: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason) as caught:
        plain_plan(impala, **wrong)
    assert len(str(caught.value).splitlines()) == 1
