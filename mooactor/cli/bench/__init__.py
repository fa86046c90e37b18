# SPDX-License-Identifier: MIT
"""``mooactor bench``: this machine's table of speeds, peers measured in the same run.

A group of rows (`calls`, `arrays`, `allreduce`, `startup`) runs in a Python of its own.
Work and peer take turns, A B A B, and the table has medians: their ratio is meaningful
even if the machine's speed drifts. ``tests/bench`` has the rows for developers.
"""
