# SPDX-License-Identifier: MIT
"""The surroundings of the snippets of docs/data-parallel.md: a model and batches."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

import mooactor as moo


def make_batches() -> Iterator[Tensor]:
    while True:
        yield torch.randn(32, 8)


def loss_of(model: nn.Module, samples: Tensor) -> Tensor:
    return nn.functional.mse_loss(model(samples), samples.sum(1)[:, None])


def gradients_of(model: nn.Module) -> list[Tensor]:
    parameters = list(model.parameters())
    return list(torch.autograd.grad(loss_of(model, next(batches)), parameters))


def apply(gradients: list[Tensor], model: nn.Module) -> None:
    for parameter, gradient in zip(model.parameters(), gradients):
        parameter.data -= 0.1 * gradient


def load(path: str) -> Any:
    return torch.load(path)


def save(state: Any, path: str) -> None:
    torch.save(state, path)


def make_model() -> nn.Module:
    return nn.Linear(8, 1)


batches, model = make_batches(), make_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
means = [torch.empty_like(p) for p in model.parameters()]
path = "checkpoint.pt"
save(
    {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "version": 7},
    path,
)
moo.init()
