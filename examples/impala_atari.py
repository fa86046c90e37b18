# SPDX-License-Identifier: MIT
"""IMPALA on Atari: actors that play, learners that learn, and nothing in between.

    python examples/impala_atari.py                        # Breakout on this machine
    python examples/impala_atari.py --env ALE/Pong-v5 --total-steps 7000000 --eval
    python examples/impala_atari.py --env CartPole-v1 --total-steps 600000
    python examples/impala_atari.py --help

The picture, for two actors and two learners:

    Actor 0  ── unrolls ──▶  Learner 0  ┐
             ◀── weights ──             │  gradients: allreduce
    Actor 1  ── unrolls ──▶  Learner 1  ┘  by `moo.LearnerGroup`
             ◀── weights ──

Each actor steps a batch of environments in two halves: while the C++ threads of ale-py
emulate one half, the policy chooses actions for the other. Each learner keeps a bounded
number of calls in flight to actors of its own, so unrolls go from actor to learner
through shared memory and never through this program; with a call goes a Ref to the
newest weights, which were put into shared memory once. The learners add up their
gradients and so stay identical to the last bit, which is checked with every report.

This program starts them, asks the learners for some updates at a time, and writes down
what they report.
"""

from __future__ import annotations

import importlib.util
import math
import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
    Environments,
    Episode,
    EpisodeCounter,
    ModelName,
    Player,
    RunLog,
    Unroll,
    atari_game,
    bootstrap_interval,
    film_game,
    fingerprint,
    flatten_gradients,
    interrupts,
    join_unrolls,
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
DRAW_PERIOD_S = 30.0
DETERMINISTIC_UPDATES = 10  # per report, where the clock must not decide
GAUGE_PERIOD_S = 3.0
MOST_FAILURES = 10  # deaths of one actor without an unroll between them
SUMMED = ("loss", "policy_loss", "value_loss")  # over learners
AVERAGED = (
    "entropy",
    "rho",
    "grad_norm",
    "lr",
    "policy_lag",
    "actor_busy",
    "learner_busy",
)


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
    """Processes that step environments. Default: one per core."""
    learners: int | None = None
    """Processes that learn and average gradients. Default: one per GPU, or without GPU
    one per four cores, and at least two."""
    envs_per_actor: int = 16
    """Environments in each actor, an even number: they are stepped in two halves."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where learners compute. Actors always choose actions on the CPU."""

    model: ModelName = "auto"
    """Network: shallow and deep are those of the IMPALA paper, mlp is for vectors; auto
    takes shallow for images and mlp for all else."""
    lstm: bool = False
    """Put an LSTM between the network's body and its heads."""

    unroll: int = 20
    """Steps T of each environment in one unroll."""
    batch: int | None = None
    """Unrolls in one update, over all learners together. Default: an eighth of those
    that are in flight, so that the policy lag stays the same on larger machines."""
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

    prefetch: int = 2
    """Unroll calls that a learner keeps in flight to each of its actors."""
    max_lag: int = 50
    """Unrolls older than this many updates are dropped, and counted."""
    deterministic: bool = False
    """One call in flight and a fixed order: the same seed gives the same curve."""

    resume: bool = False
    """Go on from the checkpoint in --run-dir."""
    checkpoint_every_s: float = 60.0
    """Seconds between checkpoints. The end, and Ctrl-C, always save one."""
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
    batch: int
    device: str
    optimizer: str
    lr: float
    shape: tuple[int, ...]
    dtype: torch.dtype
    num_actions: int
    frames_per_step: int

    @property
    def local_batch(self) -> int:
        """Unrolls in each learner's part of an update."""
        return self.batch // self.learners

    @property
    def evaluators(self) -> int:
        return min(self.actors, self.config.eval_games)

    @property
    def steps_per_update(self) -> int:
        return self.batch * self.config.unroll

    def network(self) -> ActorCritic:
        """A network of this plan, the same for the same seed in every process."""
        torch.manual_seed(self.config.seed)
        lstm = self.config.lstm
        return make_network(self.config.model, self.shape, self.num_actions, lstm=lstm)

    def seed(self, offset: int) -> int:
        """A seed of its own for each offset below a million."""
        return self.config.seed * 1_000_000 + offset

    def environments(self, num_envs: int, threads: int = 1) -> Environments:
        return make_environments(
            self.config.env,
            num_envs,
            threads=threads,
            sticky=self.config.sticky,
            all_actions=self.config.all_actions,
        )


