# SPDX-License-Identifier: MIT
"""IMPALA on Atari: actors that play, learners that learn, and nothing in between.

    python examples/impala_atari.py                        # Breakout on this machine
    python examples/impala_atari.py --env ALE/Pong-v5 --total-steps 7000000 --eval
    python examples/impala_atari.py --env CartPole-v1 --total-steps 600000
    python examples/impala_atari.py --help

The picture, for two actors and two learners:

    Actor 0  ── unrolls ──▶ ┌────────┐ ── unrolls ──▶ Learner 0  ┐ gradients: allreduce
    Actor 1  ◀── weights ── │ Supply │ ◀── weights ── Learner 1  ┘ by `moo.LearnerGroup`
                            └────────┘

Each actor steps a batch of environments in two halves: while the C++ threads of ale-py
emulate one half, the policy chooses actions for the other. The supply keeps a bounded
number of calls in flight to all actors and hands what they played to whichever learner
asks; only Refs pass through it, the unrolls themselves go from actor to learner through
shared memory. An actor begins each unroll with the newest weights. The learners add up
their gradients and so stay identical to the last bit, which is checked with every
report.

What is learned does not depend on the machine: the update, its batch and what is in
flight are the same on 2 cores and on 64; a larger machine is only faster.

This program starts them, asks the learners for some updates at a time, and writes down
what they report.
"""

from __future__ import annotations

import importlib.util
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
import tyro
from torch import Tensor
from torch.nn import functional as F

import mooactor as moo
from mooactor.rl import (
    ActorCritic,
    Camera,
    Display,
    EnvironmentFailed,
    Environments,
    Episode,
    Half,
    Meter,
    ModelName,
    Player,
    RunLog,
    Supply,
    Unroll,
    UnrollBuffer,
    approximate_kl,
    atari_game,
    bootstrap_interval,
    explained_variance,
    film_game,
    fingerprint,
    flatten_gradients,
    holds_run,
    interrupts,
    load_checkpoint,
    make_environments,
    make_network,
    play_games,
    save_checkpoint,
    vtrace,
)

Weights = dict[str, Tensor]
Row = dict[str, Any]

RECENT_GAMES = 100  # the return in reports is the mean of so many finished games
REPORT_PERIOD_S = 1.0
DETERMINISTIC_UPDATES = 10  # per report, where the clock must not decide
GAUGE_PERIOD_S = 3.0
BEHIND_LEARNERS = 10  # how much nicer actors are where all cores are busy
SUMMED = ("loss", "policy_loss", "value_loss")  # over learners
AVERAGED = (
    *("loss_mean", "policy_loss_mean", "value_loss_mean", "entropy"),
    *("rho", "clipped_rho", "approx_kl", "explained_variance", "grad_norm", "lr"),
    *("policy_lag", "queue"),
    *("actor_busy", "environment_share", "inference_share"),
    *("learner_busy", "allreduce_share"),
)
# What a checkpoint and a resume must agree on; with --deterministic, on all but these.
FIXED = ("env", "model", "lstm", "optimizer", "all_actions")
FREE = ("total_steps", "run_dir", "device", "resume", "checkpoint_every_s", "eval")
FREE += ("eval_games", "record", "ceiling")
FORMAT = 2  # of checkpoints
COUNTS = ("steps", "played", "games", "dropped", "lost_calls")  # kept in checkpoints
ADVICE = {
    EnvironmentFailed: "--restart-environments goes on without it",
    FloatingPointError: "the last checkpoint is from before it",
}
# The least that a number may be.
LEAST = {
    "total_steps": 1,
    "actors": 1,
    "learners": 1,
    "envs_per_actor": 1,
    "unroll": 1,
    "batch": 1,
    "lag": 1,
    "eval_games": 1,
    **dict.fromkeys(("seed", "lr", "gamma", "entropy_cost", "baseline_cost"), 0),
    **dict.fromkeys(("clip_norm", "clip_reward", "sticky", "max_lag"), 0),
    "checkpoint_every_s": 0,
}
MOST = {"gamma": 1, "sticky": 1}


# --- Settings -------------------------------------------------------------------------


