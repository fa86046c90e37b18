# SPDX-License-Identifier: MIT
"""Variables that have numbers of threads: whose count."""

from __future__ import annotations

import os

import pytest

import mooactor as moo
from mooactor.host import session as session_module
from tests.process.libraries import Asks


@pytest.mark.usefixtures("no_session")
def test_the_environment_of_the_program_counts_more_than_num_cpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    monkeypatch.setattr(session_module, "PRELOADABLE", ())
    with moo.init(preload=["numpy"]):
        asks = moo.on(Asks, num_cpus=1).spawn()
        assert asks.has("numpy")
        assert asks.number_of_numpy() == 4
        assert asks.variables("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") == ["2", "4"]
        given = moo.on(Asks, env={"OPENBLAS_NUM_THREADS": ""}).spawn()
        assert given.number_of_numpy() == 2  # the program's, for all libraries


@pytest.mark.usefixtures("no_session")
def test_a_library_that_an_actor_loads_itself_has_the_same_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(session_module, "PRELOADABLE", ())
    with moo.init():
        asks = moo.on(Asks, env={"OMP_NUM_THREADS": "3"}).spawn()
        assert not asks.has("numpy")
        # OpenBLAS takes no more than there are cores when it is loaded.
        assert asks.number_of_numpy() == min(3, os.cpu_count() or 1)
        assert moo.spawn(Asks).number_of_numpy() == 1
