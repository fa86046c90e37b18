# SPDX-License-Identifier: MIT
"""A distribution holds what it must, installs into a fresh venv, and works there."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.marks import soak

ROOT = Path(__file__).parents[2]
NOT_SOURCE = shutil.ignore_patterns(
    ".git", ".venv", ".*_cache", "__pycache__", "build", "dist", "runs", "*.egg-info",
    "*.so", "*.o", "out",
)  # fmt: skip

pytestmark = pytest.mark.timeout(900)

PROGRAM = """
import numpy as np
import mooactor as moo

@moo.actor
class Total:
    def of(self, values):
        return float(values.sum())

with moo.init():
    print(moo.spawn(Total).of(np.ones(1 << 18)))
    print(moo.__file__)
"""


def run(*command: object, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a clean copy, so that nothing lying about here gets in."""
    if find_spec("build.__main__") is None:  # a folder `build` may lie about
        pytest.skip("the package build is not installed")
    folder = tmp_path_factory.mktemp("sdist")
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=NOT_SOURCE)
    options = ("--sdist", "--no-isolation", "--outdir", folder)
    run(sys.executable, "-m", "build", *options, source, cwd=folder)
    (archive,) = folder.glob("*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """Built from the sdist, so that a file missing there shows here."""
    options = ("--no-build-isolation", "--no-deps", "--wheel-dir", sdist.parent)
    run(sys.executable, "-m", "pip", "wheel", *options, sdist, cwd=sdist.parent)
    (archive,) = sdist.parent.glob("*.whl")
    return archive


def sources() -> Iterator[str]:
    """The needs of a build, besides Python."""
    for pattern in ("cext/build.py", "cext/**/*.[ch]", "LICENSE", "README.md"):
        yield from (str(path.relative_to(ROOT)) for path in ROOT.glob(pattern))


@pytest.mark.slow
def test_the_sdist_has_every_source_and_nothing_built(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert set(sources()) - names == set()
    assert [name for name in names if name.endswith((".so", ".o", ".pyc"))] == []


@pytest.mark.slow
def test_one_wheel_serves_every_python_and_has_the_extension_and_no_tests(
    wheel: Path,
) -> None:
    assert "-cp311-abi3-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "mooactor/py.typed" in names
    assert any(name.startswith("mooactor/tensors/_cext.") for name in names)
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"mooactor"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", soak("sdist")])  # made of the sdist
def test_it_installs_into_a_fresh_venv_and_works(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    archive: Path = request.getfixturevalue(kind)
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", archive, cwd=tmp_path)

    total, origin = run(python, "-c", PROGRAM, cwd=tmp_path).splitlines()
    assert total == str(float(1 << 18))
    assert Path(origin).is_relative_to(tmp_path)
    mooactor = tmp_path / "venv" / "bin" / "mooactor"
    assert "Everything works here" in run(mooactor, "doctor", cwd=tmp_path)
    absent = run(python, "-m", "pip", "list", "--format=freeze", cwd=tmp_path)
    assert "torch" not in absent  # the core stands without it
