# SPDX-License-Identifier: MIT
"""An act that is due after an import happens once, and leaves no trace."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from mooactor.process.environment import after_import

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the module ``wanted``, which can then be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "wanted", raising=False)

    def write(text: str) -> Path:
        path = tmp_path / "wanted.py"
        path.write_text(text)
        importlib.invalidate_caches()
        return path

    return write


def test_the_action_runs_between_the_modules_code_and_its_importer(
    write: Write,
) -> None:
    finders = list(sys.meta_path)
    path = write("SEEDED = False")
    after_import("wanted", lambda module: setattr(module, "SEEDED", True))
    assert importlib.util.find_spec("wanted") is not None  # which imports nothing
    import wanted  # type: ignore[import-not-found]

    assert wanted.SEEDED
    assert sys.meta_path == finders
    assert type(wanted.__loader__) is type(wanted.__spec__.loader) is SourceFileLoader
    assert wanted.__file__ == str(path)
    importlib.reload(wanted)
    assert not wanted.SEEDED


def test_an_import_that_fails_is_not_the_one_that_was_waited_for(write: Write) -> None:
    finders, seen = list(sys.meta_path), list[ModuleType]()
    write("1 / 0")
    after_import("wanted", seen.append)
    with pytest.raises(ZeroDivisionError):
        importlib.import_module("wanted")
    assert seen == []
    write("GOOD = 'a module of another length'")
    assert [importlib.import_module("wanted")] == seen
    assert sys.meta_path == finders
