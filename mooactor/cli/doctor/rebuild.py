# SPDX-License-Identifier: MIT
"""The command that compiles this installation again on this machine."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import sys
from pathlib import Path
from urllib.parse import unquote, urlparse

import mooactor

# The end of the data plane's sentence if it was built without libfabric's headers.
ADVICE = (
    "; install libfabric-dev and build mooactor again "
    "(`mooactor doctor` has the command)"
)


def command() -> str:
    """A shell command that compiles the extension that this Python imports."""
    here = Path(mooactor.__file__).parents[1]
    if (here / "cext" / "build.py").exists():
        return _in_place(here)
    options = "--force-reinstall --no-deps --no-cache-dir --no-binary mooactor"
    return f"{_python()} -m pip install {options} {_origin()}"


def _in_place(source: Path) -> str:
    """In a clone, or in one that was installed by `pip install -e`."""
    where = shlex.quote(str(source))
    if Path(sys.prefix) == source / ".venv" and (source / "Makefile").exists():
        return f"make -C {where} setup"
    return f"{_python()} -m pip install --force-reinstall --no-deps -e {where}"


def _python() -> str:
    return shlex.quote(sys.executable)


def _origin() -> str:
    """The source that pip installed it from: a folder, or the package index."""
    found = importlib.metadata.distribution("mooactor").read_text("direct_url.json")
    url = urlparse(json.loads(found)["url"]) if found else None
    if url is None or url.scheme != "file":
        return "mooactor" if url is None else shlex.quote(url.geturl())
    return shlex.quote(unquote(url.path))
