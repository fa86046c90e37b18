# SPDX-License-Identifier: MIT
"""The surroundings of the snippet of docs/allreduce.md: a peer, and gradients."""

import numpy as np

import mooactor as moo


def make_gradients() -> list[np.ndarray]:
    return [np.ones(8), np.ones((3, 5))]


@moo.actor
class Peer:
    def take_part(self) -> int:
        group = moo.LearnerGroup("learners", min_size=2)
        group.allreduce(make_gradients(), op="mean").wait()
        return group.size


moo.init()
peer = moo.spawn(Peer)
peer_took_part = moo.submit(peer.take_part)
gradients = make_gradients()
