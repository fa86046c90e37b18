# SPDX-License-Identifier: MIT
"""The versions on this host that others must know of."""

from __future__ import annotations

import functools
import platform
from importlib import metadata
from typing import Any

from mooactor.control.envelope import VERSION


@functools.cache
def versions() -> dict[str, Any]:
    """Of mooactor, Python and torch (None: it is not installed), and of the wire.

    Nothing is imported for it.
    """
    return {
        "mooactor": _installed("mooactor") or "unknown",
        "python": platform.python_version(),
        "torch": _installed("torch"),
        "wire": VERSION,
    }


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
