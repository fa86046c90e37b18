# SPDX-License-Identifier: MIT
"""`Batcher`: makes a learner's batches of unrolls from a `Supply`."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from mooactor.rl.checkpoints import State
from mooactor.rl.statistics import Episode, Meter
from mooactor.rl.supply import Supply
from mooactor.rl.unroll import Unroll, UnrollBuffer


@dataclass
class BatcherCounts:
    """Counts of the unrolls that a learner took since the last report.

    Attributes:
      episodes: games that ended within, with unclipped scores.
      played: steps of all environments.
      dropped: unrolls of one environment that were too old.
      lag_max: the largest policy lag of an unroll that was learned from, in updates.
      lost_calls: calls that the supply has lost with their actors, since its start.
    """

    episodes: list[Episode] = field(default_factory=list)
    played: int = 0
    dropped: int = 0
    lag_max: int = 0
    lost_calls: int = 0


class Batcher:
    """Takes unrolls for one learner; cuts and joins them to batches of equal size.

    Environments come in the order in which the supply gave them, and each is used
    once. An unroll that is more than ``max_lag`` updates old is dropped and counted.

    Args:
      supply: the supply to ask. None: there are only the ``pieces``.
      learner: its number, for `Supply.take`.
      batch: environments B in each batch, which may change between two of them.

    Attributes:
      pieces: unrolls taken and not used yet, oldest first.
      counts, meter: since the last `report`. The meter has ``policy_lag``, ``queue``,
        ``actor_busy``, ``environment_share`` and ``inference_share``.
    """

    def __init__(
        self, supply: Supply | None, learner: int, batch: int, max_lag: int
    ) -> None:
        self._supply = supply
        self._learner = learner
        self.batch = batch
        self._max_lag = max_lag
        self._buffer = UnrollBuffer()
        self._lost_calls = 0
        self.pieces: deque[Unroll] = deque()
        self._begin()

    def _begin(self) -> None:
        self.counts = BatcherCounts(lost_calls=self._lost_calls)
        self.meter = Meter()

    def next_batch(self, version: int, device: torch.device) -> Unroll:
        """The next batch, ``[T, B]``, on ``device``; waits until there is enough.

        ``version`` is that of the learner, from which lag is counted. The batch is
        valid until the next call; see `UnrollBuffer`.
        """
        wanted = self.batch
        taken: list[Unroll] = []
        while wanted:
            if not self.pieces:
                self._receive(version)
                continue
            piece = self.pieces.popleft()
            if self._too_old(piece, version):
                continue
            if piece.batch > wanted:
                self.pieces.appendleft(piece.columns(wanted, piece.batch))
                piece = piece.columns(0, wanted)
            taken.append(piece)
            wanted -= piece.batch
        return self._buffer.fill(taken, device)

    def report(self) -> tuple[BatcherCounts, dict[str, float]]:
        """The counts, and the means of the meter, since the last report."""
        counts, means = self.counts, self.meter.means()
        self._begin()
        return counts, means

    def state(self) -> list[State]:
        """The contents of ``pieces``, as tensors and plain values."""
        return [piece.state() for piece in self.pieces]

    def load(self, state: Sequence[State]) -> None:
        """Restore ``pieces`` from the result of `state`."""
        self.pieces = deque(map(Unroll.from_state, state))

    def _receive(self, version: int) -> None:
        assert self._supply is not None, "there is no supply to take an unroll from"
        taken = self._supply.take.remote(self._learner, version).get()
        unroll = taken.unroll[0].get()
        self.counts.episodes += unroll.episodes
        self.counts.played += unroll.batch * unroll.steps
        self.counts.lost_calls = self._lost_calls = taken.lost
        self.meter.add(
            {
                "queue": taken.ready,
                "actor_busy": unroll.busy_s / (unroll.busy_s + unroll.idle_s),
                "environment_share": unroll.environment_s / unroll.busy_s,
                "inference_share": unroll.inference_s / unroll.busy_s,
            }
        )
        self.pieces.append(unroll)

    def _too_old(self, piece: Unroll, version: int) -> bool:
        lag = version - piece.version
        if lag > self._max_lag:
            self.counts.dropped += piece.batch
            return True
        self.meter.add({"policy_lag": lag})
        self.counts.lag_max = max(self.counts.lag_max, lag)
        return False
