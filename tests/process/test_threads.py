# SPDX-License-Identifier: MIT
"""Actors compute with as many threads as they have CPUs, whatever is loaded already."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mooactor as moo
from tests.conftest import running_session
from tests.process.libraries import Asks

pytest.importorskip("torch")

Spawn = Callable[..., Any]
CORES = os.cpu_count() or 1


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """One in which actors share a torch that was loaded before they were forked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_NUM_THREADS", raising=False)
        with running_session(preload=["numpy", "torch"]) as running:
            yield running


def test_libraries_loaded_before_the_fork_use_the_actors_number(spawn: Spawn) -> None:
    cases: list[tuple[dict[str, Any], int]] = [
        ({}, 1),
        ({"num_cpus": CORES}, CORES),
        ({"num_cpus": 1, "env": {"OMP_NUM_THREADS": "3"}}, 3),
        ({"env": {"OMP_NUM_THREADS": ""}}, 1),
    ]
    for options, number in cases:
        actor = spawn(moo.on(Asks, **options))
        assert actor.has("torch")
        numbers = actor.numbers()
        assert len(numbers) > 1
        assert set(numbers.values()) == {number}, numbers
        assert actor.variables("OMP_NUM_THREADS") == [str(number)]
        assert actor.threads_of_the_zygote() == 1


def test_a_librarys_own_variable_counts_for_that_library(spawn: Spawn) -> None:
    numbers = spawn(moo.on(Asks, env={"MKL_NUM_THREADS": "3"})).numbers()
    assert numbers["torch"] == 3
    assert [n for name, n in numbers.items() if "blas" in name] == [1]


def test_a_variable_that_a_library_has_read_already_is_refused(spawn: Spawn) -> None:
    actor = spawn(moo.on(Asks, env={"OMP_PROC_BIND": "close"}))
    said = (
        r"env\['OMP_PROC_BIND'\] comes too late.*lib\w*omp.*set it in the environment"
    )
    with pytest.raises(moo.ActorDied, match=f"PlacementError: {said}"):
        actor.numbers()
