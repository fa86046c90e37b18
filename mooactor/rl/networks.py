# SPDX-License-Identifier: MIT
"""Actor-critic networks: the two of the IMPALA paper for images, an MLP for vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ModelName = Literal["auto", "shallow", "deep", "mlp"]
FEATURES = 256
MLP_FEATURES = 64
SHALLOW_SIDE = 20  # the least for the strides of the shallow network


class PolicyOutput(NamedTuple):
    """``logits`` ``[T, B, A]``, ``values`` ``[T, B]``, and the core after step T."""

    logits: Tensor
    values: Tensor
    core: Tensor


class ActorCritic(nn.Module):
    """A body, an optional LSTM, and two linear heads: action logits and value."""

    def __init__(
        self, body: nn.Module, features: int, actions: int, lstm: bool
    ) -> None:
        super().__init__()
        self.body = body
        self.features = features
        self.lstm = nn.LSTM(features, features) if lstm else None
        self.policy = nn.Linear(features, actions)
        self.baseline = nn.Linear(features, 1)
        self._initialise()

    def initial_core(self, batch: int) -> Tensor:
        """The recurrent state at the start, ``[2, B, H]``; H is 0 without LSTM."""
        return torch.zeros(2, batch, self.features if self.lstm else 0)

    def forward(
        self, observations: Tensor, first: Tensor, core: Tensor
    ) -> PolicyOutput:
        """Run T steps of B environments.

        ``observations`` is ``[T, B, …]``; uint8 images are scaled to 0..1 here.
        ``first`` ``[T, B]`` marks observations that begin an episode, before which the
        recurrent state ``core`` ``[2, B, H]`` is cleared.
        """
        steps, batch = first.shape
        features: Tensor = self.body(_as_floats(observations.flatten(0, 1)))
        if self.lstm is not None:
            unrolled = features.view(steps, batch, -1)
            features, core = self._recur(self.lstm, unrolled, first, core)
        logits = self.policy(features).view(steps, batch, -1)
        values = self.baseline(features).view(steps, batch)
        return PolicyOutput(logits, values, core)

    def _initialise(self) -> None:
        """Orthogonal weights (Saxe et al., 2013), and a near-uniform policy.

        The gains keep the size of features. Torch's own scale shrinks them by 0.4 in
        each layer of rectifiers, which delays the first progress on Atari.
        """
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.orthogonal_(layer.weight, 2**0.5)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        nn.init.orthogonal_(self.policy.weight, 0.01)
        nn.init.orthogonal_(self.baseline.weight, 1.0)

    def _recur(
        self, lstm: nn.LSTM, features: Tensor, first: Tensor, core: Tensor
    ) -> tuple[Tensor, Tensor]:
        outputs = []
        for step_features, step_first in zip(features, first, strict=True):
            core = core * ~step_first[:, None]
            output, (hidden, cell) = lstm(step_features[None], (core[:1], core[1:]))
            core = torch.cat([hidden, cell])
            outputs.append(output[0])
        return torch.cat(outputs), core


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        inner = self.second(F.relu(self.first(F.relu(images))))
        return images + inner  # type: ignore[no-any-return]


def shallow_body(shape: Sequence[int]) -> nn.Module:
    """The paper's shallow network: 16 8x8/4 and 32 4x4/2 convolutions, 256 units.

    Raises:
      ValueError: the images ``[C, H, W]`` are smaller than 20x20.
    """
    if min(shape[1:]) < SHALLOW_SIDE:
        height, width = shape[1:]
        raise ValueError(
            f"the shallow network needs images of at least {SHALLOW_SIDE}x"
            f"{SHALLOW_SIDE}, but these are {height}x{width}: choose the deep network "
            "or the mlp, or enlarge them with gymnasium.wrappers.ResizeObservation"
        )
    convolutions = nn.Sequential(
        nn.Conv2d(shape[0], 16, 8, stride=4),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.ReLU(),
        nn.Flatten(),
    )
    return _with_linear(convolutions, shape)


def deep_body(shape: Sequence[int]) -> nn.Module:
    """The paper's deep network: three residual sections of 16, 32, 32 channels."""
    layers: list[nn.Module] = []
    channels = shape[0]
    for width in (16, 32, 32):
        layers += [
            nn.Conv2d(channels, width, 3, padding=1),
            nn.MaxPool2d(3, stride=2, padding=1),
            _Residual(width),
            _Residual(width),
        ]
        channels = width
    return _with_linear(nn.Sequential(*layers, nn.ReLU(), nn.Flatten()), shape)


def mlp_body(shape: Sequence[int]) -> nn.Module:
    """Two tanh layers of 64 units, for observations that are vectors."""
    width = MLP_FEATURES
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(_volume(shape), width),
        nn.Tanh(),
        nn.Linear(width, width),
        nn.Tanh(),
    )


def make_network(
    name: ModelName, shape: Sequence[int], actions: int, *, lstm: bool = False
) -> ActorCritic:
    """Build the network ``name`` for observations of ``shape``.

    ``"auto"`` is the shallow network for images and the MLP for all else.

    Raises:
      ValueError: there is no such network, it needs images and ``shape`` is not
        ``(C, H, W)``, or the images are too small for it.
    """
    if name not in get_args(ModelName):
        raise ValueError(f"no network {name!r}: choose of {get_args(ModelName)}")
    if name == "auto":
        name = "shallow" if len(shape) == 3 else "mlp"
    if name == "mlp":
        return ActorCritic(mlp_body(shape), MLP_FEATURES, actions, lstm)
    if len(shape) != 3:
        raise ValueError(
            f"{name!r} needs images, but observations are {tuple(shape)}: choose mlp"
        )
    body = shallow_body(shape) if name == "shallow" else deep_body(shape)
    return ActorCritic(body, FEATURES, actions, lstm)


def _with_linear(body: nn.Sequential, shape: Sequence[int]) -> nn.Module:
    with torch.no_grad():
        width = body(torch.zeros(1, *shape)).shape[1]
    return nn.Sequential(*body, nn.Linear(width, FEATURES), nn.ReLU())


def _as_floats(observations: Tensor) -> Tensor:
    if observations.dtype != torch.uint8:
        return observations
    if torch.is_grad_enabled():  # backward is 1.6 times as fast on CPUs; forward is not
        observations = observations.contiguous(memory_format=torch.channels_last)
    return observations.float().mul_(1 / 255)


def _volume(shape: Sequence[int]) -> int:
    volume = 1
    for side in shape:
        volume *= side
    return volume
