# SPDX-License-Identifier: MIT
"""Marks of tests, beside pytest's own."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from mooactor.tensors.limits import cpu_quota

#: Of a test in which a `mooactor host` binds actors to cores.
binds_cores = pytest.mark.skipif(
    cpu_quota() is not None, reason="in a container with a quota nobody is bound"
)


def slow(*values: object) -> Any:
    """A parameter that repeats others: the quick run leaves it out."""
    return pytest.param(*values, marks=pytest.mark.slow)


def soak(*values: object) -> Any:
    """A parameter that repeats others at length: only the run before a release has
    it."""
    return pytest.param(*values, marks=pytest.mark.soak)


class _Lacking(pytest.Module):
    """A module of tests that cannot be imported here."""

    def collect(self) -> Any:
        pytest.skip(f"{self.lacks} is not installed", allow_module_level=True)

    lacks = ""


def folder_needs(*packages: str) -> Callable[..., pytest.Module | None]:
    """For a conftest.py: the hook that skips its folder where a package is missing.

    ::

        pytest_pycollect_makemodule = folder_needs("torch")
    """
    missing = [name for name in packages if find_spec(name) is None]

    def pytest_pycollect_makemodule(
        module_path: Path, parent: pytest.Collector
    ) -> pytest.Module | None:
        if not missing:
            return None
        module = _Lacking.from_parent(parent, path=module_path)
        module.lacks = missing[0]
        return module

    return pytest_pycollect_makemodule
