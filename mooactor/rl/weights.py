# SPDX-License-Identifier: MIT
"""All parameters of a network at once: by name, as one gradient, as a fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

Weights = dict[str, Tensor]  # parameters by name


#: Makes an uninitialised tensor; `moo.empty` makes it in shared memory.
Allocate = Callable[[tuple[int, ...], torch.dtype], Tensor]


def flatten_gradients(network: nn.Module, allocate: Allocate) -> Tensor:
    """One flat float32 tensor whose views are the gradients of all parameters.

    Backward adds into it, so clear it with ``zero_()`` and not through the optimizer.
    Networks on a GPU get a buffer there; on the CPU ``allocate`` makes it, and with
    `moo.empty` an allreduce works on the gradients in place.
    """
    parameters = list(network.parameters())
    count = sum(parameter.numel() for parameter in parameters)
    device = parameters[0].device
    if device.type == "cpu":
        flat = allocate((count,), torch.float32)
    else:
        flat = torch.empty(count, device=device)
    start = 0
    for parameter in parameters:
        stop = start + parameter.numel()
        parameter.grad = flat[start:stop].view(parameter.shape)
        start = stop
    return flat


def weights_of(network: nn.Module) -> Weights:
    """The parameters and buffers by name, contiguous and on the CPU.

    Of a network on the CPU they are its own memory; of one on a GPU this waits for the
    GPU's work so far.
    """
    state = network.state_dict()
    return {name: value.cpu().contiguous() for name, value in state.items()}


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """A hash of names and values, equal for equal bits only. CPU tensors."""
    digest = hashlib.blake2b(digest_size=8)
    for name, value in weights.items():
        digest.update(name.encode())
        digest.update(value.contiguous().numpy().data)
    return digest.hexdigest()
