# SPDX-License-Identifier: MIT
"""The ways in which data reaches another process, by name."""

from __future__ import annotations

import os
from collections.abc import Iterable

from mooactor.tensors.extension import ffi, lib, missing

#: In the order in which they are chosen if several are possible.
NAMES = ("shm", "ofi", "tcp")
#: TCP connections for each pair and direction, and threads that move bulk over them.
MOST_STRIPES = 0 if missing is not None else lib.MOO_STRIPES_MAX
MOST_THREADS = 0 if missing is not None else lib.MOO_THREADS_MAX

_DRIVER = "/dev/nvidiactl"  # exists with NVIDIA's driver

_BITS = (
    {}
    if missing is not None
    else {
        "shm": lib.MOO_TRANSPORT_SHM,
        "ofi": lib.MOO_TRANSPORT_OFI,
        "tcp": lib.MOO_TRANSPORT_TCP,
    }
)


def mask_of(names: Iterable[str]) -> int:
    """Their bits, for C.

    Raises:
      ValueError: one is unknown, or there are none.
    """
    mask = 0
    for name in names:
        if name not in _BITS:
            raise ValueError(
                f"{name!r} is not a transport: use some of {', '.join(NAMES)}"
            )
        mask |= _BITS[name]
    if not mask:
        raise ValueError(f"no transport is allowed: give some of {', '.join(NAMES)}")
    return mask


def name_of(bit: int) -> str | None:
    """The transport of one bit; None for 0."""
    return next((name for name, known in _BITS.items() if known == bit), None)


def _devices(gpu_direct: bool | None) -> int:
    # Without a GPU the fabric is not even asked, which takes a tenth of a second.
    if gpu_direct is False or (gpu_direct is None and not os.path.exists(_DRIVER)):
        return int(lib.MOO_DEVICES_NO)
    required = gpu_direct is True
    return int(lib.MOO_DEVICES_REQUIRED if required else lib.MOO_DEVICES_IF_OFFERED)


def serve(
    plane: object,
    names: Iterable[str],
    *,
    bind: str | None,
    stripes: int | None,
    threads: int | None,
    checksum: bool,
    provider: str | None,
    gpu_direct: bool | None,
) -> int:
    """`moo_plane_serve` with these options; returns its `moo_err`."""
    options = ffi.new("moo_serve_options *")
    kept = [
        ffi.new("char[]", text.encode()) if text else None for text in (bind, provider)
    ]
    options.transports = mask_of(names)
    options.bind = kept[0] or ffi.NULL
    options.stripes = stripes or 0
    options.threads = threads or 0
    options.checksum = checksum
    options.provider = kept[1] or ffi.NULL
    options.devices = _devices(gpu_direct)
    err: int = lib.moo_plane_serve(plane, options)
    return err
