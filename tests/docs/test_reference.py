# SPDX-License-Identifier: MIT
"""The reference names all that is public, once, and the site builds from it."""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import mooactor
from mooactor.cli.arguments import add_commands

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
#: Names that users meet without importing them.
MET = [
    "mooactor.actors.handle.RemoteMethod",
    # Of `moo.Accumulator`, which is imported when it is used.
    "mooactor.learner.accumulator.Accumulator",
    "mooactor.learner.accumulator.Step",
]


def entries(*pages: str) -> list[str]:
    """The names that mkdocstrings is asked to describe there, in order."""
    text = "\n".join((REFERENCE / f"{page}.md").read_text() for page in pages)
    return re.findall(r"^::: (\S+)$", text, re.M)


def names_of_rl() -> Iterator[str]:
    """Without importing it, which takes torch and gymnasium."""
    tree = ast.parse((ROOT / "mooactor" / "rl" / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def test_every_public_name_has_one_entry() -> None:
    described = entries("actors", "tensors", "learners", "errors")
    public = [f"mooactor.{name}" for name in mooactor.__all__]
    assert sorted(described) == sorted(public + MET)
    kit = [f"mooactor.rl.{name}" for name in names_of_rl()]
    assert sorted(entries("rl")) == sorted(kit)


def test_the_page_of_the_command_has_every_subcommand() -> None:
    commands = add_commands(argparse.ArgumentParser())
    page = (REFERENCE / "cli.md").read_text()
    assert re.findall(r"^<!-- help: *(\S*) *-->$", page, re.M) == [
        "",
        *commands.choices,
    ]


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="make docs installs mkdocs")
@pytest.mark.timeout(120)
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*command, "--site-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "reference" / "cli" / "index.html").read_text()
    assert "usage: mooactor bench" in page
    design = (tmp_path / "design" / "index.html").read_text()
    assert "../mooactor/" not in design  # sources are no part of the site
