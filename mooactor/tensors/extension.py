# SPDX-License-Identifier: MIT
"""The compiled extension, or the reason why it is missing.

Everything imports it from here, so that mooactor can be imported without a data plane.
"""

from __future__ import annotations

from typing import Any

ffi: Any = None
lib: Any = None
missing: ImportError | None = None

try:
    from mooactor.tensors import _cext  # type: ignore[attr-defined,unused-ignore]
except ImportError as error:  # not Linux, or not compiled
    missing = error
else:
    ffi, lib = _cext.ffi, _cext.lib


def why_missing() -> str:
    """One sentence for the user, with the remedy."""
    return (
        "mooactor's data plane needs Linux (memfd, epoll) and its compiled "
        "extension; on Linux, reinstall mooactor with a C compiler at hand"
    )
