# SPDX-License-Identifier: MIT
"""IMPALA on Atari: actors that play, learners that learn, and nothing in between.

    python examples/impala_atari.py                        # Breakout on this machine
    python examples/impala_atari.py --env ALE/Pong-v5 --total-steps 7000000 --eval
    python examples/impala_atari.py --env CartPole-v1 --total-steps 600000
    mooactor run --hosts a,b,c examples/impala_atari.py --learners 3   # on all hosts
    python examples/impala_atari.py --help

The picture, for two actors and two learners:

    Actor 0  ── unrolls ──▶ ┌────────┐ ── unrolls ──▶ Learner 0  ┐ gradients, state:
    Actor 1  ◀── weights ── │ Supply │ ◀── weights ── Learner 1  ┘ `moo.Accumulator`
                            └────────┘

Each actor steps a batch of environments in two halves: while the C++ threads of ale-py
emulate one half, the policy chooses actions for the other. The supply keeps a bounded
number of calls in flight to all actors and hands their unrolls to any learner that
asks; only Refs pass through it, the unrolls themselves go from actor to learner through
shared memory. An actor begins each unroll with the newest weights. The learners add up
their gradients and so stay identical to the last bit, which is checked with every
report. One that dies is started again, and gets its state from the others, which go on.

The result of learning does not depend on the machine: the update, its batch and the
unrolls in flight are the same on 2 cores and on 64; a larger machine is only faster.

Read from top to bottom: settings, actor, loss, learner, training, main. The parts that
other algorithms use, too (environments, networks, V-trace, the supply, checkpoints) are
in `mooactor.rl`; those of a program such as this one (run directories, the display, the
layout of a cluster) are in the folder `impala` beside this file. Tensors are time
first: T steps of B environments are `[T, B, …]`.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro
from torch import Tensor
from torch.nn import functional as F

import impala
import mooactor as moo
from impala import Within
from mooactor import rl
from mooactor.rl import State, Unroll, Weights

REPORT_PERIOD_S = 1.0
DETERMINISTIC_UPDATES = 10  # per report, where the clock must not decide
BEHIND_LEARNERS = 10  # how much nicer actors are than the program
RESTART = moo.Restart(max=20, within=600)  # of a learner
SUMMED = ("loss", "policy_loss", "value_loss")  # columns: over all learners
AVERAGED = (
    *("loss_mean", "policy_loss_mean", "value_loss_mean", "entropy"),
    *("rho", "clipped_rho", "approx_kl", "explained_variance", "grad_norm", "lr"),
    *("policy_lag", "queue", "actor_busy", "environment_share", "inference_share"),
    *("learner_busy", "allreduce_share"),
)
# A checkpoint and a resume must agree on these; with --deterministic, on all but FREE.
FIXED = ("env", "model", "lstm", "optimizer", "all_actions")
FREE = {"total_steps", "run_dir", "device", "resume", "checkpoint_every_s", "eval"}
FREE |= {"eval_games", "record", "ceiling", "connect"}


# --- Settings -------------------------------------------------------------------------


@dataclass(frozen=True)
class Config:
    """IMPALA with mooactor actors, on this machine or on the hosts of a cluster."""

    environment: impala.EnvironmentSettings = field(
        default_factory=impala.EnvironmentSettings
    )
    layout: impala.LayoutSettings = field(default_factory=impala.LayoutSettings)
    network: impala.NetworkSettings = field(default_factory=impala.NetworkSettings)
    supply: impala.SupplySettings = field(default_factory=impala.SupplySettings)
    run: impala.RunSettings = field(default_factory=impala.RunSettings)
    evaluation: impala.EvaluationSettings = field(
        default_factory=impala.EvaluationSettings
    )

    total_steps: Annotated[int, Within(1)] = 1_200_000
    """Agent steps to train for, over all environments. One step of an ALE game is four
    emulator frames."""
    seed: Annotated[int, Within(0)] = 1
    """Seeds the networks, the environments and the choice of actions."""
    unroll: Annotated[int, Within(1)] = 20
    """Steps T of each environment in one unroll."""
    batch: Annotated[int, Within(1)] = 8
    """Unrolls (of one environment each) that all learners together take at a time."""
    virtual_batch_size: Annotated[int | None, Within(1)] = None
    """Unrolls in one update, a multiple of --batch: so many batches are added up.
    Default: --batch."""
    optimizer: Literal["auto", "rmsprop", "adam"] = "auto"
    """rmsprop (decay 0.99, eps 0.01 outside the root) or adam; auto takes rmsprop for
    images and adam for all else."""
    lr: Annotated[float | None, Within(0)] = None
    """Learning rate at the start; it falls to 0 linearly over --total-steps. Default:
    6e-4 for rmsprop, 2e-3 for adam."""
    gamma: Annotated[float, Within(0, 1)] = 0.99
    """Discount of future rewards."""
    entropy_cost: Annotated[float, Within(0)] = 0.01
    """Weight of the entropy bonus."""
    baseline_cost: Annotated[float, Within(0)] = 0.5
    """Weight of the value loss, which is half the squared error."""
    clip_norm: Annotated[float, Within(0)] = 40.0
    """Largest norm of the summed gradient; 0 leaves it alone."""
    clip_reward: Annotated[float, Within(0)] = 1.0
    """Rewards are clipped to plus or minus this for learning; 0 leaves them alone.
    Reported returns are never clipped."""
    life_loss_ends: bool = True
    """Let a lost life end the return in the loss, though the game goes on. Reported
    returns are those of full games."""
    ceiling: bool = False
    """Before training, measure what stepping, inference and learning cost on one core
    and on all, and a loop in one process; afterwards, say which part of it was had."""


def read_config(arguments: Sequence[str] | None = None) -> Config:
    """The settings that a command line gives; nested ones are plain flags, too."""
    return tyro.cli(Config, args=arguments, config=(tyro.conf.OmitArgPrefixes,))


@dataclass(frozen=True)
class Plan:
    """The settings with every default decided for this machine and environment."""

    config: Config
    layout: impala.Layout
    spaces: impala.Spaces
    optimizer: str
    lr: float
    name: str  # of the learner group, and the start of all actors' names
    resumes: int = 0  # how often this run was resumed: other games each time

    @property
    def update(self) -> int:
        """Unrolls in one update."""
        return self.config.virtual_batch_size or self.config.batch

    def network(self) -> rl.ActorCritic:
        """A network of this plan, the same for the same seed in every process."""
        torch.manual_seed(self.config.seed)
        return self.config.network.make(self.spaces.shape, self.spaces.num_actions)

    def make_optimizer(self, network: rl.ActorCritic) -> torch.optim.Optimizer:
        """RMSProp adds eps outside the root in torch, as TorchBeast and Cleanba do."""
        if self.optimizer == "adam":
            return torch.optim.Adam(network.parameters(), self.lr)
        return torch.optim.RMSprop(network.parameters(), self.lr, alpha=0.99, eps=0.01)

    def seed(self, *path: int) -> int:
        """A seed of its own for each path; a million may be counted on from it."""
        sequence = np.random.SeedSequence([self.config.seed, *path])
        return int(sequence.generate_state(1)[0]) >> 2


def make_plan(config: Config, hosts: Sequence[dict[str, Any]] = ()) -> Plan:
    """Decide what the settings leave open; SettingsError if they cannot work."""
    impala.check_ranges(config)
    layout = impala.choose_layout(
        config.layout, config.batch, config.supply, hosts=hosts
    )
    if config.ceiling and layout.hosts:
        raise impala.SettingsError("--ceiling measures one machine, not a cluster")
    virtual = config.virtual_batch_size or config.batch
    if virtual % config.batch:
        raise impala.SettingsError(
            f"--virtual-batch-size {virtual}: it must be a multiple of --batch"
        )
    spaces = config.environment.spaces()
    optimizer = config.optimizer
    if optimizer == "auto":
        optimizer = "rmsprop" if spaces.images else "adam"
    default_lr = 6e-4 if optimizer == "rmsprop" else 2e-3
    lr = default_lr if config.lr is None else config.lr
    plan = Plan(config, layout, spaces, optimizer, lr, f"impala-{os.getpid()}")
    try:
        plan.network()
    except ValueError as error:
        raise impala.SettingsError(
            f"--env {config.environment.env}: {error}"
        ) from error
    return plan


# --- Acting ---------------------------------------------------------------------------


@moo.actor
class Actor:
    """Plays its environments, each unroll with the newest weights."""

    def __init__(self, plan: Plan, index: int, supply: rl.Supply | None = None) -> None:
        self.plan = plan
        self.supply = supply
        self.network = plan.network()
        born = 0 if supply is None else supply.enlist.remote(index).get()
        count = plan.layout.envs_per_actor
        size = count if count % 2 else count // 2
        self.halves = []
        for side, start in enumerate(range(0, count, size)):
            path = (index, side, born, plan.resumes)
            half = rl.EnvRunner(
                plan.config.environment.make(size),
                rl.Player(
                    self.network, plan.spaces.num_actions, size, plan.seed(1, *path)
                ),
                slice(start, start + size),
                plan.seed(0, *path),
                life_loss_ends=plan.config.life_loss_ends,
                keep_actions=plan.config.supply.deterministic,
            )
            self.halves.append(half)
        self.version = -1
        self.finished_at = time.perf_counter()

    def on_start(self) -> None:
        """Let learners run first: then unrolls never wait, and age little.

        This thread has the niceness of the program, also in an actor that is started
        again: only the threads of each actor's own process are changed.
        """
        wanted = min(19, os.getpriority(os.PRIO_PROCESS, 0) + BEHIND_LEARNERS)
        for thread in os.listdir("/proc/self/task"):  # those of the emulators, too
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.setpriority(os.PRIO_PROCESS, int(thread), wanted)

    @moo.method
    def unroll(self, version: int | None = None) -> Unroll:
        """Play with the newest weights, or with those of ``version``."""
        assert self.supply is not None, "an actor without a supply only plays"
        began = time.perf_counter()
        self.adopt(*rl.fetch_weights(self.supply, self.version, version))
        return self.play(began)

    def adopt(self, version: int, weights: Weights | None) -> None:
        """Use ``weights`` from now on, where they lie, in shared memory."""
        if weights is not None:
            self.network.load_state_dict(weights, assign=True)
        self.version = version

    def play(self, began: float | None = None) -> Unroll:
        """T steps in every environment; the observations lie in shared memory."""
        began = began or time.perf_counter()
        unroll = rl.empty_unroll(self.halves, self.plan.config.unroll, moo.empty)
        unroll.version = self.version
        for row in range(unroll.steps + 1):
            for half in self.halves:
                if row > 0:
                    half.receive(unroll, row - 1)
                half.observe(unroll, row)
                if row < unroll.steps:
                    half.send(unroll, row)
        unroll.idle_s = began - self.finished_at
        self.finished_at = time.perf_counter()
        unroll.busy_s = self.finished_at - began
        return unroll

    @moo.method
    def games(self) -> list[State]:
        """The state of its games and its choices, with --deterministic."""
        return [half.state() for half in self.halves]

    @moo.method
    def load_games(self, games: list[State]) -> None:
        """Go on from there."""
        for half, saved in zip(self.halves, games, strict=True):
            half.load(saved)


# --- The loss -------------------------------------------------------------------------


def impala_loss(
    network: rl.ActorCritic, batch: Unroll, config: Config
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of IMPALA, summed over T and B, and what to report about it, as 0-d
    tensors: nothing here waits for a GPU.

    Steps under next-step autoreset that took no action weigh nothing. ``rho`` is the
    mean clipped importance weight, ``clipped_rho`` the share that was clipped.
    """
    output = network(batch.observations, batch.first, batch.core)
    log_policy = F.log_softmax(output.logits[:-1], dim=-1)  # [T, B, A]
    log_probs = log_policy.gather(2, batch.actions[..., None])[..., 0]  # [T, B]
    log_ratio = log_probs.detach() - batch.log_probs  # [T, B]
    values = output.values[:-1]  # [T, B]
    rewards = batch.rewards  # [T, B]
    if config.clip_reward > 0:
        rewards = rewards.clamp(-config.clip_reward, config.clip_reward)
    traced = rl.vtrace(
        log_ratio,
        config.gamma * (~batch.terminal).float(),  # [T, B]
        rewards,
        values,
        output.values[-1],  # [B]
        valid=batch.valid,
    )
    valid = batch.valid.float()  # [T, B]
    policy_loss = -(log_probs * traced.advantages * valid).sum()
    value_loss = 0.5 * ((traced.targets - values).square() * valid).sum()
    entropy = -((log_policy.exp() * log_policy).sum(dim=-1) * valid).sum()
    loss = (
        policy_loss + config.baseline_cost * value_loss - config.entropy_cost * entropy
    )
    count = valid.sum()
    facts = {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss}
    facts |= {f"{name}_mean": value / count for name, value in facts.items()}
    facts["entropy"] = entropy / count
    facts |= rl.off_policy_facts(log_ratio, batch.valid, values, traced)
    return loss, {name: value.detach() for name, value in facts.items()}


