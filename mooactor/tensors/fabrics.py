# SPDX-License-Identifier: MIT
"""What libfabric offers on this machine."""

from __future__ import annotations

from mooactor.tensors.extension import ffi, lib, missing, why_missing

_TEXT_BYTES = 8192


def probe() -> tuple[bool, list[str]]:
    """Whether data can travel by a fabric, and lines that say which or why not.

    The first line names the library, the second the fabric that is chosen. It loads
    libfabric, and asks all its providers.
    """
    if missing is not None:
        return False, [why_missing()]
    text = ffi.new("char[]", _TEXT_BYTES)
    err = lib.moo_fabric_probe(text, _TEXT_BYTES)
    return not err, ffi.string(text).decode(errors="replace").splitlines()
