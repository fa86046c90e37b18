# SPDX-License-Identifier: MIT
"""``mooactor bench``: this machine's table of speeds, peers measured in the same run.

Each module of this package measures one group of rows and has a ``rows(effort)``; a
group runs in a Python of its own (`__main__`), so that none disturbs another. Work and
peer take turns, A B A B, and the table has medians: their ratio is meaningful even if
the machine's speed drifts.
"""
