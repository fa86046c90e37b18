# SPDX-License-Identifier: MIT
"""`make check` runs its stages in order, times each, and stops at a failure."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAGES = ["lint", "types", "test-all", "chaos", "test-bare", "c-and-rdma"]
TOGETHER = ["test-rdma", "sanitizers", "cross"]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is needed")


def make(
    folder: Path, target: str, stages: list[str], *options: str
) -> subprocess.CompletedProcess[str]:
    """`make target`, without the set-up, and without what `stages` do for minutes."""
    makefile = (ROOT / "Makefile").read_text()
    (folder / "Makefile").write_text(re.sub(r"(?m)^setup:.*$", "setup:", makefile))
    quick = '; @echo "$@ runs"; test "$@" != "$(BROKEN)"'
    (folder / "GNUmakefile").write_text(
        f"include Makefile\n{' '.join(stages)}: {quick}\n"
    )
    command = ["make", target, "PYTHON=python3", *options]
    ours = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    return subprocess.run(command, cwd=folder, env=ours, capture_output=True, text=True)


def test_every_stage_runs_once_in_order_and_is_timed(tmp_path: Path) -> None:
    done = make(tmp_path, "check", STAGES)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(\S+) runs$", done.stdout, re.M) == STAGES
    timed = re.findall(r"^==== (\S+) passed in \d+ s$", done.stdout, re.M)
    assert timed == [*STAGES, "all"]


def test_a_failure_ends_it_and_says_how_to_run_that_stage_alone(tmp_path: Path) -> None:
    done = make(tmp_path, "check", STAGES, "BROKEN=test-all")
    assert done.returncode != 0
    assert re.findall(r"^(\S+) runs$", done.stdout, re.M) == STAGES[:3]
    assert "==== test-all failed: make test-all runs it alone" in done.stderr


@pytest.mark.parametrize("broken", ["", *TOGETHER])
def test_of_those_that_run_together_each_may_fail(tmp_path: Path, broken: str) -> None:
    done = make(tmp_path, "c-and-rdma", TOGETHER, f"BROKEN={broken}")
    ran = re.findall(r"^(\S+) runs$", done.stdout, re.M)
    assert sorted(ran) == sorted(TOGETHER)
    assert (done.returncode != 0) == bool(broken)


def test_ci_runs_nothing_else() -> None:
    commands = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line for line in commands if line.startswith("make ")] == ["make check"]


def test_the_hosted_workflow_runs_it_on_every_python_that_is_supported() -> None:
    workflow = (ROOT / ".github" / "workflows" / "check.yml").read_text()
    (matrix,) = re.findall(r"^ +python: \[(.*)\]$", workflow, re.M)
    assert re.findall(r"^ +run: (.*)$", workflow, re.M) == [".ci/run"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    language = "Programming Language :: Python :: "
    supported = [
        name.removeprefix(language)
        for name in project["classifiers"]
        if name.startswith(language + "3.")
    ]
    assert [version.strip(' "') for version in matrix.split(",")] == supported
