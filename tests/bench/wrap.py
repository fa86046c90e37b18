# SPDX-License-Identifier: MIT
"""A training step of `LearnerGroup.wrap` beside DistributedDataParallel over gloo.

`python -m tests.bench.wrap [RANKS] [STEPS]` prints the median time of a step of each,
in turns in the same processes, and their ratio, for two modules. One has the parameters
of ResNet-18 (11.7 million) and hardly computes, so the averaging decides. The other has
nearly as many (11.5 million) in layers of multiplications.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from typing import Any

import torch
from torch import nn

import mooactor as moo

#: (inputs, outputs) of layers with as many weights as the convolutions of ResNet-18.
LAYERS = (
    *[(64, 576)] * 4,
    *[(128, 576), *[(128, 1152)] * 3],
    *[(256, 1152), *[(256, 2304)] * 3],
    *[(512, 2304), *[(512, 4608)] * 3],
    (512, 1000),
)


#: Of ResNet-18: channels, and whether a stage begins with a projection.
STAGES = ((64, False), (128, True), (256, True), (512, True))


def shapes() -> list[tuple[int, ...]]:
    """The parameters of ResNet-18."""
    found: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    inside = 64
    for channels, projects in STAGES:
        for before in (inside, channels):
            found += [(channels, before, 3, 3), (channels,), (channels,)]
            found += [(channels, channels, 3, 3), (channels,), (channels,)]
        if projects:
            found += [(channels, inside, 1, 1), (channels,), (channels,)]
        inside = channels
    return [*found, (1000, 512), (1000,)]


class Parameters(nn.Module):
    """Their sum."""

    def __init__(self) -> None:
        super().__init__()
        self.all = nn.ParameterList(nn.Parameter(torch.zeros(s)) for s in shapes())

    def forward(self, x: Any) -> Any:
        return sum(parameter.sum() for parameter in self.all) * x[0, 0]


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*sizes) for sizes in LAYERS)

    def forward(self, x: Any) -> Any:
        total = x.new_zeros(())
        for layer in self.layers:
            y = torch.tanh(layer(x[:, : layer.in_features]))
            total = total + y.square().mean()
            x = torch.cat([y[:, :512], x[:, y.shape[1] :]], 1)[:, :512]
        return total


MODULES: tuple[type[nn.Module], ...] = (Parameters, Layers)


class Trainer:
    def join(self, name: str, store: str, size: int) -> int:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // size))
        self.group = moo.LearnerGroup(name, min_size=size)
        rank = self.group.rank
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=size
        )
        torch.manual_seed(0)
        self.models = {
            module.__name__: {
                "alone": module(),
                "wrap": self.group.wrap(module()),
                "ddp": nn.parallel.DistributedDataParallel(module()),
            }
            for module in MODULES
        }
        return rank

    def steps(self, module: str, kind: str, count: int) -> list[float]:
        model: Any = self.models[module][kind]
        x = torch.randn(2, 512)
        seconds = []
        for _ in range(count):
            self.group.barrier()
            begun = time.perf_counter()
            model.zero_grad()
            model(x).backward()
            seconds.append(time.perf_counter() - begun)
        return seconds


def main(ranks: int = 2, steps: int = 10, rounds: int = 5) -> None:
    with moo.init(), tempfile.TemporaryDirectory() as directory:
        trainers = moo.on(Trainer, num_cpus=0).group(ranks)
        trainers.call(Trainer.join, "bench", f"{directory}/store", ranks).get()
        for module in MODULES:
            times: dict[str, list[float]] = {"alone": [], "wrap": [], "ddp": []}
            for turn in range(rounds + 1):
                for kind, found in times.items():
                    call = (module.__name__, kind, steps if turn else 3)
                    rows = trainers.call(Trainer.steps, *call).get()
                    if turn:  # the first one warms up
                        found.extend(map(max, zip(*rows, strict=True)))
            ms = {kind: 1e3 * statistics.median(t) for kind, t in times.items()}
            print(
                f"wrap.step, {ranks} processes, {module.__name__}:",
                f"{ms['wrap']:.1f} ms;",
                f"DDP over gloo {ms['ddp']:.1f} ms ({ms['ddp'] / ms['wrap']:.2f} x);",
                f"without averaging {ms['alone']:.1f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
