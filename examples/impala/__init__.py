# SPDX-License-Identifier: MIT
"""The parts of the IMPALA example that are not the algorithm's, in reading order:
settings, environment, layout, runs, games, progress, crew, runlog, display, evaluation
and ceiling. The parts that other algorithms use, too, are in `mooactor.rl`."""

from impala.ceiling import Ceiling as Ceiling
from impala.ceiling import StepCost as StepCost
from impala.ceiling import measure_ceiling as measure_ceiling
from impala.crew import AllLearnersLost as AllLearnersLost
from impala.crew import Crew as Crew
from impala.display import Display as Display
from impala.environment import Camera as Camera
from impala.environment import EnvironmentSettings as EnvironmentSettings
from impala.environment import Spaces as Spaces
from impala.evaluation import EvaluationSettings as EvaluationSettings
from impala.evaluation import check_recording as check_recording
from impala.evaluation import print_evaluation as print_evaluation
from impala.evaluation import record_game as record_game
from impala.games import games_under_way as games_under_way
from impala.games import load_games_under_way as load_games_under_way
from impala.layout import Layout as Layout
from impala.layout import LayoutSettings as LayoutSettings
from impala.layout import Newcomers as Newcomers
from impala.layout import choose_layout as choose_layout
from impala.layout import session as session
from impala.layout import share as share
from impala.progress import LearnerReport as LearnerReport
from impala.progress import Pace as Pace
from impala.progress import Progress as Progress
from impala.runlog import Row as Row
from impala.runlog import RunLog as RunLog
from impala.runs import Run as Run
from impala.runs import RunSettings as RunSettings
from impala.runs import interrupts as interrupts
from impala.settings import NetworkSettings as NetworkSettings
from impala.settings import SettingsError as SettingsError
from impala.settings import SupplySettings as SupplySettings
from impala.settings import Within as Within
from impala.settings import check_ranges as check_ranges
from impala.settings import flatten as flatten
