# SPDX-License-Identifier: MIT
"""Full games after training, in processes of their own; what cannot be filmed.

A run of the example films one, see tests/examples/test_impala_runs.py."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch

from mooactor.rl import (
    EnvironmentSettings,
    Player,
    SettingsError,
    check_recording,
    evaluate,
    make_network,
    play_games,
    print_evaluation,
)

CART_POLE = EnvironmentSettings("CartPole-v1")


def test_each_process_plays_its_share_with_the_weights_it_was_sent(
    session: Any,
) -> None:
    """As games played here, by the same network and with the same seeds."""
    torch.manual_seed(1)
    network = make_network("mlp", (4,), 2, lstm=True)
    scores = evaluate(CART_POLE, network, 5, [11, 12])
    expected = []
    for games, seed in ((3, 11), (2, 12)):
        environments, player = CART_POLE.make(games), Player(network, 2, games, seed)
        expected += [game.score for game in play_games(environments, player, seed)]
        environments.close()
    assert scores == expected


def test_a_random_policy_is_judged_beside_it(
    session: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    print_evaluation(CART_POLE, make_network("mlp", (4,), 2), 4, [1])
    trained, random = capsys.readouterr().out.splitlines()
    assert trained.startswith("trained policy: return ")
    assert random.startswith("random policy: return ")
    assert random.endswith(" over 4 full games")


@pytest.mark.skipif(find_spec("pygame") is not None, reason="pygame can draw it")
def test_what_cannot_be_drawn_is_refused_before_training() -> None:
    check_recording(EnvironmentSettings("ALE/Breakout-v5"))
    with pytest.raises(
        SettingsError, match="--record: CartPole-v1 cannot be drawn: py"
    ):
        check_recording(CART_POLE)
