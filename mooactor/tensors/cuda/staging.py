# SPDX-License-Identifier: MIT
"""Bytes between a GPU and ordinary memory, by way of two pinned buffers.

A GPU copies at full speed, and beside other work, only from and to pinned memory. So
while it copies one chunk, the processor copies the one before (or behind) it. The
copies run on a stream of their own, which waits for the queued work of the caller's
current stream. Towards the GPU that stream waits for the copies; no other stream is
held up.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator

import torch

# Large enough that starting a copy (about 10 µs) is nothing beside it (150 µs at
# 50 GB/s), and small enough for the first chunk, which overlaps with nothing.
CHUNK = 8 << 20


class Stage:
    """The two pinned buffers of one device and one direction. One user at a time."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._slots = [_pinned() for _ in range(2)]
        with torch.cuda.device(device):
            self._events = [_event() for _ in range(2)]
        self._lock = threading.Lock()

    def to_host(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy bytes of the device to ordinary memory, and wait for that.

        Both are flat, of `uint8` and equally long.
        """
        with self._lock, torch.cuda.device(self._device):
            self._stream.wait_stream(torch.cuda.current_stream())
            on_the_way: list[tuple[int, slice]] = []
            for slot, part in _parts(source.numel()):
                self._start(slot, source[part], self._slots[slot][_front(part)])
                on_the_way.append((slot, part))
                if len(on_the_way) == 2:
                    self._take(target, *on_the_way.pop(0))
            for slot, part in on_the_way:
                self._take(target, slot, part)

    def to_device(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy bytes to the device, ahead of all later work of the current stream.

        When this returns, `source` is no longer needed, but the copy may be under way.
        """
        with self._lock, torch.cuda.device(self._device):
            current = torch.cuda.current_stream()
            # The allocator may have handed out memory that the current stream uses.
            self._stream.wait_stream(current)
            for slot, part in _parts(source.numel()):
                self._events[slot].synchronize()  # its former contents have left
                pinned = self._slots[slot][_front(part)]
                pinned.copy_(source[part])
                self._start(slot, pinned, target[part])
            # From here on the memory belongs to the current stream again, so the
            # allocator need not know of ours.
            current.wait_stream(self._stream)

    def _start(self, slot: int, source: torch.Tensor, target: torch.Tensor) -> None:
        with torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)
            self._events[slot].record()

    def _take(self, target: torch.Tensor, slot: int, part: slice) -> None:
        self._events[slot].synchronize()
        target[part].copy_(self._slots[slot][_front(part)])


def _pinned() -> torch.Tensor:
    return torch.empty(CHUNK, dtype=torch.uint8, pin_memory=True)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]


def _parts(nbytes: int) -> Iterator[tuple[int, slice]]:
    """The chunks, each with the slot that it goes through, in turns."""
    for number, start in enumerate(range(0, nbytes, CHUNK)):
        yield number % 2, slice(start, min(start + CHUNK, nbytes))


def _front(part: slice) -> slice:
    """The part of a slot that a chunk fills."""
    return slice(0, part.stop - part.start)


@functools.cache
def _stages(device: int) -> tuple[Stage, Stage]:
    return Stage(device), Stage(device)


_making = threading.Lock()


def to_host(source: torch.Tensor, target: torch.Tensor) -> None:
    """See `Stage.to_host`; `source` says which device."""
    with _making:
        stage, _ = _stages(source.get_device())
    stage.to_host(source, target)


def to_device(source: torch.Tensor, target: torch.Tensor) -> None:
    """See `Stage.to_device`; `target` says which device."""
    with _making:
        _, stage = _stages(target.get_device())
    stage.to_device(source, target)
