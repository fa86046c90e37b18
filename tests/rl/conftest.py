# SPDX-License-Identifier: MIT
"""What all tests here need."""

from __future__ import annotations

import pytest

from tests.marks import folder_needs

pytest_pycollect_makemodule = folder_needs(
    *("torch", "gymnasium", "ale_py", "rich", "tensorboard", "matplotlib"),
    *("imageio", "PIL"),
)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """As in an actor: threads that wait for each other take minutes beside others."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _fonts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Matplotlib keeps its fonts open from the first picture on: that is no leak."""
    from mooactor.rl.runlog import draw_curve

    draw_curve([], tmp_path_factory.mktemp("fonts") / "curve.png", "")
