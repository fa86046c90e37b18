# SPDX-License-Identifier: MIT
"""Networks: shapes, the recurrent state at episode starts, and what is refused."""

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
    [("shallow", IMAGES), ("deep", IMAGES), ("mlp", (5,)), ("deep", (3, 40, 60))],
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
    network = make_network("shallow", IMAGES, 4)
    count = sum(parameter.numel() for parameter in network.parameters())
    convolutions = 16 * (4 * 8 * 8 + 1) + 32 * (16 * 4 * 4 + 1)
    linear = 256 * (32 * 9 * 9 + 1) + 4 * 257 + 257
    assert count == convolutions + linear


@pytest.mark.parametrize(("shape", "width"), [(IMAGES, 256), ((4,), 64)])
def test_auto_chooses_by_the_observation(shape: tuple[int, ...], width: int) -> None:
    assert make_network("auto", shape, 2).features == width


def test_images_are_scaled_and_vectors_are_not() -> None:
    network = make_network("shallow", IMAGES, 4)
    first = torch.zeros(1, 2, dtype=torch.bool)
    images = observations(1, 2, IMAGES)
    scaled = network(images, first, network.initial_core(2))
    floats = network(images.float() / 255, first, network.initial_core(2))
    torch.testing.assert_close(scaled.logits, floats.logits)


def test_memory_format_changes_speed_and_not_results() -> None:
    network = make_network("shallow", IMAGES, 4)
    first, core = torch.zeros(2, 3, dtype=torch.bool), network.initial_core(3)
    images = observations(2, 3, IMAGES)
    learning = network(images, first, core)
    with torch.no_grad():
        acting = network(images, first, core)
    torch.testing.assert_close(learning.logits, acting.logits)
    torch.testing.assert_close(learning.values, acting.values)


def test_a_first_observation_clears_the_recurrent_state() -> None:
    network = make_network("mlp", (5,), 2, lstm=True)
    rows = observations(6, 2, (5,))
    first = torch.zeros(6, 2, dtype=torch.bool)
    first[3, 0] = True
    whole = network(rows, first, torch.randn(2, 2, network.features))
    fresh = network(rows[3:], first[3:], network.initial_core(2))
    torch.testing.assert_close(whole.values[3:, 0], fresh.values[:, 0])
    assert not torch.allclose(whole.values[3:, 1], fresh.values[:, 1])


def test_step_by_step_equals_the_unroll() -> None:
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


def test_a_new_policy_is_nearly_uniform() -> None:
    network = make_network("shallow", IMAGES, 4)
    first = torch.zeros(1, 8, dtype=torch.bool)
    output = network(observations(1, 8, IMAGES), first, network.initial_core(8))
    probabilities = output.logits.softmax(dim=-1)
    torch.testing.assert_close(
        probabilities, torch.full_like(probabilities, 0.25), atol=0.05, rtol=0
    )


def test_convolutions_for_a_vector_are_refused() -> None:
    with pytest.raises(ValueError, match="needs images"):
        make_network("deep", (5,), 2)


@pytest.mark.parametrize("name", ["auto", "shallow"])
@pytest.mark.parametrize("sides", [(7, 7), (19, 84), (84, 19)])
def test_images_too_small_for_the_shallow_network_are_refused(
    name: ModelName, sides: tuple[int, int]
) -> None:
    with pytest.raises(ValueError, match="at least 20x20.*choose the deep network"):
        make_network(name, (3, *sides), 2)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("shallow", (3, 20, 20)), ("deep", (3, 7, 7)), ("deep", (1, 1, 1))],
)
def test_the_smallest_images_that_are_let_through_work(
    name: ModelName, shape: tuple[int, ...]
) -> None:
    network = make_network(name, shape, 2)
    first = torch.zeros(2, 3, dtype=torch.bool)
    output = network(observations(2, 3, shape), first, network.initial_core(3))
    assert output.logits.shape == (2, 3, 2)


def test_an_unknown_network_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no network 'wide'.*'deep'"):
        make_network("wide", IMAGES, 2)  # type: ignore[arg-type]
