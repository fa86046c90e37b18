# SPDX-License-Identifier: MIT
"""Both type checkers infer every type in uses.py and report every mistake."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.marks import slow

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
USES = HERE / "uses.py"
MISTAKES = HERE / "mistakes.py"

Report = dict[int, str]  # the first message of each line
Reports = dict[str, Report]  # by file name
Checker = Callable[[Path], Reports]

# a checker reads all of mooactor, and both files in one go: half a minute, if it must
pytestmark = pytest.mark.timeout(240)


def run(module: str, *arguments: object) -> str:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def by_file(found: Iterable[tuple[str, int, str]]) -> Reports:
    reports: Reports = {USES.name: {}, MISTAKES.name: {}}
    for file, line, message in found:
        if Path(file).parent.name == HERE.name:
            reports[Path(file).name].setdefault(line, message)
    return reports


def mypy(folder: Path) -> Reports:
    known = ROOT / ".mypy_cache"  # of `make types`: it has all of torch, half a minute
    if known.is_dir():
        shutil.copytree(known, folder, dirs_exist_ok=True)
    options = ["--strict", "--output=json", "--explicit-package-bases"]
    output = run("mypy", *options, f"--cache-dir={folder}", USES, MISTAKES)
    found = [json.loads(line) for line in output.splitlines() if line[:1] == "{"]
    errors = [entry for entry in found if entry["severity"] == "error"]
    return by_file((e["file"], e["line"], e["message"]) for e in errors)


def basedpyright(folder: Path) -> Reports:
    project = folder / "pyrightconfig.json"
    settings = {
        "include": [str(USES), str(MISTAKES)],
        "extraPaths": [str(ROOT)],
        "typeCheckingMode": "standard",
        "pythonVersion": "3.11",
    }
    project.write_text(json.dumps(settings))
    output = run("basedpyright", "--outputjson", "--project", project)
    found = json.loads(output)["generalDiagnostics"]
    errors = [entry for entry in found if entry["severity"] == "error"]
    return by_file(
        (e["file"], e["range"]["start"]["line"] + 1, e["message"]) for e in errors
    )


@pytest.fixture(scope="module", params=[slow(mypy), basedpyright])
def reports(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Reports:
    checker: Checker = request.param
    pytest.importorskip(checker.__name__)
    return checker(tmp_path_factory.mktemp("checker"))


@pytest.mark.slow
def test_every_type_is_inferred(reports: Reports) -> None:
    assert USES.read_text().count("assert_type(") >= 18
    assert reports[USES.name] == {}


def test_every_mistake_is_reported(reports: Reports) -> None:
    lines = MISTAKES.read_text().splitlines()
    expected = {n for n, line in enumerate(lines, 1) if "# mistake:" in line}
    assert len(expected) >= 8
    assert set(reports[MISTAKES.name]) == expected
