# SPDX-License-Identifier: MIT
"""A cluster for each test, ssh servers for each module, and launches that end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.clusters import Cluster
from tests.cluster.launched import Launched
from tests.cluster.sshd import Servers, servers

Launch = Callable[..., Launched]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Its processes and nodes end with the test."""
    found = Cluster(tmp_path)
    yield found
    found.close()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Servers b and c, each as good as another machine."""
    with servers(tmp_path_factory.mktemp("ssh")) as running:
        running.add("b")
        running.add("c")
        yield running


@pytest.fixture
def launch_here(tmp_path: Path) -> Iterator[Launch]:
    """Start ``mooactor run WORDS script.py ARGUMENTS`` with this text as the script.
    See `Launched` for the rest."""
    started: list[Launched] = []

    def launch(
        *words: str, script: str = "", arguments: Sequence[str] = (), **more: Any
    ) -> Launched:
        (tmp_path / "script.py").write_text(script)
        all_words = [*words, "script.py", *arguments]
        started.append(Launched(all_words, tmp_path, **more))
        return started[-1]

    yield launch
    for each in started:
        each.close()


@pytest.fixture
def launch(hosts: Servers, launch_here: Launch) -> Launch:
    """The same, where ssh leads to the servers."""

    def launch(*words: str, **more: Any) -> Launched:
        environment = {**hosts.environment(), **more.pop("variables", {})}
        return launch_here(*words, environment=environment, **more)

    return launch
