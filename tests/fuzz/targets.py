# SPDX-License-Identifier: MIT
"""All targets by name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from tests.fuzz import parsers

TARGETS: dict[str, Callable[[], contextlib.AbstractContextManager[parsers.Parser]]] = {
    **parsers.TARGETS,
}
