# SPDX-License-Identifier: MIT
"""What C reports, as exceptions whose messages say what happened."""

from __future__ import annotations

import os

from mooactor.errors import ActorDied, InternalError
from mooactor.tensors.extension import ffi, lib


def error_for(err: int, what: str) -> Exception:
    """The exception for a `moo_err`; `what` begins its message."""
    phrase = f"{what}: {ffi.string(lib.moo_strerror(err)).decode()}"
    if err == lib.MOO_EFORK:
        return RuntimeError(
            "a data plane cannot be used in a forked child of its process; "
            "start processes with moo.spawn or subprocess instead"
        )
    if err == lib.MOO_ESYS:
        return OSError(ffi.errno, f"{what}: {os.strerror(ffi.errno)}")
    if err in (lib.MOO_EINVAL, lib.MOO_EPROTO, lib.MOO_EVERSION, lib.MOO_ESTALE):
        return ValueError(phrase)
    return RuntimeError(phrase)


def import_error(err: int) -> Exception:
    """The exception for what a receiver may meet."""
    if err in (lib.MOO_EPEER, lib.MOO_ETIMEOUT):
        return ActorDied("the process that sent this data died before handing it over")
    if err == lib.MOO_ESTALE:
        return InternalError("this descriptor was imported or revoked before")
    return error_for(err, "cannot import")


def fetch_error(err: int) -> Exception:
    """The exception for a fetch that failed."""
    if err in (lib.MOO_EPEER, lib.MOO_ETIMEOUT):
        return ActorDied(
            "the process that sent this data died or was cut off before all of it came"
        )
    if err == lib.MOO_ESTALE:
        return InternalError("this descriptor was fetched or revoked before")
    return error_for(err, "cannot fetch")


def size_text(nbytes: int) -> str:
    """Bytes for a reader: "2.1 MB"."""
    for unit, digits in (("GB", 9), ("MB", 6), ("kB", 3)):
        if nbytes >= 10**digits:
            return f"{nbytes / 10**digits:.3g} {unit}"
    return f"{nbytes} bytes"
