# SPDX-License-Identifier: MIT
"""Parts for reinforcement learning; importing this imports torch and gymnasium."""

from mooactor.rl.backends import AtariEnvironments as AtariEnvironments
from mooactor.rl.backends import GymEnvironments as GymEnvironments
from mooactor.rl.backends import make_environments as make_environments
from mooactor.rl.camera import Camera as Camera
from mooactor.rl.checkpoints import load_checkpoint as load_checkpoint
from mooactor.rl.checkpoints import save_checkpoint as save_checkpoint
from mooactor.rl.display import Display as Display
from mooactor.rl.env_ids import atari_game as atari_game
from mooactor.rl.environments import Environments as Environments
from mooactor.rl.environments import Outcome as Outcome
from mooactor.rl.episodes import Episode as Episode
from mooactor.rl.episodes import EpisodeCounter as EpisodeCounter
from mooactor.rl.guard import EnvironmentFailed as EnvironmentFailed
from mooactor.rl.interrupts import interrupts as interrupts
from mooactor.rl.networks import ActorCritic as ActorCritic
from mooactor.rl.networks import ModelName as ModelName
from mooactor.rl.networks import PolicyOutput as PolicyOutput
from mooactor.rl.networks import make_network as make_network
from mooactor.rl.parameters import fingerprint as fingerprint
from mooactor.rl.parameters import flatten_gradients as flatten_gradients
from mooactor.rl.play import Player as Player
from mooactor.rl.play import film_game as film_game
from mooactor.rl.play import play_games as play_games
from mooactor.rl.runlog import RunLog as RunLog
from mooactor.rl.statistics import Interval as Interval
from mooactor.rl.statistics import approximate_kl as approximate_kl
from mooactor.rl.statistics import bootstrap_interval as bootstrap_interval
from mooactor.rl.statistics import explained_variance as explained_variance
from mooactor.rl.unroll import Unroll as Unroll
from mooactor.rl.unroll import UnrollBuffer as UnrollBuffer
from mooactor.rl.unroll import join_unrolls as join_unrolls
from mooactor.rl.vtrace import VTrace as VTrace
from mooactor.rl.vtrace import vtrace as vtrace
