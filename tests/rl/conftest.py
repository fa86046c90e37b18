# SPDX-License-Identifier: MIT
"""What all tests here need."""

from __future__ import annotations

from tests.computing import one_thread as one_thread
from tests.marks import folder_needs

pytest_pycollect_makemodule = folder_needs(
    *("torch", "gymnasium", "ale_py"),
)
