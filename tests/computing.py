# SPDX-License-Identifier: MIT
"""Fixtures of the folders whose tests compute with torch and draw."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """As in an actor: threads that wait for each other take minutes beside others."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def fonts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Matplotlib keeps its fonts open from the first picture on: that is no leak."""
    from impala.runlog import draw_curve

    draw_curve([], tmp_path_factory.mktemp("fonts") / "curve.png", "")
