# SPDX-License-Identifier: MIT
"""A holder of a value can get it over a network, too, and nothing is left."""

from __future__ import annotations

from tests.actors import test_ref_protocol

for _name, _test in vars(test_ref_protocol).items():
    if _name.startswith("test_"):
        globals()[_name] = _test
