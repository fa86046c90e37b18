# SPDX-License-Identifier: MIT
"""Networks: shapes, and the recurrent state at episode starts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mooactor.rl import ModelName, make_network

IMAGES = (4, 84, 84)


def observations(steps: int, batch: int, shape: tuple[int, ...]) -> Tensor:
    if len(shape) == 1:
        return torch.randn(steps, batch, *shape)
    return torch.randint(0, 256, (steps, batch, *shape), dtype=torch.uint8)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("shallow", (3, 20, 20)), ("deep", IMAGES), ("mlp", (5,)), ("deep", (1, 1, 1))],
)
@pytest.mark.parametrize("lstm", [False, True])
def test_outputs_have_the_documented_shapes(
    name: ModelName, shape: tuple[int, ...], lstm: bool
) -> None:
    network = make_network(name, shape, 6, lstm=lstm)
    core = network.initial_core(2)
    first = torch.zeros(3, 2, dtype=torch.bool)
    output = network(observations(3, 2, shape), first, core)
    assert output.logits.shape == (3, 2, 6)
    assert output.values.shape == (3, 2)
    assert output.core.shape == core.shape


def test_the_shallow_network_is_that_of_the_paper() -> None:
    network = make_network("auto", IMAGES, 4)
    count = sum(parameter.numel() for parameter in network.parameters())
    convolutions = 16 * (4 * 8 * 8 + 1) + 32 * (16 * 4 * 4 + 1)
    linear = 256 * (32 * 9 * 9 + 1) + 4 * 257 + 257
    assert count == convolutions + linear
    assert network.features == 256 and make_network("auto", (4,), 2).features == 64


def test_images_are_scaled_whether_it_learns_or_acts() -> None:
    """Its memory format differs then, and its results do not."""
    network = make_network("shallow", IMAGES, 4)
    first, core = torch.zeros(2, 3, dtype=torch.bool), network.initial_core(3)
    images = observations(2, 3, IMAGES)
    learning, floats = (
        network(inputs, first, core) for inputs in (images, images.float() / 255)
    )
    with torch.no_grad():
        acting = network(images, first, core)
    for other in (floats, acting):
        torch.testing.assert_close(learning.logits, other.logits)
        torch.testing.assert_close(learning.values, other.values)


def test_step_by_step_equals_the_unroll_and_a_first_observation_clears_it() -> None:
    network = make_network("mlp", (5,), 2, lstm=True)
    rows, core = observations(6, 2, (5,)), network.initial_core(2)
    first = torch.zeros(6, 2, dtype=torch.bool)
    first[4, 1] = True
    unrolled = network(rows, first, core)
    for step in range(6):
        output = network(rows[step : step + 1], first[step : step + 1], core)
        core = output.core
        torch.testing.assert_close(output.logits[0], unrolled.logits[step])
    torch.testing.assert_close(core, unrolled.core)
    # From a first observation on it is as if nothing had been before.
    fresh = network(rows[4:], first[4:], network.initial_core(2))
    torch.testing.assert_close(unrolled.values[4:, 1], fresh.values[:, 1])
    assert not torch.allclose(unrolled.values[4:, 0], fresh.values[:, 0])