def make_plan(config: Config) -> Plan:
    """Decide what the settings leave open, and refuse what cannot work."""
    cores = len(os.sched_getaffinity(0))
    gpus = torch.cuda.device_count() if config.device != "cpu" else 0
    if config.device == "cuda" and not gpus:
        raise SystemExit("--device cuda, but torch sees no GPU here")
    learners = config.learners or gpus or max(2, cores // 4)
    actors = config.actors or round_up(max(cores, learners), learners)
    in_flight = actors * config.prefetch * config.envs_per_actor
    batch = config.batch or round_up(max(8, in_flight // 8), learners)
    probe = probe_environment(config)
    images = len(probe.observation_shape) == 3
    optimizer = config.optimizer
    if optimizer == "auto":
        optimizer = "rmsprop" if images else "adam"
    default_lr = 6e-4 if optimizer == "rmsprop" else 2e-3
    if actors < learners:
        raise SystemExit(f"{learners} learners need at least as many actors")
    if batch % learners:
        raise SystemExit(f"--batch {batch} does not split over {learners} learners")
    if config.envs_per_actor % 2:
        raise SystemExit(
            "--envs-per-actor must be even: they are stepped in two halves"
        )
    return Plan(
        config=config,
        name=f"impala-{os.getpid()}",
        cores=cores,
        actors=actors,
        learners=learners,
        batch=batch,
        device="cuda" if gpus else "cpu",
        optimizer=optimizer,
        lr=default_lr if config.lr is None else config.lr,
        shape=probe.observation_shape,
        dtype=torch.uint8 if images else torch.float32,
        num_actions=probe.num_actions,
        frames_per_step=4 if atari_game(config.env) else 1,
    )


def probe_environment(config: Config) -> Environments:
    """One environment, closed: it knows shapes and actions. Else, why there is none."""
    try:
        probe = make_environments(config.env, 1, all_actions=config.all_actions)
    except (ValueError, ModuleNotFoundError, gymnasium.error.Error) as error:
        raise SystemExit(f"--env {config.env}: {error}") from error
    probe.close()
    return probe


def round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


# --- Acting ---------------------------------------------------------------------------


class Half:
    """Half of an actor's environments: they emulate while the other half infers."""

    def __init__(self, plan: Plan, network: ActorCritic, index: int) -> None:
        size = plan.config.envs_per_actor // 2
        side = index % 2
        self.columns = slice(side * size, (side + 1) * size)
        self.life_loss_ends = plan.config.life_loss_ends
        self.environments = plan.environments(size)
        self.player = Player(network, plan.num_actions, size, plan.seed(index))
        self.observations = self.environments.reset(plan.seed(index * size))
        self.first = np.ones(size, np.bool_)
        self.ended = np.zeros(size, np.bool_)
        self.games = EpisodeCounter(size)

    def send(self, unroll: Unroll, row: int) -> None:
        """Choose the actions of ``row`` and let the emulators run."""
        actions, log_probs = self.player.choose(self.observations, self.first)
        self.environments.send(actions.numpy())
        unroll.actions[row, self.columns] = actions
        unroll.log_probs[row, self.columns] = log_probs
        unroll.valid.numpy()[row, self.columns] = ~self.ended

    def receive(self, unroll: Unroll, row: int) -> None:
        """Wait for the emulators and write down what the actions of ``row`` led to."""
        outcome = self.environments.recv()
        self.observations = outcome.observations
        self.first = self.ended  # under next-step autoreset a new game begins only now
        self.ended = outcome.terminated | outcome.truncated
        terminal = outcome.terminated | (outcome.lost_life & self.life_loss_ends)
        unroll.rewards.numpy()[row, self.columns] = outcome.rewards
        unroll.terminal.numpy()[row, self.columns] = terminal
        self.games.add(outcome.rewards, self.ended)
        unroll.episodes += [game for _, game in self.games.finished()]

    def write_observations(self, unroll: Unroll, row: int) -> None:
        unroll.observations.numpy()[row, self.columns] = self.observations
        unroll.first.numpy()[row, self.columns] = self.first


@moo.actor
class Actor:
    """Plays its environments with the newest weights it was given."""

    def __init__(self, plan: Plan, index: int) -> None:
        torch.set_num_threads(1)
        self.plan = plan
        self.network = plan.network()
        self.halves = [Half(plan, self.network, 2 * index + side) for side in (0, 1)]
        self.version = -1
        self.finished_at = time.perf_counter()

    def unroll(self, version: int, weights: Weights | None = None) -> Unroll:
        """Play T steps in every environment.

        The ``weights`` of ``version`` are used where they lie, in shared memory. They
        may be left out if this actor has that version; an actor that was restarted has
        none, and raises `LookupError`.
        """
        started = time.perf_counter()
        self._adopt(version, weights)
        unroll = self._empty_unroll()
        for row in range(unroll.steps + 1):
            for half in self.halves:
                self._step(half, unroll, row)
        unroll.idle_s = started - self.finished_at
        self.finished_at = time.perf_counter()
        unroll.busy_s = self.finished_at - started
        return unroll

    def _adopt(self, version: int, weights: Weights | None) -> None:
        if weights is not None:
            self.network.load_state_dict(weights, assign=True)
            self.version = version
        if self.version != version:
            raise LookupError(f"asked for version {version}, but have {self.version}")

    def _empty_unroll(self) -> Unroll:
        unroll = Unroll.empty(
            self.plan.config.unroll,
            self.plan.config.envs_per_actor,
            self.plan.shape,
            self.plan.dtype,
            torch.cat([half.player.core for half in self.halves], dim=1),
            moo.empty,
        )
        unroll.version = self.version
        return unroll

    def _step(self, half: Half, unroll: Unroll, row: int) -> None:
        if row > 0:
            half.receive(unroll, row - 1)
        half.write_observations(unroll, row)
        if row < unroll.steps:
            half.send(unroll, row)


# --- Learning -------------------------------------------------------------------------


def impala_loss(
    network: ActorCritic, batch: Unroll, config: Config
) -> tuple[Tensor, dict[str, float]]:
    """The loss of IMPALA, summed over T and B, and what to report about it.

    Steps under next-step autoreset that took no action weigh nothing.
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
    count = float(valid.sum())
    return loss, {
        "loss": loss.item(),
        "policy_loss": policy_loss.item(),
        "value_loss": value_loss.item(),
        "entropy": entropy.item() / count,
        "rho": float((traced.rhos * valid).sum()) / count,
    }


class Supply:
    """The unrolls of a learner's own actors: a bounded number of calls in flight.

    An unroll is handed out in the order of arrival, or with ``in_order`` in the order
    asked for. The call that replaces it goes out at once, before anybody learns from
    it, so its actor never waits for the learner while calls are in flight. A call that
    was lost with its actor is sent again; the actor's supervisor starts a new one.
    """

    def __init__(self, actors: Sequence[Any], prefetch: int, in_order: bool) -> None:
        self.actors = actors
        self.prefetch = prefetch
        self.in_order = in_order
        self.calls: dict[Any, int] = {}
        self.versions = [-1] * len(actors)
        self.failures = [0] * len(actors)  # since the last unroll of each
        self.lost = 0

    def take(self, version: int, weights: Any) -> Unroll:
        """The next unroll; calls sent meanwhile carry ``weights``, a Ref."""
        while len(self.calls) < self.prefetch * len(self.actors):
            self._ask(len(self.calls) % len(self.actors), version, weights)
        while True:
            call = self._next_call()
            index = self.calls.pop(call)
            try:
                unroll: Unroll = call.get()
            except (moo.ActorDied, moo.ActorUnavailable, LookupError) as error:
                self._note_lost(index, error)
                self._ask(index, version, weights)
                continue
            self.failures[index] = 0
            self._ask(index, version, weights)
            return unroll

    def _note_lost(self, index: int, error: Exception) -> None:
        """Count it, and give up on an actor that nobody can bring back."""
        self.lost += 1
        self.versions[index] = -1
        self.failures[index] += 1
        if self.failures[index] > self.prefetch * MOST_FAILURES:
            raise error

    def _next_call(self) -> Any:
        if self.in_order:
            return next(iter(self.calls))
        done, _ = moo.wait(list(self.calls), num_returns=1)
        return done[0]

    def _ask(self, index: int, version: int, weights: Any) -> None:
        has_it = self.versions[index] == version
        self.versions[index] = version
        call = self.actors[index].unroll.remote(version, None if has_it else weights)
        self.calls[call] = index


@dataclass
class Report:
    """What one learner did in some updates: means, games, and a fingerprint."""

    steps: int
    version: int
    means: dict[str, float]
    lag_max: int
    episodes: list[Episode]
    digest: str
    lost_calls: int
    dropped: int


@moo.actor
class Learner:
    """Learns from unrolls of its own actors, in step with all other learners."""

    def __init__(self, plan: Plan, index: int, actors: Sequence[Any]) -> None:
        torch.set_num_threads(1)
        config = plan.config
        self.plan = plan
        self.device = torch.device(plan.device)
        if plan.device == "cuda":
            self.device = torch.device("cuda", index % torch.cuda.device_count())
        self.network = plan.network().to(self.device)
        self.optimizer = make_optimizer(plan, self.network)
        self.gradients = flatten_gradients(self.network, moo.empty)
        prefetch = 1 if config.deterministic else config.prefetch
        self.supply = Supply(actors, prefetch, config.deterministic)
        self.pieces: deque[Unroll] = deque()
        self.group: Any = None
        self.version = 0
        self.published: tuple[int, Any] = (-1, None)
        self.meter = Meter()
        self.dropped = 0

    def join(self) -> None:
        """Wait until all learners are here; one alone has nobody to wait for."""
        if self.plan.learners == 1:
            return
        self.group = moo.LearnerGroup(self.plan.name, min_size=self.plan.learners)

    def train(self, updates: int) -> Report:
        """Make ``updates`` updates, each together with all other learners."""
        for _ in range(updates):
            started = time.perf_counter()
            batch = self._next_batch()
            waited = time.perf_counter() - started
            self.meter.add(self.learn(batch))
            busy = 1 - waited / (time.perf_counter() - started)
            self.meter.add({"learner_busy": busy})
        return self._report()

    def learn(self, batch: Unroll) -> dict[str, float]:
        """One update from ``batch`` and what the other learners bring to it."""
        total_steps = max(1, self.plan.config.total_steps)
        done = self.version * self.plan.steps_per_update / total_steps
        lr = self.plan.lr * max(0.0, 1 - done)
        for settings in self.optimizer.param_groups:
            settings["lr"] = lr
        self.gradients.zero_()
        loss, facts = impala_loss(self.network, batch.to(self.device), self.plan.config)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.group is not None:
            self.group.allreduce([self.gradients], op="sum").wait()
        norm = self.gradients.norm().item()
        if norm > self.plan.config.clip_norm:
            self.gradients.mul_(self.plan.config.clip_norm / norm)
        self.optimizer.step()
        self.version += 1
        return facts | {"grad_norm": norm, "lr": lr}

    def weights(self) -> Weights:
        """The parameters, contiguous and on the CPU."""
        state = self.network.state_dict()
        return {name: value.cpu().contiguous() for name, value in state.items()}

    def state(self) -> dict[str, Any]:
        """All that `load` needs to go on from here."""
        return {
            "network": self.weights(),
            "optimizer": self.optimizer.state_dict(),
            "version": self.version,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over parameters, optimizer and version of a checkpoint."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.version = state["version"]

    def _next_batch(self) -> Unroll:
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
        return join_unrolls(taken)

    def _receive(self) -> None:
        unroll = self.supply.take(self.version, self._publish())
        self.meter.episodes += unroll.episodes
        busy = unroll.busy_s / (unroll.busy_s + unroll.idle_s)
        self.meter.add({"actor_busy": busy})
        self.pieces.append(unroll)

    def _too_old(self, piece: Unroll) -> bool:
        lag = self.version - piece.version
        if lag > self.plan.config.max_lag:
            self.dropped += 1
            return True
        self.meter.add({"policy_lag": lag})
        self.meter.lag_max = max(self.meter.lag_max, lag)
        return False

    def _publish(self) -> Any:
        """A Ref to the weights of this version, put into shared memory once."""
        if self.published[0] != self.version:
            self.published = (self.version, moo.put(self.weights()))
        return self.published[1]

    def _report(self) -> Report:
        meter, self.meter = self.meter, Meter()
        return Report(
            steps=self.version * self.plan.steps_per_update,
            version=self.version,
            means=meter.means(),
            lag_max=meter.lag_max,
            episodes=meter.episodes,
            digest=fingerprint(self.weights()),
            lost_calls=self.supply.lost,
            dropped=self.dropped,
        )


class Meter:
    """Means of what is added, by name, and the games that finished meanwhile."""

    def __init__(self) -> None:
        self.samples: dict[str, list[float]] = defaultdict(list)
        self.episodes: list[Episode] = []
        self.lag_max = 0

    def add(self, facts: dict[str, float]) -> None:
        for name, value in facts.items():
            self.samples[name].append(value)

    def means(self) -> dict[str, float]:
        return {name: float(np.mean(values)) for name, values in self.samples.items()}


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
        torch.set_num_threads(1)
        share = len(range(index, plan.config.eval_games, plan.evaluators))
        seed = plan.seed(500_000 + 1000 * index)
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

    config, seed = plan.config, plan.seed(900_000)
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
    learner = Learner(replace(plan, learners=1), 0, ())
    unroll = actor.unroll(0, learner.weights())
    half = actor.halves[0]
    size, local = half.environments.num_envs, plan.local_batch
    batch = join_unrolls([unroll] * -(-local // unroll.batch)).columns(0, local)
    actions = np.zeros(size, np.int64)

    def step() -> None:
        half.environments.send(actions)
        half.observations = half.environments.recv().observations

    def infer() -> None:
        half.player.choose(half.observations, half.first)

    def learn() -> None:
        learner.learn(batch)

    def loop() -> None:
        played = actor.unroll(learner.version, learner.weights())
        for start in range(0, played.batch - played.batch % local, local):
            learner.learn(played.columns(start, start + local))

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


class Training:
    """Asks the learners for updates and writes down what they report."""

    def __init__(self, plan: Plan, run_dir: Path, saved: dict[str, Any] | None) -> None:
        self.plan = plan
        self.run_dir = run_dir
        self.steps: int = saved["steps"] if saved else 0
        self.games: int = saved["games"] if saved else 0
        self.recent = deque[float](saved["recent"] if saved else (), RECENT_GAMES)
        self.trained_s: float = saved["wall_s"] if saved else 0.0
        self.log = RunLog(run_dir, from_step=self.steps if saved else None)
        self.learners = start_workers(plan)
        if saved:
            moo.get([each.load.remote(saved["learner"]) for each in self.learners])
        self.updates = DETERMINISTIC_UPDATES if plan.config.deterministic else 1
        self.started_steps = self.steps
        self.started_at = self.reported_at = time.monotonic()
        self.saved_at = self.drawn_at = self.started_at

    @property
    def done(self) -> bool:
        return self.steps >= self.plan.config.total_steps

    def run(self, display: Display, interrupted: threading.Event) -> None:
        """Train to the end, or until ``interrupted``; save in either case.

        While the learners make the next updates, the last report is drawn.
        """
        row = None
        while not (self.done or interrupted.is_set()):
            calls = [each.train.remote(self._next_updates()) for each in self.learners]
            if row is not None:
                self._write(row, display)
            row = self._digest(moo.get(calls))
            if time.monotonic() - self.saved_at > self.plan.config.checkpoint_every_s:
                self.save()
        if row is not None:
            self._write(row, display)
        self.save()
        self.log.draw(self.plan.config.env)
        self.log.close()

    def save(self) -> None:
        """Write a checkpoint; the learners are between two updates."""
        saved = {
            "learner": self.learners[0].state(),
            "settings": network_settings(self.plan),
            "steps": self.steps,
            "games": self.games,
            "recent": list(self.recent),
            "wall_s": self.wall_s(),
        }
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
        self.recent.extend(game.score for game in episodes)
        self.games += len(episodes)
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
            "frames": self.steps * self.plan.frames_per_step,
            "wall_s": round(self.wall_s(), 3),
            "steps_per_s": round(steps_per_s, 1),
            "frames_per_s": round(steps_per_s * self.plan.frames_per_step, 1),
            "episode_return": float(np.mean(self.recent)) if self.recent else math.nan,
            "episodes": self.games,
            **{name: merged(name, reports) for name in (*SUMMED, *AVERAGED)},
            "policy_lag_max": max(report.lag_max for report in reports),
            "lost_calls": sum(report.lost_calls for report in reports),
            "dropped": sum(report.dropped for report in reports),
            "weights": reports[0].digest,
        }

    def _write(self, row: Row, display: Display) -> None:
        self.log.write(row)
        display.show(row)
        if time.monotonic() - self.drawn_at > DRAW_PERIOD_S:
            self.log.draw(self.plan.config.env)
            self.drawn_at = time.monotonic()


def merged(name: str, reports: list[Report]) -> float:
    """A fact of all learners: their sum, or the mean of those that have it."""
    values = [report.means[name] for report in reports if name in report.means]
    if not values:
        return math.nan
    return float(np.sum(values) if name in SUMMED else np.mean(values))


def start_workers(plan: Plan) -> list[Any]:
    """Start actors that are replaced when they die, and learners to share them."""
    again = moo.Restart(max=10, within=600)
    actors = [
        moo.on(Actor, name=f"{plan.name}-actor-{index}", restart=again).spawn(
            plan, index
        )
        for index in range(plan.actors)
    ]
    learners = [
        moo.on(Learner, name=f"{plan.name}-learner-{index}").spawn(
            plan, index, actors[index :: plan.learners]
        )
        for index in range(plan.learners)
    ]
    moo.get([moo.submit(learner.join) for learner in learners])
    return learners


def network_settings(plan: Plan) -> dict[str, Any]:
    """What must be the same for a checkpoint to fit."""
    return {
        "env": plan.config.env,
        "model": plan.config.model,
        "lstm": plan.config.lstm,
    }


def choose_run_dir(config: Config) -> Path:
    if config.run_dir is not None:
        return config.run_dir
    if config.resume:
        raise SystemExit("--resume needs --run-dir: the run to go on with")
    name = config.env.removeprefix("ALE/")
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def load_saved(plan: Plan, run_dir: Path) -> dict[str, Any] | None:
    if not plan.config.resume:
        return None
    saved = load_checkpoint(run_dir)
    if saved["settings"] != network_settings(plan):
        raise SystemExit(f"{run_dir} was trained with {saved['settings']}")
    return saved


def announce(plan: Plan, run_dir: Path) -> None:
    config = plan.config
    print(
        f"{config.env} on {plan.cores} cores: {plan.actors} actors of "
        f"{config.envs_per_actor} environments, {plan.learners} learners on "
        f"{plan.device}, {config.model} network for {plan.shape}, {plan.optimizer} "
        f"with learning rate {plan.lr:g}, {plan.batch} unrolls of {config.unroll} "
        f"steps in an update, seed {config.seed}, "
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
        training.run(display, interrupted)
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
    weights: Weights = training.learners[0].weights()
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
