# SPDX-License-Identifier: MIT
"""A learner group: data-parallel training without torch.distributed.

Run it: `python examples/allreduce.py`
"""

import torch
from torch import nn

import mooactor as moo
from mooactor import actor, method

LEARNERS = 2
STEPS = 60


@actor
class Learner:
    """Trains on its own half of the data; gradients are averaged with its peers."""

    def __init__(self, rank: int) -> None:
        torch.manual_seed(rank)  # different weights, until the broadcast
        self.model = nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        truth = torch.arange(8.0)
        self.inputs = torch.randn(256, 8)
        self.targets = self.inputs @ truth[:, None]

    def join(self) -> int:
        self.group = moo.LearnerGroup("learners", min_size=LEARNERS)
        self.group.broadcast(self.parameters(), root=0).wait()
        return self.group.rank

    def parameters(self) -> list[torch.Tensor]:
        return [p.data for p in self.model.parameters()]

    @method
    def train(self, steps: int) -> float:
        for _ in range(steps):
            loss = nn.functional.mse_loss(self.model(self.inputs), self.targets)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            gradients = [p.grad for p in self.model.parameters()]
            self.group.allreduce(gradients, op="mean").wait()  # in place
            self.optimizer.step()
        return loss.item()

    def weights(self) -> bytes:
        return b"".join(p.numpy().tobytes() for p in self.parameters())


def main() -> None:
    with moo.init():
        group = moo.Group([moo.spawn(Learner, rank) for rank in range(LEARNERS)])
        print("ranks:", sorted(group.call(Learner.join).get()))
        losses = group.call(Learner.train, STEPS).get()
        print("losses:", [f"{loss:.4f}" for loss in losses])
        print("learnt:", max(losses) < 1.0)
        print("bit-identical:", len(set(group.call(Learner.weights).get())) == 1)


if __name__ == "__main__":
    main()
