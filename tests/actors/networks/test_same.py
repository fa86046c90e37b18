# SPDX-License-Identifier: MIT
"""Tensors arrive over every transport as in shared memory: the same tests."""

from __future__ import annotations

from tests.actors import test_tensors

for _name, _test in vars(test_tensors).items():
    if _name.startswith("test_"):
        globals()[_name] = _test
