# SPDX-License-Identifier: MIT
"""`Publisher`: sends a learner's weights to a `Supply` after each update."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import nn

from mooactor.rl.supply import Supply
from mooactor.rl.weights import Weights, weights_of


class Publisher:
    """Publishes the weights of ``network``; without a supply it does nothing.

    **On the CPU** they are sent before `publish` returns.

    **On a GPU** `publish` waits neither for the update that the GPU still computes nor
    for the copy of the weights. The copy goes to pinned memory on a stream of its own.
    The GPU begins later work only after the copy, so the weights may then change. A
    thread sends the copy. Versions are sent in the order of the calls. An error of the
    thread is raised by the next `publish`.

    One thread at a time may use a publisher.
    """

    def __init__(self, network: nn.Module, supply: Supply | None) -> None:
        self._network = network
        self._supply = supply
        device = next(network.parameters()).device
        self._copy = _PinnedCopy(network, device) if device.type == "cuda" else None
        self._thread = ThreadPoolExecutor(1, "publisher")  # starts with its first work
        self._sending: Future[None] | None = None

    def publish(self, version: int) -> None:
        """Publish the network's present weights as those of ``version``."""
        if self._supply is None:
            return
        if self._copy is None:
            self._supply.publish.tell(version, weights_of(self._network))
            return
        if self._sending is not None:
            self._sending.result()  # the memory is free again
        self._copy.start()
        self._sending = self._thread.submit(
            self._send, self._supply, version, self._copy
        )

    @staticmethod
    def _send(supply: Supply, version: int, copy: _PinnedCopy) -> None:
        supply.publish.tell(version, copy.wait())


class _PinnedCopy:
    """The weights of a network on a GPU, in pinned memory."""

    def __init__(self, network: nn.Module, device: torch.device) -> None:
        self._network = network
        self._device = device
        self._pinned: Weights = {
            name: torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
            for name, value in network.state_dict().items()
        }
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def start(self) -> None:
        """Copy the weights as they are after the GPU's work so far."""
        computing = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(computing)
        with torch.cuda.stream(self._stream):
            for name, value in self._network.state_dict().items():
                self._pinned[name].copy_(value, non_blocking=True)
            self._copied.record(self._stream)
        computing.wait_event(self._copied)  # later work may change the weights

    def wait(self) -> Weights:
        """Wait for the copy and return it; valid until the next `start`."""
        self._copied.synchronize()
        return self._pinned
