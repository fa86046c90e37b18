# SPDX-License-Identifier: MIT
"""Games under way: the state from which a run in a fixed order goes on exactly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from mooactor import get, put, submit
from mooactor.actors.decorator import BoundMethod
from mooactor.rl import State, Supply, Unroll
from mooactor.rl.supply import Asked

LanesState = list[list[tuple[int, int | None, State]]]
RETRIES = 3  # of a call that an actor's death interrupts: it only reads


class KeepsGames(Protocol):
    """A handle of an actor that plays games, or of a learner that has unrolls left."""

    @property
    def games(self) -> BoundMethod[[], list[State]]:
        """The state for `load_games` to go on from here, as plain values. It changes
        nothing."""

    def load_games(self, games: list[State], /) -> None:
        """Go on from the result of `games`."""


def games_under_way(
    supply: Supply, actors: Iterable[KeepsGames], learners: Iterable[KeepsGames]
) -> State:
    """The state of all games, for a checkpoint; the learners are between two updates.

    The supply is one with ``in_order``. An actor that dies meanwhile and is started
    again is asked again, and gives the state of its new games.
    """
    return {
        "lanes": _lanes_state(supply.freeze.remote().get()),
        "kept": get([submit(learner.games) for learner in learners]),
        "actors": get(
            [actor.games.options(retries=RETRIES).remote() for actor in actors]
        ),
    }


def load_games_under_way(
    state: State, actors: Iterable[KeepsGames], learners: Iterable[KeepsGames]
) -> list[list[Asked]]:
    """Let as many actors and learners go on from the result of `games_under_way`.

    Returns the lanes with which to start the supply.
    """
    keepers = [*actors, *learners]
    games = [*state["actors"], *state["kept"]]
    pairs = zip(keepers, games, strict=True)
    get([submit(keeper.load_games, each) for keeper, each in pairs])
    return _lanes_from_state(state["lanes"])


def _lanes_state(lanes: Sequence[Sequence[Asked]]) -> LanesState:
    """The result of `Supply.freeze`, as tensors and plain values for a checkpoint."""
    return [
        [(actor, version, unroll.get().state()) for actor, version, unroll in lane]
        for lane in lanes
    ]


def _lanes_from_state(state: LanesState) -> list[list[Asked]]:
    """The lanes that `_lanes_state` describes, for `Supply.start`."""
    return [
        [
            Asked(actor, version, put(Unroll.from_state(unroll)))
            for actor, version, unroll in lane
        ]
        for lane in state
    ]
