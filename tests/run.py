# SPDX-License-Identifier: MIT
"""Runs the tests in two lanes, looks twice at what failed, and keeps the flake ledger.

    python -m tests.run [--near [REV]] [--workers N] [pytest's arguments]

Most tests run in several processes at a time. Those with bounds on time (the mark
``quiet``) run afterwards, alone. A test that failed runs three times more by itself. If
it passes each time, the run is green, and a line in build/flakes.log has the test and
the machine's load: a second line for one test is a reason to mend it before anything
else. ``--near`` runs only the tests of packages that import, directly or not, what has
changed since REV (by default the last commit that is also on main).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORDS = Path(os.environ.get("TEST_RECORDS", ROOT / "build"))
FAILED = RECORDS / "failed.txt"
LEDGER = RECORDS / "flakes.log"
MOST_AGAIN = 12  # failures; where there are more, something is broken
TIMES = 3
NO_TESTS = 5  # pytest's exit status


# -- as a plugin of pytest


class _Notes:
    """Notes what failed, in the process that the others report to."""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if not report.failed:
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        words = " ".join(str(crash.message if crash else report.longrepr).split())
        with FAILED.open("a") as file:
            file.write(f"{report.nodeid}\t{report.when}: {words[:200]}\n")


def pytest_configure(config: Any) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Notes())


# -- as the program that starts pytest


def pytest(*arguments: str) -> int:
    ours = ["-c", str(ROOT / "pyproject.toml"), "-p", "tests.run"]
    words = [sys.executable, "-m", "pytest", *ours, *arguments]
    return subprocess.run(words, cwd=ROOT).returncode


def lanes(arguments: list[str], workers: str) -> int:
    """Run both; the exit status of the first that did not succeed."""
    chosen = "not slow and not soak"
    if "-m" in arguments:
        at = arguments.index("-m")
        chosen = arguments[at + 1]
        arguments = arguments[:at] + arguments[at + 2 :]
    also = f"({chosen}) and " if chosen else ""
    spread = ["-n", workers, "--dist", "loadfile", "--no-loadscope-reorder"]
    code = pytest(*spread, "--durations=30", "-m", f"{also}not quiet", *arguments)
    if code not in (0, 1, NO_TESTS):
        return code
    print("\n==== the quiet lane", flush=True)
    quiet = pytest("-n0", "-m", f"{also}quiet", *arguments)
    codes = {code, quiet}
    return max(codes - {NO_TESTS}) if codes != {NO_TESTS} else NO_TESTS


def failures() -> dict[str, str]:
    """The failures, by the test's id, and how each failed."""
    lines = FAILED.read_text().splitlines() if FAILED.exists() else []
    return dict(reversed([line.split("\t", 1) for line in lines]))


def passes_again(test: str) -> bool:
    """Whether it passes alone, `TIMES` times."""
    print(f"\n==== {test} failed; alone, {TIMES} times:", flush=True)
    once = ("-n0", "-q", "-m", "", "-p", "no:cacheprovider", test)
    return all(pytest(*once) == 0 for _ in range(TIMES))


def look_again(failed: dict[str, str], load: str) -> bool:
    """Whether all that failed were flakes; those are in the ledger now."""
    if not failed or len(failed) > MOST_AGAIN:
        return False
    flakes = {test: how for test, how in failed.items() if passes_again(test)}
    if flakes:
        print("\n==== flakes: they failed once and passed alone", flush=True)
    known = LEDGER.read_text() if LEDGER.exists() else ""
    with LEDGER.open("a") as ledger:
        for test, how in flakes.items():
            line = f"{time.strftime('%F %T')}\t{commit()}\tload {load}\t{test}\t{how}"
            print(line + ("\t(NOT THE FIRST TIME)" if f"\t{test}\t" in known else ""))
            ledger.write(line + "\n")
    return flakes == failed


def commit() -> str:
    return git("rev-parse", "--short", "HEAD") or "?"


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


# -- which tests are near a change

FOLDERS = {  # of tests, for a layer of the package, where the names differ
    "errors": ["control", "actors"],
    "tensors": ["tensors", "transports"],
    "process.objects": ["process"],
    "process.actor": ["process"],
    "rl": ["rl", "examples"],
    "cli": ["cli", "bench"],
}


def near(revision: str) -> list[str]:
    """The files and folders of tests to run for what has changed since `revision`."""
    base = revision or git("merge-base", "HEAD", "origin/main") or "HEAD~1"
    paths = git("diff", "--name-only", base).splitlines()
    paths += git("ls-files", "--others", "--exclude-standard").splitlines()
    return sorted(found for found in near_to(paths) if (ROOT / found).exists())


def near_to(paths: list[str]) -> set[str]:
    """The files and folders of tests that a change of these paths can break."""
    from tests import test_layers as layers

    changed, wanted = set(), {"tests/test_layers.py"}
    for path in paths:
        top, _, rest = path.partition("/")
        if top == "mooactor" and path.endswith(".py"):
            changed.add(layers.layer_of(layers.name_of(ROOT / path)))
        elif top == "cext":
            changed.add("tensors")
            wanted.add("tests/c")
        elif top == "tests":
            wanted.add(f"tests/{rest.partition('/')[0]}" if "/" in rest else "tests")
        elif top in ("docs", "examples") or path == "README.md":
            wanted |= {"tests/docs", "tests/examples"}
        else:
            wanted |= {"tests/packaging", "tests/docs"}
    if layers.FACE in changed:
        return {"tests"}
    for layer in with_importers(changed):
        folders = FOLDERS.get(layer, [layer])
        wanted |= {f"tests/{folder}" for folder in folders}
    return {"tests"} if "tests" in wanted else wanted


def with_importers(changed: set[Any]) -> set[str]:
    """These layers, and all that import one of them, directly or not."""
    from tests import test_layers as layers

    imports: dict[str, set[str]] = {layer: set() for layer in layers.LEVELS}
    for path in layers.MODULES:
        own = layers.layer_of(layers.name_of(path))
        if own in imports:
            found = map(layers.layer_of, layers.imports_of(path))
            imports[own] |= {layer for layer in found if layer in imports}
    while more := {own for own, used in imports.items() if used & changed} - changed:
        changed |= more
    return changed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--near", nargs="?", const="", metavar="REV")
    parser.add_argument("--workers", default=str((os.cpu_count() or 1) + 2))
    options, arguments = parser.parse_known_args()
    if options.near is not None:
        chosen = near(options.near)
        print(f"==== near the change: {' '.join(chosen)}", flush=True)
        arguments += chosen
    RECORDS.mkdir(exist_ok=True)
    FAILED.unlink(missing_ok=True)
    if any(
        word.startswith(("-n0", "--collect", "--co", "--help")) for word in arguments
    ):
        return pytest(*arguments)
    code = lanes(arguments, options.workers)
    load = " ".join(f"{x:.1f}" for x in os.getloadavg())
    if code == 1 and look_again(failures(), load):
        return 0
    return code


if __name__ == "__main__":
    sys.exit(main())
