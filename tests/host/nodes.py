# SPDX-License-Identifier: MIT
"""The actor of `test_scale`, in a module that imports little: each of 200 processes
imports it, and they share two cores."""

import numpy as np

import mooactor as moo


@moo.actor(max_concurrency=4)  # two that call each other must not wait for each other
class Node:
    """Answers with its number, and asks others for theirs."""

    def __init__(self, number):
        self.number = number

    def add(self, value):
        return self.number + value

    def ask(self, others, value):
        return moo.get([other.add.remote(value) for other in others])

    def total(self, array):
        return int(array[::4096].sum(dtype=np.int64)), array.nbytes
