# SPDX-License-Identifier: MIT
"""An actor class as users write one; the fixtures of the typing tests call it."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from mooactor import actor, method


@dataclass
class Batch:
    """An argument of a type of one's own."""

    rewards: list[float]


@actor
class Learner:
    """Methods of every kind, described by ``@method`` and bare."""

    def __init__(self, lr: float = 1e-3) -> None:
        self.lr = lr

    @method
    def step(self, batch: Batch, scale: float = 1.0) -> float:
        return scale * sum(batch.rewards)

    @method(read_only=True)
    async def weights(self) -> dict[str, float]:
        return {"lr": self.lr}

    def version(self) -> int:
        return 3

    async def evaluate(self, games: int) -> list[float]:
        return [0.0] * games

    def rollout(self, n: int) -> Iterator[Batch]:
        for _ in range(n):
            yield Batch([1.0])

    @method(timeout=5.0, priority=1, stream_window=4)
    def frames(self, n: int) -> Iterator[Batch]:
        yield from self.rollout(n)

    async def events(self) -> AsyncIterator[str]:
        yield "started"


@actor(max_concurrency=4, max_pending=100)
class Server:
    """Decorated with options."""

    def answer(self, question: str) -> str:
        return question
