# SPDX-License-Identifier: MIT
"""Full games after training, in processes of their own and as a film."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from PIL import Image

from mooactor.rl import (
    EnvironmentSettings,
    Player,
    SettingsError,
    check_recording,
    evaluate,
    make_network,
    play_games,
    print_evaluation,
    record_game,
)

CART_POLE = EnvironmentSettings("CartPole-v1")
BREAKOUT = EnvironmentSettings("ALE/Breakout-v5")


@pytest.mark.slow
@pytest.mark.usefixtures("session")
def test_each_process_plays_its_share_with_the_weights_it_was_sent() -> None:
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


@pytest.mark.usefixtures("session")
def test_a_random_policy_is_judged_beside_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_evaluation(CART_POLE, make_network("mlp", (4,), 2), 4, [1])
    trained, random = capsys.readouterr().out.splitlines()
    assert trained.startswith("trained policy: return ")
    assert random.startswith("random policy: return ")
    assert random.endswith(" over 4 full games")


@pytest.mark.slow
def test_a_recorded_game_is_a_film(tmp_path: Path) -> None:
    check_recording(BREAKOUT)
    network = make_network("shallow", (4, 84, 84), 4)
    record_game(BREAKOUT, network, 1, tmp_path / "game.gif")
    with Image.open(tmp_path / "game.gif") as film:
        assert film.size == (160, 210)
        assert film.is_animated  # type: ignore[attr-defined]


@pytest.mark.skipif(find_spec("pygame") is not None, reason="pygame can draw it")
def test_what_cannot_be_drawn_is_refused_before_training() -> None:
    with pytest.raises(
        SettingsError, match="--record: CartPole-v1 cannot be drawn: py"
    ):
        check_recording(CART_POLE)
