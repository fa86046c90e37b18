# SPDX-License-Identifier: MIT
"""Small faults in the source, and whether the gate's tests catch them.

    python -m tests.mutants.run [NAME…]    all of them, or those whose names begin so

A mutant is a table in one of the ``.toml`` files beside this one: its ``name``, the
``promise`` that it breaks, the ``file``, the text ``old`` that stands there exactly
once, the ``new`` text, and the ``tests`` (pytest's words) that should fail for it. Each
runs in a copy of the tree, in build/mutants. It is caught if a test fails, or if the
tests do not end in `LIMIT_S` seconds. Exits with 1 if one is not caught.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "mutants"
TREES = ("mooactor", "cext", "tests", "examples", "docs", ".ci")
LIMIT_S = 600.0
WORKERS = os.environ.get("WORKERS", "2")


@dataclass(frozen=True)
class Mutant:
    """One fault; see the module."""

    name: str
    promise: str
    file: str
    old: str
    new: str
    tests: list[str]

    def fits(self) -> bool:
        """Whether the text that it changes stands in the tree, once."""
        return (ROOT / self.file).read_text().count(self.old) == 1

    def apply(self, tree: Path) -> None:
        path = tree / self.file
        path.write_text(path.read_text().replace(self.old, self.new))


def mutants() -> list[Mutant]:
    """All of them, in the order of the files."""
    tables = [
        tomllib.loads(p.read_text()) for p in sorted(ROOT.glob("tests/mutants/*.toml"))
    ]
    return [Mutant(**row) for table in tables for row in table["mutant"]]


def copied(name: str) -> Path:
    """A copy of what tests need of the tree, with the extension that is there."""
    tree = BUILD / name
    shutil.rmtree(tree, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "build")
    for part in TREES:
        shutil.copytree(ROOT / part, tree / part, ignore=ignored)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, tree / path.name)
    return tree


def verdict(mutant: Mutant) -> str:
    """`caught` and how, or `NOT CAUGHT`."""
    tree = copied(mutant.name)
    mutant.apply(tree)
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    if mutant.file.startswith("cext/"):
        build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        subprocess.run(build, cwd=tree, check=True, env=environment)
    words = ["-x", "-q", "-n", WORKERS, "--dist", "loadfile", "-p", "no:cacheprovider"]
    pytest = [sys.executable, "-m", "pytest", *words, *mutant.tests]
    log = BUILD / f"{mutant.name}.log"
    with log.open("wb") as out:
        run = subprocess.Popen(
            pytest, cwd=tree, env=environment, stdout=out, stderr=out, process_group=0
        )
        try:
            code = run.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
            return f"caught: no end in {LIMIT_S:.0f} s"
    shutil.rmtree(tree, ignore_errors=True)
    if code == 0:
        return "NOT CAUGHT"
    if code not in (1, 2):  # 2: -x has interrupted the other workers
        raise SystemExit(f"{mutant.name}: pytest ended with {code}; see {log}")
    failed = [
        line
        for line in log.read_text().splitlines()
        if line.startswith(("FAILED", "ERROR"))
    ]
    return f"caught: {failed[0][:120] if failed else log}"


def main(names: list[str]) -> int:
    BUILD.mkdir(parents=True, exist_ok=True)
    chosen = [m for m in mutants() if not names or m.name.startswith(tuple(names))]
    if unfit := [m.name for m in chosen if not m.fits()]:
        raise SystemExit(f"these do not fit the tree any more: {', '.join(unfit)}")
    missed = 0
    for mutant in chosen:
        began = time.monotonic()
        found = verdict(mutant)
        missed += not found.startswith("caught")
        print(f"{mutant.name}: {found} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
