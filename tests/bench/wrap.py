# SPDX-License-Identifier: MIT
"""A training step of `LearnerGroup.wrap` beside DistributedDataParallel over gloo.

`python -m tests.bench.wrap [RANKS] [STEPS]` prints the median time of a step of each,
in turns in the same processes, and their ratio. The network has nearly as many
parameters as ResNet-18 (11.5 million); its layers are multiplications, so that the
averaging, and not the convolutions, decides.
"""

from __future__ import annotations

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


class Net(nn.Module):
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


class Trainer:
    def join(self, name: str, store: str, size: int) -> int:
        self.group = moo.LearnerGroup(name, min_size=size)
        rank = self.group.rank
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=size
        )
        torch.manual_seed(0)
        self.models = {
            "alone": Net(),
            "wrap": self.group.wrap(Net()),
            "ddp": nn.parallel.DistributedDataParallel(Net()),
        }
        return rank

    def steps(self, kind: str, count: int) -> list[float]:
        model: Any = self.models[kind]
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
    times: dict[str, list[float]] = {"alone": [], "wrap": [], "ddp": []}
    with moo.init(), tempfile.TemporaryDirectory() as directory:
        trainers = moo.on(Trainer, num_cpus=0).group(ranks)
        trainers.call(Trainer.join, "bench", f"{directory}/store", ranks).get()
        for kind in times:
            trainers.call(Trainer.steps, kind, 3).get()
        for _ in range(rounds):
            for kind, found in times.items():
                rows = trainers.call(Trainer.steps, kind, steps).get()
                found.extend(map(max, zip(*rows, strict=True)))
    ms = {kind: 1e3 * statistics.median(found) for kind, found in times.items()}
    print(
        f"wrap.step, {ranks} processes: {ms['wrap']:.1f} ms; DDP over gloo "
        f"{ms['ddp']:.1f} ms ({ms['ddp'] / ms['wrap']:.2f} x); without averaging "
        f"{ms['alone']:.1f} ms"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
