# SPDX-License-Identifier: MIT
"""The extension is built again where libfabric has come, or gone, since."""

from __future__ import annotations

import os
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Install libfabric's headers, or take them away."""
    header = tmp_path / "include" / "rdma" / "fabric.h"
    header.parent.mkdir(parents=True)

    def there(found: bool) -> None:
        monkeypatch.setenv("CPPFLAGS", f"-I{header.parents[1]}")
        monkeypatch.delenv("MOOACTOR_NO_LIBFABRIC", raising=False)
        if found:
            header.touch()
        else:  # this machine may have them, too
            header.unlink(missing_ok=True)
            monkeypatch.setenv("MOOACTOR_NO_LIBFABRIC", "1")

    return there


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The recipe's inputs, in a folder of its own that is the working directory."""
    source = tmp_path / "source"
    shutil.copytree(ROOT / "cext", source / "cext")
    monkeypatch.chdir(source)
    return source


def test_the_extension_depends_on_whether_the_headers_are_there(
    headers: Callable[[bool], None], project: Path
) -> None:
    seen = []
    for found in (False, False, True, True):
        headers(found)
        recipe = runpy.run_path("cext/build.py", run_name="recipe")["ffibuilder"]
        options = recipe._assigned_source[3]
        answer = project / "build" / "libfabric"
        assert "build/libfabric" in options["depends"]
        assert ("-DMOOI_NO_FABRIC" in options["extra_compile_args"]) is not found
        fabric = [path for path in options["sources"] if "transport/ofi/" in path]
        assert bool(fabric) is found  # and what only those files define is not bound
        assert ("moo_bare_open" in "".join(recipe._cdefsources)) is found
        seen.append((answer.read_text(), answer.stat().st_mtime_ns))
        os.utime(answer, ns=(0, 0))  # so that writing it shows
    assert [text.strip() for text, _ in seen] == ["absent"] * 2 + ["found"] * 2
    assert [time > 0 for _, time in seen] == [True, False, True, False]
