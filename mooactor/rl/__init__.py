# SPDX-License-Identifier: MIT
"""Parts for reinforcement learning; importing this imports torch and gymnasium."""

from mooactor.rl.backends import (
    AtariEnvironments,
    GymEnvironments,
    atari_game,
    make_environments,
)
from mooactor.rl.batcher import Batcher, BatcherCounts
from mooactor.rl.checkpoints import State, load_checkpoint, save_checkpoint
from mooactor.rl.env_runner import EnvRunner, Player, empty_unroll
from mooactor.rl.environments import Environments, StepResult
from mooactor.rl.evaluation import evaluate, play_games
from mooactor.rl.guard import EnvironmentFailed
from mooactor.rl.networks import ActorCritic, ModelName, PolicyOutput, make_network
from mooactor.rl.publisher import Publisher
from mooactor.rl.statistics import (
    Episode,
    EpisodeCounter,
    Meter,
    approximate_kl,
    bootstrap_interval,
    explained_variance,
    off_policy_facts,
)
from mooactor.rl.supply import RESTART, Supply, fetch_weights
from mooactor.rl.unroll import Unroll, UnrollBuffer
from mooactor.rl.vtrace import VTrace, vtrace
from mooactor.rl.weights import Weights, fingerprint, weights_of

__all__ = [
    "ActorCritic",
    "AtariEnvironments",
    "Batcher",
    "BatcherCounts",
    "EnvRunner",
    "EnvironmentFailed",
    "Environments",
    "Episode",
    "EpisodeCounter",
    "GymEnvironments",
    "Meter",
    "ModelName",
    "Player",
    "PolicyOutput",
    "Publisher",
    "RESTART",
    "State",
    "StepResult",
    "Supply",
    "Unroll",
    "UnrollBuffer",
    "VTrace",
    "Weights",
    "approximate_kl",
    "atari_game",
    "bootstrap_interval",
    "empty_unroll",
    "evaluate",
    "explained_variance",
    "fetch_weights",
    "fingerprint",
    "load_checkpoint",
    "make_environments",
    "make_network",
    "off_policy_facts",
    "play_games",
    "save_checkpoint",
    "vtrace",
    "weights_of",
]
