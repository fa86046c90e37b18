# SPDX-License-Identifier: MIT
"""What holds for actors on this host holds for those on another one."""

from __future__ import annotations

import pytest

from tests.actors.networks import test_same

pytestmark = pytest.mark.slow  # the quick run has them over the loopback

for _name, _test in vars(test_same).items():
    if _name.startswith("test_") and callable(_test):
        globals()[_name] = _test