# --- Learning -------------------------------------------------------------------------


@moo.actor
class Learner:
    """Learns from unrolls of the supply, in step with all other learners.

    One that begins when others have made updates gets its state from one of them.
    """

    def __init__(self, plan: Plan, index: int, supply: rl.Supply | None = None) -> None:
        self.plan = plan
        self.device = torch.device(plan.layout.device)  # it sees no GPU but its own
        self.network = plan.network().to(self.device)
        self.optimizer = plan.make_optimizer(self.network)
        self.publisher = rl.Publisher(self.network, supply)
        max_lag = plan.config.supply.max_lag
        self.batcher = rl.Batcher(supply, index, plan.config.batch, max_lag)
        self.finite = True  # all gradients so far
        self.version = self.steps = 0
        self.meter = rl.Meter()
        self.accumulator: moo.Accumulator | None = None

    def join(self) -> moo.Accumulator:
        """Be one of the learners from now on; with --deterministic, wait for all."""
        if self.accumulator is None:
            in_order = self.plan.config.supply.deterministic
            least = self.plan.layout.learners if in_order else 1
            self.accumulator = moo.Accumulator(
                moo.LearnerGroup(self.plan.name, min_size=least),
                *(self.network, self.optimizer),
                batch=self.plan.update,
                exact=True,
                max_staleness=2,  # a rest that fits no batch of those that are left
                version=self.version,
                before_update=self._finish_gradient,
                get_state=lambda: self.steps,
                set_state=lambda steps: setattr(self, "steps", steps),
            )
            self.rounds = iter(self.accumulator)
            self._begin_round(publish=True)  # by all: the leader may be gone already
        return self.accumulator

    def _begin_round(self, publish: bool) -> None:
        """End the round with the others, which may make an update; begin the next."""
        self.step, before = next(self.rounds), self.version
        self.version = self.step.version
        if publish or (self.version > before and self.join().is_leader):
            self.publisher.publish(self.version)

    @moo.method
    def train(self, since: int, until: int) -> impala.LearnerReport:
        """Learn with the others up to version ``until``; they were at ``since``."""
        group = self.join().group
        if self.version < since:  # those that were are gone
            raise impala.AllLearnersLost(since)
        while self.version < until:
            began, waited_s = time.perf_counter(), group.statistics()["waited_s"]
            self.batcher.batch = impala.share(self.plan.config.batch, group.size)
            batch = self.batcher.next_batch(self.version, self.device)
            taken = time.perf_counter()
            facts = dict[str, Tensor | float](self.learn(batch))
            elapsed_s = time.perf_counter() - began
            reducing_s = group.statistics()["waited_s"] - waited_s
            facts["learner_busy"] = 1 - (taken - began + reducing_s) / elapsed_s
            facts["allreduce_share"] = reducing_s / elapsed_s
            self.meter.add(facts)
        return self._report()

    def learn(self, batch: Unroll) -> dict[str, Tensor]:
        """One round with the gradient of ``batch``: an update, if all learners together
        have enough. Returns the facts for the report."""
        self.join()
        loss, facts = impala_loss(self.network, batch, self.plan.config)
        self.step.add(loss / batch.batch, count=batch.batch)
        self._begin_round(publish=False)
        return facts

    def _finish_gradient(self) -> None:
        """Make the mean gradient a sum again, clip it, and set the learning rate.

        A gradient that is not finite changes nothing, nor does any after it, and the
        run ends with the report.
        """
        config, parameters = self.plan.config, list(self.network.parameters())
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(self.plan.update)
        most = config.clip_norm or math.inf
        norm = torch.nn.utils.clip_grad_norm_(parameters, most)  # before clipping
        self.finite = self.finite and bool(norm.isfinite())
        if not self.finite:
            self.optimizer.zero_grad()
        lr = self.plan.lr * max(0.0, 1 - self.steps / config.total_steps)
        for settings in self.optimizer.param_groups:
            settings["lr"] = lr
        self.steps += self.plan.update * config.unroll
        self.meter.add({"grad_norm": norm, "lr": lr})

    @moo.method
    def weights(self) -> Weights:
        """The parameters, contiguous and on the CPU."""
        return rl.weights_of(self.network)

    def _report(self) -> impala.LearnerReport:
        norms = self.meter.values("grad_norm")  # [updates]
        if not norms.isfinite().all():
            first = self.version - len(norms) + int((~norms.isfinite()).nonzero()[0])
            raise FloatingPointError(
                f"the gradient of update {first + 1} is not finite; the weights are as "
                "they were before it, and so is the last checkpoint. Lower --lr, or "
                "look at the loss before it"
            )
        counts, means = self.batcher.report()
        means |= self.meter.means()
        self.meter = rl.Meter()
        digest = rl.fingerprint(self.weights())
        accumulator = self.join()
        fetching = accumulator.stats()["fetching"]
        learners = accumulator.group.size - fetching
        return impala.LearnerReport(
            *(self.version, self.steps, learners, fetching > 0, digest, means, counts)
        )

    @moo.method
    def state(self) -> State:
        """The state for `load` to go on from here; the same for all learners."""
        return {
            "network": self.weights(),
            "optimizer": self.optimizer.state_dict(),
            "version": self.version,
            "steps": self.steps,
        }

    @moo.method
    def load(self, state: State) -> None:
        """Take over parameters, optimizer and counts of a checkpoint."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.version = state["version"]
        self.steps = state["steps"]

    @moo.method
    def games(self) -> list[State]:
        """The unrolls it has not learned from yet, with --deterministic."""
        return self.batcher.state()

    @moo.method
    def load_games(self, games: list[State]) -> None:
        """Have that again."""
        self.batcher.load(games)


def lone_learner(plan: Plan, batch: int) -> Learner:
    """A learner for measurements, which is alone in its group."""
    config = replace(plan.config, batch=batch, virtual_batch_size=None)
    layout, name = replace(plan.layout, learners=1), f"{plan.name}-{os.getpid()}"
    return Learner(replace(plan, config=config, layout=layout, name=name), 0)


# --- Training -------------------------------------------------------------------------


def start_actor(plan: Plan, index: int, host: str, supply: rl.Supply) -> Actor:
    """Start one on a host, empty: any; it is replaced there when it dies."""
    placed = moo.on(
        Actor, name=f"{plan.name}-actor-{index}", host=host, restart=rl.RESTART
    )
    return placed.spawn(plan, index, supply)


def start_learner(plan: Plan, index: int, host: str, supply: rl.Supply) -> Learner:
    """The same for a learner."""
    name, gpus = f"{plan.name}-learner-{index}", int(plan.layout.device == "cuda")
    placed = moo.on(Learner, name=name, host=host, num_gpus=gpus, restart=RESTART)
    return placed.spawn(plan, index, supply)


def start_workers(
    plan: Plan, saved: State | None = None
) -> tuple[rl.Supply, list[Actor], list[Learner]]:
    """Start a supply, and actors and learners that are replaced when they die.

    With ``saved``, a checkpoint, they go on from it.
    """
    layout, in_order = plan.layout, plan.config.supply.deterministic
    supply = moo.on(rl.Supply, name=f"{plan.name}-supply", host=layout.home).spawn(
        layout.in_flight, layout.learners, in_order, bool(layout.hosts)
    )
    places = enumerate(layout.actor_hosts)
    actors = [start_actor(plan, index, host, supply) for index, host in places]
    places = enumerate(layout.learner_hosts)
    learners = [start_learner(plan, index, host, supply) for index, host in places]
    version, lanes = 0, None
    if saved is not None:
        version = saved["learner"]["version"]
        moo.get([moo.submit(learner.load, saved["learner"]) for learner in learners])
        if in_order:
            games = saved["games_under_way"]
            lanes = impala.load_games_under_way(games, actors, learners)
    supply.start.remote(actors, version, lanes).get()
    return supply, actors, learners


def train(
    plan: Plan, run: impala.Run, display: impala.Display, interrupted: threading.Event
) -> tuple[impala.Progress, Weights]:
    """Train to the end, or until ``interrupted``; save in either case.

    The last report is written and drawn while the learners make the next updates, or
    before a checkpoint that counts it: no row is lost if the program is killed.
    """
    config, env = plan.config, plan.config.environment
    in_order, update_steps = config.supply.deterministic, plan.update * config.unroll
    from_step = None if run.saved is None else run.saved["steps"]
    log = impala.RunLog(run.directory, env.env, from_step=from_step)
    supply, actors, learners = start_workers(plan, run.saved)
    crew = impala.Crew(learners, run.saved["learner"]["version"] if run.saved else 0)
    more_learners, more_actors = plan.layout.newcomers()
    progress = impala.Progress(env.frames_per_step, SUMMED, AVERAGED, run.saved)
    pace = impala.Pace(
        REPORT_PERIOD_S, always=DETERMINISTIC_UPDATES if in_order else None
    )

    def save() -> None:
        """Write a checkpoint; the learners are between two updates."""
        learner, games = crew.state(), None
        if in_order:
            games = impala.games_under_way(supply, actors, learners)
        run.save({"learner": learner, **progress.state(), "games_under_way": games})

    def add_workers() -> None:
        """Have hosts that have joined the cluster take part in the run."""
        hosts, actors = moo.hosts(), list[Actor]()
        unless_gone = contextlib.suppress(moo.PlacementError)
        for index, host in more_learners.look(hosts):
            with unless_gone:
                crew.add(start_learner(plan, index, host, supply))
        for index, host in more_actors.look(hosts):
            with unless_gone:
                actors.append(start_actor(plan, index, host, supply))
        if actors:
            supply.add.remote(actors).get()

    def report(row: impala.Row | None) -> None:
        """Write and draw a row, if there is one."""
        if row is not None:
            log.write(row)
            display.show(row)

    row = None
    with log:
        while progress.steps < config.total_steps and not interrupted.is_set():
            left = -(-(config.total_steps - progress.steps) // update_steps)
            crew.train(min(pace.updates, left))
            if plan.layout.hosts:
                add_workers()
            report(row)
            row = progress.add(crew.reports())
            pace.adapt(progress.period_s)
            if run.save_is_due:
                report(row)
                row = None
                save()
        report(row)
        save()
    return progress, crew.state()["network"]


# --- The program ----------------------------------------------------------------------


def open_run(plan: Plan) -> impala.Run:
    """The run that the settings name; SettingsError if it cannot begin or go on."""
    config = plan.config
    values = impala.flatten(config) | plan.layout.decided()
    values |= {"optimizer": plan.optimizer, "lr": plan.lr}
    run = impala.Run(
        config.run,
        config.environment.env.removeprefix("ALE/"),
        values,
        fixed=values if config.supply.deterministic else FIXED,
        free=FREE,
        format_number=3,
    )
    played = config.evaluation.eval or config.evaluation.record
    if run.has_made(config.total_steps) and not played:
        raise impala.SettingsError(
            f"{run.directory} has made its {config.total_steps:,} steps: raise "
            "--total-steps to go on, or add --eval or --record"
        )
    return run


def describe(plan: Plan, run: impala.Run) -> str:
    """Everything that was decided, in a sentence."""
    config = plan.config
    return (
        f"{config.environment.env} on {plan.layout}, {config.network.model} network "
        f"for {plan.spaces.shape}, {plan.optimizer} with learning rate {plan.lr:g}, "
        f"{plan.update} unrolls of {config.unroll} steps in an update and at most "
        f"{config.supply.lag * config.batch} in flight, seed {config.seed}, "
        f"load average {os.getloadavg()[0]:.2f}; everything goes to {run.directory}"
    )


def train_and_tell(plan: Plan, run: impala.Run) -> Weights:
    """Train, say how it went, and return the weights."""
    config, env = plan.config, plan.config.environment
    ceiling = None
    if config.ceiling:
        share = impala.share(config.batch, plan.layout.learners)
        ceiling = impala.measure_ceiling(
            *(partial(Actor, plan, 0), partial(lone_learner, plan, share)),
            *(share, plan.layout.cores),
        )
        print(ceiling, flush=True)
    with (
        impala.Display(f"IMPALA on {env.env}", config.total_steps) as display,
        impala.interrupts() as interrupted,
    ):
        try:
            progress, weights = train(plan, run, display, interrupted)
        except rl.EnvironmentFailed as error:
            advice = "--restart-environments goes on without it"
            raise SystemExit(f"{error}\n{advice}") from error
        except (FloatingPointError, impala.AllLearnersLost) as error:
            raise SystemExit(str(error)) from error
    print(f"{progress}, load average {os.getloadavg()[0]:.2f}")
    if ceiling is not None:
        rate = progress.steps_per_s()
        print(
            f"{rate / ceiling.steps_per_s:.0%} of the ideal, "
            f"{rate / ceiling.together_steps_per_s:.0%} of it with all cores at work; "
            f"{ceiling}"
        )
    if progress.steps < config.total_steps:
        print(f"go on with: --run-dir {run.directory} --resume")
    return weights


def carry_out(config: Config, hosts: Sequence[dict[str, Any]]) -> None:
    """Train, evaluate and record, as the settings say, in a session on ``hosts``."""
    env, evaluation = config.environment, config.evaluation
    plan = make_plan(config, hosts)
    if evaluation.record:
        impala.check_recording(env)
    run = open_run(plan)
    plan = replace(plan, resumes=run.resumes)
    print(*run.changed, describe(plan, run), sep="\n", flush=True)
    network = plan.network()
    if run.saved is not None and run.has_made(config.total_steps):
        network.load_state_dict(run.saved["learner"]["network"])
    else:
        network.load_state_dict(train_and_tell(plan, run))
    if evaluation.eval:
        processes = min(plan.layout.actors, evaluation.eval_games)
        seeds = [plan.seed(2, process) for process in range(processes)]
        impala.print_evaluation(env, network, evaluation.eval_games, seeds)
    if evaluation.record:
        path = run.directory / "game.gif"
        impala.record_game(env, network, plan.seed(3), path)
        print(f"recorded {path}", flush=True)


def main() -> None:
    config = read_config()
    try:
        with impala.session(config.layout.connect) as hosts:
            carry_out(config, hosts)
    except impala.SettingsError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
