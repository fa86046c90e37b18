# SPDX-License-Identifier: MIT
"""Fixtures of all tests here."""

from __future__ import annotations

from tests.computing import one_thread as one_thread
from tests.marks import folder_needs

pytest_pycollect_makemodule = folder_needs(
    *("torch", "gymnasium", "ale_py"),
)
