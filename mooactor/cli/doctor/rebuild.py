# SPDX-License-Identifier: MIT
"""How the installation that runs is compiled again, on this machine as it is now."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import sys
from pathlib import Path
from urllib.parse import unquote, urlparse

import mooactor

# How the data plane, built without libfabric's headers, ends its sentence.
ADVICE = (
    "; install libfabric-dev and build mooactor again "
    "(`mooactor doctor` has the command)"
)


def command() -> str:
    """For a shell: it compiles the extension that this Python imports."""
    here = Path(mooactor.__file__).parents[1]
    if (here / "cext" / "build.py").exists():
        return _in_place(here)
    options = "--force-reinstall --no-deps --no-cache-dir --no-binary mooactor"
    return f"{_python()} -m pip install {options} {_origin()}"


def _in_place(source: Path) -> str:
    """In a clone, or what was installed from one by `pip install -e`."""
    where = shlex.quote(str(source))
    if Path(sys.prefix) == source / ".venv" and (source / "Makefile").exists():
        return f"make -C {where} setup"
    return f"{_python()} -m pip install --force-reinstall --no-deps -e {where}"


def _python() -> str:
    return shlex.quote(sys.executable)


def _origin() -> str:
    """What pip installed it from: a folder, or the package index."""
    found = importlib.metadata.distribution("mooactor").read_text("direct_url.json")
    url = urlparse(json.loads(found)["url"]) if found else None
    if url is None or url.scheme != "file":
        return "mooactor" if url is None else shlex.quote(url.geturl())
    return shlex.quote(unquote(url.path))