@dataclass(frozen=True)
class Config:
    """IMPALA with mooactor actors, on this machine."""

    env: str = "ALE/Breakout-v5"
    """Any ALE game by its usual id, or any Gymnasium environment that observes a box or
    an image and takes discrete actions. Preprocessing of ALE games is the same whatever
    the id: 84x84 grey, 4 frames skipped and stacked, up to 30 no-ops at the start."""
    total_steps: int = 1_200_000
    """Agent steps to train for, over all environments. One step of an ALE game is four
    emulator frames."""
    seed: int = 1
    """Seeds the networks, the environments and the choice of actions."""
    run_dir: Path | None = None
    """Where metrics, curve, checkpoint and recording go. Default: runs/ENV-TIME."""

    actors: int | None = None
    """Processes that step environments. Default: one per core, at most as many as
    unrolls may be in flight."""
    learners: int | None = None
    """Processes that learn and average gradients. Default: one per GPU, or without GPU
    one per four cores, at most one per two unrolls of the batch, which they share
    evenly."""
    envs_per_actor: int | None = None
    """Environments in each actor, stepped in two halves where the number is even.
    Default: four for each unroll in the batch, shared among the actors, at most 16."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where learners compute. Actors always choose actions on the CPU."""

    model: ModelName = "auto"
    """Network: shallow and deep are those of the IMPALA paper, mlp is for vectors; auto
    takes shallow for images and mlp for all else."""
    lstm: bool = False
    """Put an LSTM between the network's body and its heads."""

    unroll: int = 20
    """Steps T of each environment in one unroll."""
    batch: int = 8
    """Unrolls (of one environment each) in one update, over all learners together."""
    optimizer: Literal["auto", "rmsprop", "adam"] = "auto"
    """rmsprop (decay 0.99, eps 0.01 outside the root) or adam; auto takes rmsprop for
    images and adam for all else."""
    lr: float | None = None
    """Learning rate at the start; it falls to 0 linearly over --total-steps. Default:
    6e-4 for rmsprop, 2e-3 for adam."""
    gamma: float = 0.99
    """Discount of future rewards."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus."""
    baseline_cost: float = 0.5
    """Weight of the value loss, which is half the squared error."""
    clip_norm: float = 40.0
    """Largest norm of the summed gradient."""
    clip_reward: float = 1.0
    """Rewards are clipped to plus or minus this for learning; 0 leaves them alone.
    Reported returns are never clipped."""
    life_loss_ends: bool = True
    """Let a lost life end the return in the loss, though the game goes on. Reported
    returns are those of full games."""
    sticky: float = 0.0
    """Chance that an ALE game repeats the last action instead of the chosen one."""
    all_actions: bool = False
    """Give ALE games all 18 actions instead of those that matter in the game."""

    restart_environments: bool = False
    """Make an environment anew that raises, or whose observation or reward is not
    finite, and go on. Otherwise the run ends, and says which it was."""

    lag: int = 8
    """Updates of policy lag to allow for: at most lag times batch unrolls are in flight
    from the actors to the learners."""
    max_lag: int = 50
    """Unrolls older than this many updates, as those of an actor that was stopped for a
    while, are dropped, and counted."""
    deterministic: bool = False
    """One call in flight and a fixed order: the same seed gives the same curve."""

    resume: bool = False
    """Go on from the newest checkpoint in --run-dir. With --deterministic the games are
    played again up to where they were, and the metrics are those of one whole run."""
    checkpoint_every_s: float = 60.0
    """Seconds between checkpoints, of which the last three are kept. The end, and
    Ctrl-C, always save one."""
    eval: bool = False
    """After training, play full games with sampled actions and fresh seeds, and beside
    them a random policy. With --resume on a finished run nothing else happens."""
    eval_games: int = 30
    """Games to play for --eval, by each of the two policies."""
    record: bool = False
    """After training, record one game to game.gif in the run directory. Games that are
    not of ALE need pygame for it."""
    ceiling: bool = False
    """Before training, measure what stepping, inference and learning cost on one core,
    and a loop in a single process; afterwards, say how much of the ideal that was."""


@dataclass(frozen=True)
class Plan:
    """The settings with every default decided for this machine and environment."""

    config: Config
    name: str
    cores: int
    actors: int
    learners: int
    envs_per_actor: int
    device: str
    optimizer: str
    lr: float
    shape: tuple[int, ...]
    dtype: torch.dtype
    num_actions: int
    frames_per_step: int
    resumes: int = 0  # how often this run was resumed: other games each time

    @property
    def local_batch(self) -> int:
        """Unrolls in each learner's part of an update."""
        return self.config.batch // self.learners

    @property
    def evaluators(self) -> int:
        return min(self.actors, self.config.eval_games)

    @property
    def steps_per_update(self) -> int:
        return self.config.batch * self.config.unroll

    @property
    def in_flight(self) -> int:
        """Calls to actors whose unrolls no learner has taken yet, at most."""
        return self.config.lag * self.config.batch // self.envs_per_actor

    def network(self) -> ActorCritic:
        """A network of this plan, the same for the same seed in every process."""
        torch.manual_seed(self.config.seed)
        lstm = self.config.lstm
        return make_network(self.config.model, self.shape, self.num_actions, lstm=lstm)

    def seed(self, *path: int) -> int:
        """A seed of its own for each path; a million may be counted on from it."""
        sequence = np.random.SeedSequence([self.config.seed, *path])
        return int(sequence.generate_state(1)[0]) >> 2

    def environments(self, num_envs: int, threads: int = 1) -> Environments:
        return make_environments(
            self.config.env,
            num_envs,
            threads=threads,
            sticky=self.config.sticky,
            all_actions=self.config.all_actions,
            restart=self.config.restart_environments,
        )


