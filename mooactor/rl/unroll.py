# SPDX-License-Identifier: MIT
"""T steps of B environments, from one actor to one learner."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor

from mooactor.rl.checkpoints import State
from mooactor.rl.statistics import Episode
from mooactor.rl.weights import Allocate


@dataclass
class Unroll:
    """One unroll, time first: row t+1 of the observations is the outcome of action t.

    Attributes:
      observations: ``[T+1, B, …]``, uint8 images or float32.
      first: ``[T+1, B]`` bool, the observation begins an episode.
      actions: ``[T, B]`` int64.
      log_probs: ``[T, B]`` float32, of those actions under the policy that chose them.
      rewards: ``[T, B]`` float32, unclipped.
      terminal: ``[T, B]`` bool, later steps do not count for its return.
      valid: ``[T, B]`` bool, False where the action was ignored (an autoreset).
      core: ``[2, B, H]`` recurrent state before row 0.
      version: of the weights that chose the actions.
      episodes: games that ended within, with unclipped scores.
      busy_s, idle_s: the actor's seconds of work on this unroll, and of wait before.
      environment_s, inference_s: of ``busy_s``, for environments and for the network.
    """

    observations: Tensor
    first: Tensor
    actions: Tensor
    log_probs: Tensor
    rewards: Tensor
    terminal: Tensor
    valid: Tensor
    core: Tensor
    version: int = 0
    episodes: list[Episode] = field(default_factory=list)
    busy_s: float = 0.0
    idle_s: float = 0.0
    environment_s: float = 0.0
    inference_s: float = 0.0

    @classmethod
    def empty(
        cls,
        steps: int,
        batch: int,
        shape: Sequence[int],
        dtype: torch.dtype,
        core: Tensor,
        allocate: Allocate,
    ) -> Unroll:
        """An unroll to be filled; ``allocate(shape, dtype)`` makes the observations.

        With `moo.empty` as ``allocate`` the unroll crosses to another process without
        a copy. All else is a few kilobytes and is allocated plainly.
        """
        row = (steps, batch)
        return cls(
            observations=allocate((steps + 1, batch, *shape), dtype),
            first=torch.zeros(steps + 1, batch, dtype=torch.bool),
            actions=torch.zeros(row, dtype=torch.int64),
            log_probs=torch.zeros(row),
            rewards=torch.zeros(row),
            terminal=torch.zeros(row, dtype=torch.bool),
            valid=torch.zeros(row, dtype=torch.bool),
            core=core,
        )

    @property
    def steps(self) -> int:
        """T, the actions in each environment."""
        return self.actions.shape[0]

    @property
    def batch(self) -> int:
        """B, the environments side by side."""
        return self.actions.shape[1]

    def columns(self, start: int, stop: int) -> Unroll:
        """Environments ``start`` to ``stop`` as views, without the statistics."""
        narrowed = {
            name: getattr(self, name)[:, start:stop].detach() for name in _TENSORS
        }
        return replace(
            self,
            **narrowed,
            episodes=[],
            busy_s=0.0,
            idle_s=0.0,
            environment_s=0.0,
            inference_s=0.0,
        )

    def to(self, device: torch.device, *, non_blocking: bool = False) -> Unroll:
        """The same unroll with its tensors on ``device``.

        With ``non_blocking`` copies from pinned memory to a GPU are only started.
        """
        moved = {
            name: getattr(self, name).to(device, non_blocking=non_blocking)
            for name in _TENSORS
        }
        return replace(self, **moved)

    def state(self) -> State:
        """The unroll as tensors and plain values, for a checkpoint."""
        state = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return state | {"episodes": [tuple(game) for game in self.episodes]}

    @classmethod
    def from_state(cls, state: State) -> Unroll:
        """The unroll that `state` describes."""
        episodes = [Episode(*game) for game in state["episodes"]]
        return cls(**{**state, "episodes": episodes})


_TENSORS = [entry.name for entry in fields(Unroll) if entry.type == "Tensor"]


class UnrollBuffer:
    """Keeps the memory of a batch, and joins unrolls in it for a device.

    Joining a batch in new memory takes three times as long as in kept memory, because
    the kernel must first clear new memory page by page. The memory grows to the largest
    batch and stays. One thread at a time may use a buffer.

    **On the CPU** there is one buffer: `fill` overwrites the result of the former
    `fill`, so finish with a batch before you ask for the next.

    **On a GPU** there are two in pinned memory, used in turn. A batch is copied from
    its buffer on a stream of its own, so the copy runs beside the GPU's computation;
    the current stream of the caller waits for it, and the caller's thread does not.
    `fill` waits only for a copy from the same buffer, which the second `fill` before it
    started. The result is new GPU memory each time, and the caller's to keep.
    """

    def __init__(self) -> None:
        self._device = torch.device("cpu")
        self._pinned: deque[_Pinned] = deque()
        self._memory: dict[str, Tensor] = {}
        self._stream: torch.cuda.Stream | None = None

    def fill(self, pieces: Sequence[Unroll], device: torch.device) -> Unroll:
        """Put ``pieces``, CPU unrolls of equal length, side by side on ``device``.

        The batch has the B of all pieces together, which may differ from call to call.
        Its version is the oldest of theirs. The pieces may be freed
        or overwritten as soon as this returns. One piece alone for the CPU is the
        batch: it is returned as it is, uncopied.

        Raises:
          ValueError: there are no pieces, or they differ in more than their batch.
        """
        _check_fit(pieces)
        if device.type == "cuda":
            return self._fill_pinned(pieces, device)
        if len(pieces) > 1:
            return _join_into(self._memory, pieces, pinned=False).to(device)
        return pieces[0].to(device)

    def _fill_pinned(self, pieces: Sequence[Unroll], device: torch.device) -> Unroll:
        if self._stream is None or device != self._device:
            self._device = device
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._pinned = deque([_Pinned(), _Pinned()])
        pinned = self._pinned[0]
        self._pinned.rotate()
        pinned.copied.synchronize()  # the copy that reads this memory has ended
        joined = _join_into(pinned.memory, pieces, pinned=True)
        with torch.cuda.stream(self._stream):
            batch = joined.to(device, non_blocking=True)
            pinned.copied.record(self._stream)
        computing = torch.cuda.current_stream(device)
        computing.wait_event(pinned.copied)
        for name in _TENSORS:  # not to be reused for a copy while it is computed with
            getattr(batch, name).record_stream(computing)
        return batch


class _Pinned:
    """Pinned memory, and the event after the last copy from it to the GPU."""

    def __init__(self) -> None:
        self.memory: dict[str, Tensor] = {}
        self.copied = torch.cuda.Event()  # type: ignore[no-untyped-call]


def _join_into(
    memory: dict[str, Tensor], pieces: Sequence[Unroll], *, pinned: bool
) -> Unroll:
    """The pieces side by side in ``memory``, a flat tensor for each name that grows."""
    joined = {}
    for name, parts in _parts(pieces):
        width = sum(part.shape[1] for part in parts)
        shape = (parts[0].shape[0], width, *parts[0].shape[2:])
        kept = _at_least(memory, name, math.prod(shape), parts[0].dtype, pinned)
        joined[name] = kept[: math.prod(shape)].view(shape)
        torch.cat(parts, dim=1, out=joined[name])
    return _side_by_side(pieces, joined)


def _at_least(
    memory: dict[str, Tensor], name: str, count: int, dtype: torch.dtype, pinned: bool
) -> Tensor:
    kept = memory.get(name)
    if kept is None or kept.numel() < count or kept.dtype != dtype:
        kept = torch.empty(count, dtype=dtype, pin_memory=pinned)
        memory[name] = kept
    return kept


def _parts(unrolls: Sequence[Unroll]) -> list[tuple[str, list[Tensor]]]:
    return [(name, [getattr(unroll, name) for unroll in unrolls]) for name in _TENSORS]


def _check_fit(unrolls: Sequence[Unroll]) -> None:
    if not unrolls:
        raise ValueError("no unrolls to join: give at least one")
    for name, parts in _parts(unrolls):
        kinds = [(part.dtype, part.shape[0], part.shape[2:]) for part in parts]
        odd = next((index for index, kind in enumerate(kinds) if kind != kinds[0]), 0)
        if odd:
            raise ValueError(
                f"{name} of unroll {odd} are {_describe(parts[odd])}, which do not fit "
                f"beside {_describe(parts[0])}: join unrolls of equal length and kind"
            )


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _side_by_side(unrolls: Sequence[Unroll], joined: dict[str, Tensor]) -> Unroll:
    return replace(
        unrolls[0],
        **joined,
        version=min(unroll.version for unroll in unrolls),
        episodes=[episode for unroll in unrolls for episode in unroll.episodes],
        busy_s=sum(unroll.busy_s for unroll in unrolls),
        idle_s=sum(unroll.idle_s for unroll in unrolls),
        environment_s=sum(unroll.environment_s for unroll in unrolls),
        inference_s=sum(unroll.inference_s for unroll in unrolls),
    )
