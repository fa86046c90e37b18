# SPDX-License-Identifier: MIT
"""`make gate` and `make check` run their stages in order, and stop at a failure."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()


def stages_of(target: str) -> list[str]:
    (named,) = re.findall(rf"^{target}: STAGES := (.*)$", MAKEFILE, re.M)
    return named.split()


def make(folder: Path, target: str, *options: str) -> subprocess.CompletedProcess[str]:
    """`make target`, without the set-up, and without what stages do for minutes."""
    (folder / "Makefile").write_text(re.sub(r"(?m)^setup:.*$", "setup:", MAKEFILE))
    quick = '; @echo "$@ runs"; test "$@" != "$(BROKEN)"'
    (folder / "GNUmakefile").write_text(
        f"include Makefile\n{' '.join(stages_of('check'))} test: {quick}\n"
    )
    command = ["make", target, "PYTHON=python3", *options]
    ours = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    return subprocess.run(command, cwd=folder, env=ours, capture_output=True, text=True)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is needed")
@pytest.mark.parametrize("target", ["gate", "check"])
def test_every_stage_runs_in_order_up_to_one_that_fails(
    target: str, tmp_path: Path
) -> None:
    stages = stages_of(target)
    done = make(tmp_path, target)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(\S+) runs$", done.stdout, re.M) == stages
    last = done.stdout.splitlines()[-1]
    assert re.findall(r"  (\S+) \d+ s", last.partition(":")[2]) == stages
    done = make(tmp_path, target, f"BROKEN={stages[2]}")
    assert done.returncode != 0
    assert re.findall(r"^(\S+) runs$", done.stdout, re.M) == stages[:3]
    assert f"{stages[2]} failed: make {stages[2]} runs it alone" in done.stderr


def test_ci_runs_the_gate_on_every_python_that_is_supported() -> None:
    commands = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line for line in commands if line.startswith("make ")] == ["make gate"]
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
