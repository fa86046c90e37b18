# SPDX-License-Identifier: MIT
"""Data-parallel training on all hosts of a session. A learner that dies is replaced.

Run it: `python examples/data_parallel.py`, or on two machines
`mooactor run --hosts a,b examples/data_parallel.py`
"""

import sys

import torch
from torch import nn

import mooactor as moo
from mooactor import actor, method

UPDATES = int(sys.argv[1]) if len(sys.argv) > 1 else 500
LEARNERS_PER_HOST = 2


@actor
class Learner:
    """Trains on samples of its own. An update has 64 samples of all learners."""

    @method
    def train(self, updates: int) -> str:
        model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        group = moo.LearnerGroup("learners", min_size=1, on_loss="finish")
        shown = 0
        for step in moo.Accumulator(group, model, optimizer, batch=64):
            inputs = torch.randn(16, 8)
            loss = nn.functional.mse_loss(model(inputs), inputs.sin().sum(1)[:, None])
            if group.rank == 0 and step.version >= shown:
                print(f"update {step.version}: {group.size} learners, loss {loss:.3f}")
                shown = step.version + updates // 10
            if step.version == updates:  # on all at once: they make the same updates
                return f"learnt: {loss.item() < 0.5}"
            step.add(loss, count=len(inputs))
        raise AssertionError  # the loop is endless


def main() -> None:
    with moo.init():
        restart = moo.Restart(max=10, within=60)
        hosts = [host["name"] for host in moo.hosts() for _ in range(LEARNERS_PER_HOST)]
        learners = [moo.on(Learner, host=h, restart=restart).spawn() for h in hosts]
        print(f"{len(learners)} learners on {', '.join(sorted(set(hosts)))}")
        calls = [each.train.options(retries=10).remote(UPDATES) for each in learners]
        print(next(moo.as_completed(calls)).get())  # others may be on their way back


if __name__ == "__main__":
    main()
