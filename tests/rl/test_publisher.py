# SPDX-License-Identifier: MIT
"""Weights on their way to a supply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from mooactor.rl import Publisher, Supply, fingerprint, make_network, weights_of

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


@pytest.mark.parametrize("device", DEVICES)
def test_each_version_arrives_as_it_was_when_it_was_published(
    spawn: Callable[..., Any], device: str
) -> None:
    """Though the weights are changed as soon as the call returns."""
    Publisher(make_network("mlp", (4,), 2), None).publish(1)  # nobody is told
    supply: Supply = spawn(Supply, 1)
    network = make_network("mlp", (4,), 2).to(device)
    publisher = Publisher(network, supply)
    for version in range(5):
        expected = fingerprint(weights_of(network))
        publisher.publish(version)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(1.0)
        arrived, weights = supply.weights.remote(version - 1, None).get()
        while arrived < version:  # a GPU's weights come when they are copied
            arrived, weights = supply.weights.remote(version - 1, None).get()
        assert weights is not None and fingerprint(weights) == expected
