# SPDX-License-Identifier: MIT
"""Tensors: they cross in shared memory, are private when written, and move.

Run it: `python examples/tensors.py`
"""

import time

import torch

import mooactor as moo
from mooactor import actor, method

MEGABYTES = 64


@actor
class Trainer:
    """Takes tensors of any dtype and layout, alone or inside other objects."""

    @method
    def norm(self, batch: dict[str, torch.Tensor]) -> float:
        return float(sum(t.float().norm() for t in batch.values()))

    @method
    def scaled(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor *= 2  # a received tensor is one's own: the sender does not see this
        return tensor

    @method
    def touch(self, tensor: torch.Tensor) -> float:
        return float(tensor[0])


def main() -> None:
    with moo.init():
        trainer = moo.spawn(Trainer)
        batch = {
            "bf16": torch.ones(256, 256, dtype=torch.bfloat16),
            "strided": torch.ones(64, 512).t(),
        }
        print(f"norm: {trainer.norm(batch):.1f}")

        mine = torch.ones(100_000)
        theirs = trainer.scaled(mine)
        print("mine:", mine[0].item(), "theirs:", theirs[0].item())

        # made in shared memory: passing it on costs no copy, whatever its size
        shared = moo.empty((MEGABYTES << 18,), dtype=torch.float32)
        shared.fill_(1.0)
        for name, tensor in (("private", shared.clone()), ("shared", shared)):
            trainer.touch(tensor)  # the first time, memory is mapped
            began = time.perf_counter()
            trainer.touch(tensor)
            spent = (time.perf_counter() - began) * 1e3
            print(f"{MEGABYTES} MB {name}: {spent:.2f} ms")

        # stored once, taken by many
        weights = moo.put({"w": torch.randn(1000, 1000)})
        pool = moo.on(Trainer).group(3)
        norms = pool.norm.call(weights).get()
        print("one copy, same for all:", len(set(norms)) == 1)


if __name__ == "__main__":
    main()