def make_plan(config: Config) -> Plan:
    """Decide what the settings leave open, and refuse what cannot work."""
    check_numbers(config)
    cores = len(os.sched_getaffinity(0))
    gpus = torch.cuda.device_count() if config.device != "cpu" else 0
    if config.device == "cuda" and not gpus:
        raise SystemExit("--device cuda, but torch sees no GPU here")
    probe = probe_environment(config)
    images = len(probe.observation_shape) == 3
    optimizer = config.optimizer
    if optimizer == "auto":
        optimizer = "rmsprop" if images else "adam"
    default_lr = 6e-4 if optimizer == "rmsprop" else 2e-3
    most = config.lag * config.batch
    actors = config.actors or min(cores, most)
    plan = Plan(
        config=config,
        name=f"impala-{os.getpid()}",
        cores=cores,
        actors=actors,
        learners=config.learners
        or divisor(config.batch, gpus or max(1, min(cores // 4, config.batch // 2))),
        envs_per_actor=config.envs_per_actor
        or min(16, most, max(1, 4 * config.batch // actors)),
        device="cuda" if gpus else "cpu",
        optimizer=optimizer,
        lr=default_lr if config.lr is None else config.lr,
        shape=probe.observation_shape,
        dtype=torch.uint8 if images else torch.float32,
        num_actions=probe.num_actions,
        frames_per_step=4 if atari_game(config.env) else 1,
    )
    check_plan(plan)
    return plan


def check_numbers(config: Config) -> None:
    """Refuse numbers that mean nothing."""
    for name, least in LEAST.items():
        value, most = getattr(config, name), MOST.get(name, math.inf)
        if value is not None and not least <= value <= most:
            limits = f"at least {least}" if most == math.inf else f"{least} to {most}"
            raise SystemExit(f"{flag(name)} {value}: it must be {limits}")


def check_plan(plan: Plan) -> None:
    """Refuse numbers that do not go together, and networks that cannot be built."""
    config = plan.config
    if config.batch % plan.learners:
        raise SystemExit(
            f"--batch {config.batch} does not split over {plan.learners} learners"
        )
    if config.lag > config.max_lag:
        raise SystemExit(
            f"--lag {config.lag} with --max-lag {config.max_lag}: what is played would "
            "be dropped"
        )
    if not plan.in_flight:
        raise SystemExit(
            f"--envs-per-actor {plan.envs_per_actor}: one call brings more than the "
            f"{config.lag * config.batch} unrolls that may be in flight; raise --batch "
            "or --lag"
        )
    if config.deterministic and plan.actors < plan.learners:
        raise SystemExit(
            f"--deterministic: {plan.learners} learners need at least as many actors"
        )
    try:
        plan.network()
    except ValueError as error:
        raise SystemExit(f"--env {config.env}: {error}") from error


def probe_environment(config: Config) -> Environments:
    """One environment, closed: it knows shapes and actions. Else, why there is none."""
    try:
        probe = make_environments(config.env, 1, all_actions=config.all_actions)
    except (ValueError, ImportError, EnvironmentFailed, gymnasium.error.Error) as error:
        raise SystemExit(f"--env {config.env}: {error}") from error
    probe.close()
    return probe


def divisor(number: int, most: int) -> int:
    """The largest divisor of ``number`` that is at most ``most``."""
    return max(d for d in range(1, number + 1) if number % d == 0 and d <= most)


# --- Acting ---------------------------------------------------------------------------


@moo.actor
class Actor:
    """Plays its environments, each unroll with the newest weights."""

    def __init__(self, plan: Plan, index: int, supply: Any = None) -> None:
        self.plan = plan
        self.supply = supply
        self.network = plan.network()
        born = moo.submit(supply.enlist, index).get() if supply is not None else 0
        sizes = divide(plan.envs_per_actor)
        self.halves = [
            self._make_half((index, side, born, plan.resumes), sum(sizes[:side]), size)
            for side, size in enumerate(sizes)
        ]
        self.version = -1
        self.finished_at = time.perf_counter()

    def _make_half(self, path: tuple[int, ...], start: int, size: int) -> Half:
        config = self.plan.config
        return Half(
            self.plan.environments(size),
            Player(self.network, self.plan.num_actions, size, self.plan.seed(1, *path)),
            slice(start, start + size),
            self.plan.seed(0, *path),
            life_loss_ends=config.life_loss_ends,
            keep_actions=config.deterministic,
        )

    def on_start(self) -> None:
        """Let learners run first: what is played then never waits, and ages little."""
        for thread in os.listdir("/proc/self/task"):  # those of the emulators, too
            os.setpriority(os.PRIO_PROCESS, int(thread), BEHIND_LEARNERS)

    def unroll(self, version: int | None = None) -> Unroll:
        """Play with the newest weights, or with those of ``version``."""
        started = time.perf_counter()
        found = moo.submit(self.supply.weights, self.version, version).get()
        self.adopt(*found)
        return self.play(started)

    def adopt(self, version: int, weights: Weights | None) -> None:
        """Use ``weights`` from now on, where they lie, in shared memory."""
        if weights is not None:
            self.network.load_state_dict(weights, assign=True)
        self.version = version

    def play(self, started: float | None = None) -> Unroll:
        """T steps in every environment."""
        started = started or time.perf_counter()
        unroll = self._empty_unroll()
        for row in range(unroll.steps + 1):
            for half in self.halves:
                if row > 0:
                    half.receive(unroll, row - 1)
                half.observe(unroll, row)
                if row < unroll.steps:
                    half.send(unroll, row)
        self._account(unroll, started)
        return unroll

    def _empty_unroll(self) -> Unroll:
        """Observations ``[T+1, B, …]`` in shared memory; B are all its environments."""
        unroll = Unroll.empty(
            self.plan.config.unroll,
            self.plan.envs_per_actor,
            self.plan.shape,
            self.plan.dtype,
            torch.cat([half.player.core for half in self.halves], dim=1),
            moo.empty,
        )
        unroll.version = self.version
        return unroll

    def _account(self, unroll: Unroll, started: float) -> None:
        """Where the time went since the end of the unroll before."""
        unroll.idle_s = started - self.finished_at
        self.finished_at = time.perf_counter()
        unroll.busy_s = self.finished_at - started

    def state(self) -> list[dict[str, Any]]:
        """Where its games and its choices stand, with --deterministic."""
        return [half.state() for half in self.halves]

    def load(self, state: list[dict[str, Any]]) -> None:
        """Go on from there."""
        for half, saved in zip(self.halves, state, strict=True):
            half.load(saved)


def divide(count: int) -> list[int]:
    """Two halves, or one part where there are no halves."""
    return [count] if count % 2 else [count // 2] * 2


# --- Learning -------------------------------------------------------------------------


def impala_loss(
    network: ActorCritic, batch: Unroll, config: Config
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of IMPALA, summed over T and B, and what to report about it, as 0-d
    tensors: nothing here waits for a GPU.

    Steps under next-step autoreset that took no action weigh nothing. ``rho`` is the
    mean clipped importance weight, ``clipped_rho`` the share that was clipped.
    """
    output = network(batch.observations, batch.first, batch.core)
    log_policy = F.log_softmax(output.logits[:-1], dim=-1)
    log_probs = log_policy.gather(2, batch.actions[..., None])[..., 0]
    values = output.values[:-1]
    rewards = batch.rewards
    if config.clip_reward > 0:
        rewards = rewards.clamp(-config.clip_reward, config.clip_reward)
    traced = vtrace(
        log_probs.detach() - batch.log_probs,
        config.gamma * (~batch.terminal).float(),
        rewards,
        values.detach(),
        output.values[-1].detach(),
        valid=batch.valid,
    )
    valid = batch.valid.float()
    policy_loss = -(log_probs * traced.advantages * valid).sum()
    value_loss = 0.5 * ((traced.targets - values).square() * valid).sum()
    entropy = -((log_policy.exp() * log_policy).sum(dim=-1) * valid).sum()
    loss = (
        policy_loss + config.baseline_cost * value_loss - config.entropy_cost * entropy
    )
    with torch.no_grad():
        count = valid.sum()
        log_ratio = log_probs - batch.log_probs
        facts = {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss}
        facts |= {f"{name}_mean": value / count for name, value in facts.items()}
        facts |= {
            "entropy": entropy / count,
            "rho": (traced.rhos * valid).sum() / count,
            "clipped_rho": ((log_ratio > 0) * valid).sum() / count,
            "approx_kl": approximate_kl(log_ratio, batch.valid),
            "explained_variance": explained_variance(
                values, traced.targets, batch.valid
            ),
        }
    return loss, {name: value.detach() for name, value in facts.items()}


@dataclass
class Report:
    """What one learner did in some updates: means, games, counts and a fingerprint."""

    version: int
    steps: int
    means: dict[str, float]
    lag_max: int
    episodes: list[Episode]
    digest: str
    played: int
    dropped: int
    lost_calls: int


@moo.actor
class Learner:
    """Learns from unrolls of the supply, in step with all other learners."""

    def __init__(self, plan: Plan, index: int, supply: Any = None) -> None:
        self.plan = plan
        self.index = index
        self.supply = supply
        self.device = torch.device(plan.device)  # it sees no other GPU than its own
        self.network = plan.network().to(self.device)
        self.optimizer = make_optimizer(plan, self.network)
        self.gradients = flatten_gradients(self.network, moo.empty)
        self.buffer = UnrollBuffer()
        self.pieces: deque[Unroll] = deque()
        self.group: Any = None
        self.version = 0
        self.steps = 0
        self.lost_calls = 0
        self._begin_report()

    def _begin_report(self) -> None:
        self.meter = Meter()
        self.episodes: list[Episode] = []
        self.lag_max = 0
        self.played = 0
        self.dropped = 0

    def join(self) -> None:
        """Wait until all learners are here, and publish the first weights.

        One alone has nobody to wait for.
        """
        if self.plan.learners > 1:
            self.group = moo.LearnerGroup(self.plan.name, min_size=self.plan.learners)
        self._publish()

    def train(self, updates: int) -> Report:
        """Make ``updates`` updates, each together with all other learners."""
        for _ in range(updates):
            started = time.perf_counter()
            batch = self._next_batch()
            taken = time.perf_counter()
            facts, reducing_s = self.learn(batch)
            self._publish()
            elapsed_s = time.perf_counter() - started
            waited_s = taken - started + reducing_s
            self.meter.add(facts)
            self.meter.add({"learner_busy": 1 - waited_s / elapsed_s})
            self.meter.add({"allreduce_share": reducing_s / elapsed_s})
        return self._report()

    def learn(self, batch: Unroll) -> tuple[dict[str, Any], float]:
        """One update from ``batch`` and what the other learners bring to it.

        Returns what to report about it, and the seconds spent on the allreduce. A
        gradient that is not finite changes nothing, and ends the run with the report.
        """
        lr = self.plan.lr * max(0.0, 1 - self.steps / self.plan.config.total_steps)
        for settings in self.optimizer.param_groups:
            settings["lr"] = lr
        self.gradients.zero_()
        loss, facts = impala_loss(self.network, batch, self.plan.config)
        loss.backward()  # type: ignore[no-untyped-call]
        reducing_s = self._sum_gradients()
        norm = self.gradients.norm()
        self.gradients.mul_((self.plan.config.clip_norm / norm).clamp(max=1.0))
        self.gradients.masked_fill_(~norm.isfinite(), 0.0)
        self.optimizer.step()
        self.version += 1
        self.steps += self.plan.steps_per_update
        return facts | {"grad_norm": norm, "lr": lr}, reducing_s

    def _sum_gradients(self) -> float:
        started = time.perf_counter()
        if self.group is not None:
            self.group.allreduce([self.gradients], op="sum").wait()
        return time.perf_counter() - started

    def weights(self) -> Weights:
        """The parameters, contiguous and on the CPU."""
        state = self.network.state_dict()
        return {name: value.cpu().contiguous() for name, value in state.items()}

    def state(self) -> dict[str, Any]:
        """All that `load` needs to go on from here; the same for all learners."""
        return {
            "network": self.weights(),
            "optimizer": self.optimizer.state_dict(),
            "version": self.version,
            "steps": self.steps,
        }

    def kept(self) -> list[dict[str, Any]]:
        """What it took and has not learned from yet, with --deterministic."""
        return [as_state(piece) for piece in self.pieces]

    def load(self, state: dict[str, Any], kept: Sequence[dict[str, Any]] = ()) -> None:
        """Take over parameters, optimizer and counts of a checkpoint."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.version = state["version"]
        self.steps = state["steps"]
        self.pieces.extend(map(from_state, kept))

    def _next_batch(self) -> Unroll:
        """This learner's part of the next update, ``[T, local batch]``."""
        wanted = self.plan.local_batch
        taken: list[Unroll] = []
        while wanted:
            if not self.pieces:
                self._receive()
                continue
            piece = self.pieces.popleft()
            if self._too_old(piece):
                continue
            if piece.batch > wanted:
                self.pieces.appendleft(piece.columns(wanted, piece.batch))
                piece = piece.columns(0, wanted)
            taken.append(piece)
            wanted -= piece.batch
        return self.buffer.fill(taken, self.device)

    def _receive(self) -> None:
        taken = moo.submit(self.supply.take, self.index, self.version).get()
        unroll: Unroll = taken.unroll[0].get()
        self.episodes += unroll.episodes
        self.played += unroll.batch * unroll.steps
        self.lost_calls = taken.lost
        self.meter.add(
            {
                "queue": taken.ready,
                "actor_busy": unroll.busy_s / (unroll.busy_s + unroll.idle_s),
                "environment_share": unroll.environment_s / unroll.busy_s,
                "inference_share": unroll.inference_s / unroll.busy_s,
            }
        )
        self.pieces.append(unroll)

    def _too_old(self, piece: Unroll) -> bool:
        lag = self.version - piece.version
        if lag > self.plan.config.max_lag:
            self.dropped += piece.batch
            return True
        self.meter.add({"policy_lag": lag})
        self.lag_max = max(self.lag_max, lag)
        return False

    def _publish(self) -> None:
        if self.index == 0 and self.supply is not None:
            self.supply.publish.tell(self.version, self.weights())

    def _report(self) -> Report:
        norms = self.meter.values("grad_norm")
        if not norms.isfinite().all():
            first = self.version - len(norms) + int((~norms.isfinite()).nonzero()[0])
            raise FloatingPointError(
                f"the gradient of update {first + 1} is not finite; the weights are as "
                "they were before it. Lower --lr, or look at the loss before it"
            )
        report = Report(
            version=self.version,
            steps=self.steps,
            means=self.meter.means(),
            lag_max=self.lag_max,
            episodes=self.episodes,
            digest=fingerprint(self.weights()),
            played=self.played,
            dropped=self.dropped,
            lost_calls=self.lost_calls,
        )
        self._begin_report()
        return report


def as_state(unroll: Unroll) -> dict[str, Any]:
    """An unroll as tensors and plain values, for a checkpoint."""
    state = {entry.name: getattr(unroll, entry.name) for entry in fields(unroll)}
    return state | {"episodes": [tuple(game) for game in unroll.episodes]}


def from_state(state: dict[str, Any]) -> Unroll:
    episodes = [Episode(*game) for game in state["episodes"]]
    return Unroll(**(state | {"episodes": episodes}))


def make_optimizer(plan: Plan, network: ActorCritic) -> torch.optim.Optimizer:
    """RMSProp adds eps outside the root in torch, as TorchBeast and Cleanba do."""
    if plan.optimizer == "adam":
        return torch.optim.Adam(network.parameters(), plan.lr)
    return torch.optim.RMSprop(network.parameters(), plan.lr, alpha=0.99, eps=0.01)


# --- Playing to be judged, or watched -------------------------------------------------


def make_player(
    plan: Plan, weights: Weights | None, num_envs: int, seed: int
) -> Player:
    """A player with these weights, or one that plays at random without."""
    network = None
    if weights is not None:
        network = plan.network()
        network.load_state_dict(weights)
    return Player(network, plan.num_actions, num_envs, seed)


@moo.actor
class Evaluator:
    """Plays full games, with seeds that no training environment has."""

    def play(self, plan: Plan, index: int, weights: Weights | None) -> list[Episode]:
        """Play this evaluator's share of ``--eval-games`` with sampled actions."""
        share = len(range(index, plan.config.eval_games, plan.evaluators))
        seed = plan.seed(2, index)
        player = make_player(plan, weights, share, seed)
        return play_games(plan.environments(share), player, seed)


def evaluate(plan: Plan, weights: Weights | None) -> list[float]:
    """The unclipped scores of ``--eval-games`` full games."""
    evaluators = [moo.spawn(Evaluator) for _ in range(plan.evaluators)]
    calls = [
        moo.submit(evaluator.play, plan, index, weights)
        for index, evaluator in enumerate(evaluators)
    ]
    scores = [game.score for games in moo.get(calls) for game in games]
    for evaluator in evaluators:
        moo.stop(evaluator)
    return scores


def print_evaluation(plan: Plan, weights: Weights) -> None:
    for name, chosen in (("trained policy", weights), ("random policy", None)):
        scores = evaluate(plan, chosen)
        interval = bootstrap_interval(scores)
        print(f"{name}: return {interval} over {len(scores)} full games", flush=True)


def record_game(plan: Plan, weights: Weights, path: Path) -> None:
    """Play one game and save it as a GIF, at the speed it is played at."""
    import imageio

    config, seed = plan.config, plan.seed(3)
    camera = Camera(config.env, sticky=config.sticky, all_actions=config.all_actions)
    player = make_player(plan, weights, 1, seed)
    pictures: list[Any] = film_game(plan.environments(1), camera, player, seed)
    imageio.mimsave(path, pictures, duration=1000 * plan.frames_per_step / 60, loop=0)
    print(f"recorded {path}", flush=True)


def check_recording(config: Config) -> None:
    """Refuse --record before training where no game could be drawn after it."""
    if importlib.util.find_spec("imageio") is None:
        raise SystemExit("--record needs imageio: pip install imageio")
    camera = Camera(config.env)
    try:
        camera.reset(config.seed)
    except (ModuleNotFoundError, RuntimeError, gymnasium.error.Error) as error:
        raise SystemExit(f"--record: {config.env} cannot be drawn: {error}") from error
    finally:
        camera.close()


# --- What this machine can do ---------------------------------------------------------


@dataclass(frozen=True)
class Ceiling:
    """Seconds per agent step on one core for each part of the work, and the rate of a
    plain loop in one process that uses all cores for emulation and for torch."""

    environment_s: float
    inference_s: float
    learning_s: float
    cores: int
    loop_steps_per_s: float

    @property
    def steps_per_s(self) -> float:
        """The ideal: all cores always at this work, and at nothing else."""
        return self.cores / (self.environment_s + self.inference_s + self.learning_s)

    def __str__(self) -> str:
        return (
            f"ideal {self.steps_per_s:,.0f} steps/s = {self.cores} cores / "
            f"({self.environment_s * 1e6:.0f} us environment + "
            f"{self.inference_s * 1e6:.0f} us inference + "
            f"{self.learning_s * 1e6:.0f} us learning); "
            f"a loop in one process reaches {self.loop_steps_per_s:,.0f}"
        )


@moo.actor
class Gauge:
    """Measures a `Ceiling`, in a process of its own."""

    def measure(self, plan: Plan) -> Ceiling:
        return measure_ceiling(plan)


def measure_ceiling(plan: Plan) -> Ceiling:
    """Time each part alone on one core, then all of them in a plain loop."""
    actor = Actor(plan, 0)
    learner = Learner(replace(plan, learners=1), 0)
    actor.adopt(0, learner.weights())
    unroll = actor.play()
    half = actor.halves[0]
    size = half.environments.num_envs
    local = min(plan.local_batch, unroll.batch)
    batch = unroll.columns(0, local).to(learner.device)
    actions = np.zeros(size, np.int64)

    def step() -> None:
        half.environments.send(actions)
        half.observations = half.environments.recv().observations

    def infer() -> None:
        half.player.choose(half.observations, half.first)

    def learn() -> None:
        learner.learn(batch)

    def loop() -> None:
        actor.adopt(learner.version, learner.weights())
        played = actor.play()
        for start in range(0, played.batch - played.batch % local, local):
            columns = played.columns(start, start + local)
            learner.learn(learner.buffer.fill([columns], learner.device))

    parts = seconds_per(step) / size, seconds_per(infer) / size
    learning_s = seconds_per(learn) / (local * unroll.steps)
    loop_s = []
    for threads in (1, plan.cores):  # which is better depends on the machine's load
        torch.set_num_threads(threads)
        loop_s.append(seconds_per(loop) / (unroll.batch * unroll.steps))
    return Ceiling(*parts, learning_s, plan.cores, 1 / min(loop_s))


def seconds_per(work: Callable[[], None]) -> float:
    """Mean seconds of one call, over `GAUGE_PERIOD_S` after a few to warm up."""
    for _ in range(3):
        work()
    calls, started = 0, time.perf_counter()
    while time.perf_counter() - started < GAUGE_PERIOD_S:
        work()
        calls += 1
    return (time.perf_counter() - started) / calls


# --- Training: this program's own part ------------------------------------------------


@dataclass
class Workers:
    """Handles of all that works for this program."""

    supply: Any
    actors: list[Any]
    learners: list[Any]


class Training:
    """Asks the learners for updates and writes down what they report."""

    def __init__(self, plan: Plan, run_dir: Path, saved: dict[str, Any] | None) -> None:
        self.plan = plan
        self.run_dir = run_dir
        counts = saved or dict.fromkeys(COUNTS, 0) | {"recent": [], "wall_s": 0.0}
        self.steps, self.played, self.games, self.dropped, self.lost_before = (
            int(counts[name]) for name in COUNTS
        )
        self.lost_calls = self.lost_before
        recent = (Episode(*game) for game in counts["recent"])
        self.recent = deque[Episode](recent, RECENT_GAMES)
        self.trained_s: float = counts["wall_s"]
        from_step = self.steps if saved else None
        self.log = RunLog(run_dir, plan.config.env, from_step=from_step)
        self.workers = start_workers(plan, saved)
        self.updates = DETERMINISTIC_UPDATES if plan.config.deterministic else 1
        self.started_steps = self.steps
        self.started_at = self.reported_at = time.monotonic()
        self.saved_at = self.started_at

    @property
    def done(self) -> bool:
        return self.steps >= self.plan.config.total_steps

    def run(self, display: Display, interrupted: threading.Event) -> None:
        """Train to the end, or until ``interrupted``; save in either case.

        While the learners make the next updates, the last report is drawn.
        """
        row = None
        while not (self.done or interrupted.is_set()):
            count = self._next_updates()
            calls = [each.train.remote(count) for each in self.workers.learners]
            if row is not None:
                self._write(row, display)
            row = self._digest(results(calls))
            if time.monotonic() - self.saved_at > self.plan.config.checkpoint_every_s:
                self.save()
        if row is not None:
            self._write(row, display)
        self.save()
        self.log.draw()
        self.log.close()

    def save(self) -> None:
        """Write a checkpoint; the learners are between two updates."""
        counts = self.steps, self.played, self.games, self.dropped, self.lost_calls
        saved = {
            "format": FORMAT,
            "settings": settings_of(self.plan),
            "resumes": self.plan.resumes,
            "learner": self.workers.learners[0].state(),
            **dict(zip(COUNTS, counts, strict=True)),
            "recent": [tuple(game) for game in self.recent],
            "wall_s": self.wall_s(),
            "games_under_way": None,
        }
        if self.plan.config.deterministic:
            saved["games_under_way"] = games_under_way(self.workers)
        save_checkpoint(self.run_dir, saved)
        self.saved_at = time.monotonic()

    def steps_per_s(self) -> float:
        """The rate since this program began to train, all told."""
        elapsed_s = self.reported_at - self.started_at
        return (self.steps - self.started_steps) / max(elapsed_s, 1e-9)

    def wall_s(self) -> float:
        """Seconds of training so far, with those before a resume."""
        return self.trained_s + time.monotonic() - self.started_at

    def _next_updates(self) -> int:
        left = self.plan.config.total_steps - self.steps
        return min(self.updates, -(-left // self.plan.steps_per_update))

    def _digest(self, reports: list[Report]) -> Row:
        """Check that the learners agree, and merge their reports into a row."""
        if len({report.digest for report in reports}) > 1:
            raise RuntimeError(f"learners disagree after update {reports[0].version}")
        now = time.monotonic()
        elapsed_s, self.reported_at = now - self.reported_at, now
        steps, self.steps = reports[0].steps - self.steps, reports[0].steps
        episodes = [game for report in reports for game in report.episodes]
        self.recent.extend(episodes)
        self.games += len(episodes)
        self.played += sum(report.played for report in reports)
        self.dropped += sum(report.dropped for report in reports)
        self.lost_calls = self.lost_before + max(each.lost_calls for each in reports)
        self._adapt(elapsed_s)
        return self._row(reports, steps / elapsed_s)

    def _adapt(self, elapsed_s: float) -> None:
        if self.plan.config.deterministic:
            return
        wanted = self.updates * REPORT_PERIOD_S / elapsed_s
        self.updates = max(1, min(round(wanted), 2 * self.updates))

    def _row(self, reports: list[Report], steps_per_s: float) -> Row:
        return {
            "step": self.steps,
            "played": self.played,
            "frames": self.steps * self.plan.frames_per_step,
            "wall_s": round(self.wall_s(), 3),
            "steps_per_s": round(steps_per_s, 1),
            "frames_per_s": round(steps_per_s * self.plan.frames_per_step, 1),
            "episode_return": mean([game.score for game in self.recent]),
            "episode_length": mean([game.steps for game in self.recent]),
            "episodes": self.games,
            **{name: merged(name, reports) for name in (*SUMMED, *AVERAGED)},
            "policy_lag_max": max(report.lag_max for report in reports),
            "lost_calls": self.lost_calls,
            "dropped": self.dropped,
            "weights": reports[0].digest,
        }

    def _write(self, row: Row, display: Display) -> None:
        self.log.write(row)
        display.show(row)


def merged(name: str, reports: list[Report]) -> float:
    """A fact of all learners: their sum, or the mean of those that have it."""
    values = [report.means[name] for report in reports if name in report.means]
    if not values:
        return math.nan
    return float(np.sum(values) if name in SUMMED else np.mean(values))


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def results(calls: Sequence[Any]) -> list[Any]:
    """The values of all calls; the first error that comes, while others still wait."""
    for call in moo.as_completed(calls):
        call.get()
    return [call.get() for call in calls]


def start_workers(plan: Plan, saved: dict[str, Any] | None = None) -> Workers:
    """Start a supply, actors that are replaced when they die, and learners."""
    in_order = plan.config.deterministic
    supply = moo.on(Supply, name=f"{plan.name}-supply").spawn(
        plan.in_flight, plan.learners, in_order
    )
    again = moo.Restart(max=10, within=600)
    actors = [
        moo.on(Actor, name=f"{plan.name}-actor-{index}", restart=again).spawn(
            plan, index, supply
        )
        for index in range(plan.actors)
    ]
    gpus = 1 if plan.device == "cuda" else 0
    learners = [
        moo.on(Learner, name=f"{plan.name}-learner-{index}", num_gpus=gpus).spawn(
            plan, index, supply
        )
        for index in range(plan.learners)
    ]
    workers = Workers(supply, actors, learners)
    version, lanes = (saved["learner"]["version"], None) if saved else (0, None)
    if saved is not None:
        lanes = load_workers(workers, saved, in_order)
    results([each.join.remote() for each in learners])
    supply.start.remote(actors, version, lanes).get()
    return workers


def load_workers(
    workers: Workers, saved: dict[str, Any], in_order: bool
) -> list[list[tuple[int, int, Any]]] | None:
    """Give learners, and with ``in_order`` actors, the state of a checkpoint.

    Returns the unrolls that were played and not taken, for the supply.
    """
    state = moo.put(saved["learner"])
    if not in_order:
        results([each.load.remote(state) for each in workers.learners])
        return None
    games = saved["games_under_way"]
    kept = zip(workers.learners, games["kept"], strict=True)
    played = zip(workers.actors, games["actors"], strict=True)
    results(
        [each.load.remote(state, pieces) for each, pieces in kept]
        + [each.load.remote(halves) for each, halves in played]
    )
    return [
        [
            (index, version, moo.put(from_state(unroll)))
            for index, version, unroll in lane
        ]
        for lane in games["lanes"]
    ]


def games_under_way(workers: Workers) -> dict[str, Any]:
    """With --deterministic: what a resumed run needs to play exactly the same."""
    lanes = moo.submit(workers.supply.freeze).get()
    return {
        "lanes": [
            [(index, version, as_state(ref.get())) for index, version, ref in lane]
            for lane in lanes
        ],
        "kept": results([each.kept.remote() for each in workers.learners]),
        "actors": results([each.state.remote() for each in workers.actors]),
    }


def settings_of(plan: Plan) -> dict[str, Any]:
    """All that was set and decided, as plain values."""
    decided = {
        name: getattr(plan, name)
        for name in ("actors", "learners", "envs_per_actor", "optimizer", "lr")
    }
    return asdict(plan.config) | decided | {"run_dir": None}


def choose_run_dir(config: Config) -> Path:
    """Where this run goes; refuses a directory that holds another one."""
    if config.run_dir is None and config.resume:
        raise SystemExit("--resume needs --run-dir: the run to go on with")
    name = f"{config.env.removeprefix('ALE/')}-{time.strftime('%Y%m%d-%H%M%S')}"
    run_dir = config.run_dir or Path("runs") / name.replace(":", "-").replace("/", "-")
    if holds_run(run_dir) and not config.resume:
        raise SystemExit(
            f"{run_dir} holds a run already: go on with it by --resume, or choose "
            "another --run-dir"
        )
    return run_dir


def load_saved(plan: Plan, run_dir: Path) -> dict[str, Any] | None:
    """The checkpoint to go on with; refuses one that this run cannot go on with."""
    config = plan.config
    if not config.resume:
        return None
    try:
        saved = load_checkpoint(run_dir)
    except (FileNotFoundError, ValueError) as error:
        raise SystemExit(f"--resume: {error}") from error
    if saved.get("format") != FORMAT:
        raise SystemExit(f"--resume: {run_dir} is of another version of this program")
    check_settings(plan, run_dir, saved)
    if saved["steps"] >= config.total_steps and not (config.eval or config.record):
        raise SystemExit(
            f"{run_dir} has made its {saved['steps']:,} steps: raise --total-steps to "
            "go on, or add --eval or --record"
        )
    return saved


def check_settings(plan: Plan, run_dir: Path, saved: dict[str, Any]) -> None:
    """Refuse what may not change in a run that goes on, and say what has changed."""
    now, before = settings_of(plan), saved["settings"]
    if plan.config.deterministic and saved["games_under_way"] is None:
        raise SystemExit(
            f"--resume: {run_dir} was not run with --deterministic, so its games are "
            "not known; go on without that"
        )
    changed = [name for name in now if now[name] != before[name] and name not in FREE]
    fixed = set(changed if plan.config.deterministic else FIXED)
    for name in changed:
        if name in fixed:
            raise SystemExit(
                f"--resume: {run_dir} was trained with {flag(name)} {before[name]}, "
                f"not {now[name]}; give the same, or start a new run"
            )
    for name in changed:
        print(f"changed: {flag(name)} was {before[name]}, and is {now[name]}")


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def announce(plan: Plan, run_dir: Path) -> None:
    config = plan.config
    print(
        f"{config.env} on {plan.cores} cores: {plan.actors} actors of "
        f"{plan.envs_per_actor} environments, {plan.learners} learners on "
        f"{plan.device}, {config.model} network for {plan.shape}, {plan.optimizer} "
        f"with learning rate {plan.lr:g}, {config.batch} unrolls of {config.unroll} "
        f"steps in an update and at most {config.lag * config.batch} in flight, "
        f"seed {config.seed}, "
        f"load average {os.getloadavg()[0]:.2f}; everything goes to {run_dir}",
        flush=True,
    )


def train(
    plan: Plan, run_dir: Path, saved: dict[str, Any] | None, ceiling: Ceiling | None
) -> Weights:
    """Train until done or interrupted, say how it went, and return the weights."""
    training = Training(plan, run_dir, saved)
    title = f"IMPALA on {plan.config.env}"
    with (
        Display(title, plan.config.total_steps) as display,
        interrupts() as interrupted,
    ):
        try:
            training.run(display, interrupted)
        except (EnvironmentFailed, FloatingPointError) as error:
            raise SystemExit(f"{error}\n{ADVICE[type(error)]}") from error
    rate = training.steps_per_s()
    print(
        f"{training.steps:,} steps ({training.steps * plan.frames_per_step:,} frames) "
        f"in {training.wall_s():,.0f} s, "
        f"{rate:,.0f} steps/s ({rate * plan.frames_per_step:,.0f} frames/s), "
        f"load average {os.getloadavg()[0]:.2f}"
    )
    if ceiling is not None:
        print(f"{rate / ceiling.steps_per_s:.0%} of the ideal; {ceiling}")
    if not training.done:
        print(f"go on with: --run-dir {run_dir} --resume")
    weights: Weights = training.workers.learners[0].weights()
    return weights


def measure_in_actor(plan: Plan) -> Ceiling:
    gauge = moo.spawn(Gauge)
    ceiling: Ceiling = gauge.measure(plan)
    moo.stop(gauge)
    print(ceiling, flush=True)
    return ceiling


def main() -> None:
    config = tyro.cli(Config)
    plan = make_plan(config)
    if config.record:
        check_recording(config)
    run_dir = choose_run_dir(config)
    saved = load_saved(plan, run_dir)
    if saved is not None:
        plan = replace(plan, resumes=saved["resumes"] + 1)
    announce(plan, run_dir)
    with moo.init():
        ceiling = measure_in_actor(plan) if config.ceiling else None
        if saved is not None and saved["steps"] >= config.total_steps:
            weights: Weights = saved["learner"]["network"]
        else:
            weights = train(plan, run_dir, saved, ceiling)
        if config.eval:
            print_evaluation(plan, weights)
        if config.record:
            record_game(plan, weights, run_dir / "game.gif")


if __name__ == "__main__":
    main()
