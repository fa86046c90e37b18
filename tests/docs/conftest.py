# SPDX-License-Identifier: MIT
"""The surroundings that kernels of notebooks need."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels find this package, this Python, and a place for their files."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for variable in ("RUNTIME_DIR", "DATA_DIR", "CONFIG_DIR"):
        monkeypatch.setenv(f"JUPYTER_{variable}", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
