# SPDX-License-Identifier: MIT
"""The errors of C, as exceptions with messages for the user."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from mooactor.errors import ActorDied, ActorUnavailable, InternalError, OutOfMemory
from mooactor.tensors.extension import ffi, lib
from mooactor.tensors.limits import memory_refusal
from mooactor.tensors.network import Network, ports_taken

if TYPE_CHECKING:
    from mooactor.tensors.plane import DataPlane

_HOLDERS_NAMED = 3
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def error_for(err: int, what: str) -> Exception:
    """The exception for a `moo_err`; `what` begins its message."""
    phrase = f"{what}: {ffi.string(lib.moo_strerror(err)).decode()}"
    if err == lib.MOO_EFORK:
        return ActorUnavailable(
            "a data plane cannot be used in a forked child of its process; start a "
            "session of its own there with moo.init(), or use moo.spawn in place of "
            "the fork"
        )
    if err == lib.MOO_ESYS:
        code = ffi.errno
        more = _limits() if code in (errno.EFBIG, errno.ENOMEM) else ""
        return OSError(code, f"{what}: {os.strerror(code)}{more}")
    if err == lib.MOO_ENOMEM:
        return OutOfMemory(phrase + _limits())
    if err in (lib.MOO_EINVAL, lib.MOO_EPROTO, lib.MOO_EVERSION, lib.MOO_ESTALE):
        return ValueError(phrase)
    return RuntimeError(phrase)


def _limits() -> str:
    limits = memory_refusal()
    return f": of this process, {limits}; raise it" if limits else ""


def serve_error(err: int, plane: DataPlane, network: Network) -> Exception:
    """The exception for a plane that cannot listen for other hosts."""
    code, bind = ffi.errno, network.bind
    if err == lib.MOO_EUNREACHABLE and network.gpu_direct:
        return ActorUnavailable(
            "MOOACTOR_GPUDIRECT=1 does not work here: "
            f"{plane.route(plane.process_id)[1]}; unset it, or see `mooactor doctor`"
        )
    if err == lib.MOO_EUNREACHABLE:
        return ActorUnavailable(
            f"no allowed transport works here: {plane.route(plane.process_id)[1]}; "
            "allow tcp as well, or see `mooactor doctor`"
        )
    if err == lib.MOO_ESYS and (said := cannot_listen(code, network)):
        return said
    if err == lib.MOO_ESYS and code in NO_ROOM:
        return no_room_in(plane.directory, code)
    where = f" on {bind}" if bind else ""
    return error_for(err, f"cannot listen for other hosts{where}")


def cannot_listen(code: int, network: Network) -> OSError | None:
    """The exception for that errno, if it says that nobody can listen there."""
    bind = network.bind or "127.0.0.1"
    if code in _NO_SUCH_ADDRESS:
        return OSError(
            code,
            f"cannot listen on {bind}: {os.strerror(code)}; MOOACTOR_BIND takes an "
            "address of this host (`ip address` shows them), or * for all",
        )
    if code == errno.EADDRINUSE and network.ports:
        return OSError(code, ports_taken(bind, network.ports))
    return None


def no_room_in(directory: str, code: int) -> OSError:
    """The error of a file of the session that cannot be written."""
    return OSError(
        code,
        f"{os.strerror(code)} in {directory}, the session's directory: make room "
        "there, or set TMPDIR to a directory that has some",
    )


def export_error(err: int, plane: DataPlane, nbytes: int, peer: int) -> Exception:
    """The exception for a failed export."""
    if err == lib.MOO_ENOMEM:
        return out_of_memory(plane, nbytes)
    if err == lib.MOO_EPEER:
        return ActorDied(f"process {peer:016x} is gone", delivered=False)
    if err == lib.MOO_EUNREACHABLE:
        transport, why = plane.route(peer)
        if transport is not None:
            why = f"it was unreachable, but is reachable now ({why}); call again"
        return ActorUnavailable(f"no data could be sent to process {peer:016x}: {why}")
    if err == lib.MOO_ESTALE:
        return ValueError(
            "this memory was moved to another process by moo.move: use a copy made "
            "before the move"
        )
    return error_for(err, f"cannot export {nbytes} bytes")


def out_of_memory(plane: DataPlane, nbytes: int) -> OutOfMemory:
    """Names sizes and holders."""
    statistics = plane.statistics()
    used = size_text(statistics["used"])
    kept = ""
    if statistics["kept_for_forks"]:
        kept = (
            f"; {size_text(statistics['kept_for_forks'])} were dropped here, and stay "
            "until the forked children of this process that can read them have ended"
        )
    holders = "; ".join(
        f"process {owner:016x} holds {size_text(held)} by {leases} leases"
        if owner != plane.process_id
        else f"this process itself uses {size_text(held)}"
        for owner, held, leases in plane.holders(_HOLDERS_NAMED)
    )
    limits = memory_refusal()
    if limits and statistics["used"] + nbytes <= plane.memory_limit:
        return OutOfMemory(
            f"no room for {size_text(nbytes)} of shared memory: of this process, "
            f"{limits}. Raise that limit, or unset it"
        )
    return OutOfMemory(
        f"no room for {size_text(nbytes)} of shared memory: {used} of "
        f"{size_text(plane.memory_limit)} are in use "
        f"({holders or 'by nobody'}){kept}. Drop received data sooner, or raise the "
        "limit with moo.init(memory=…)"
    )


def import_error(err: int) -> Exception:
    """The exception for a failed import."""
    if err in (lib.MOO_EPEER, lib.MOO_ETIMEOUT):
        return ActorDied("the process that sent this data died before handing it over")
    if err == lib.MOO_ESTALE:
        return InternalError("this descriptor was imported or revoked before")
    return error_for(err, "cannot import")


def fetch_error(err: int, plane: DataPlane, owner: int) -> Exception:
    """The exception for a fetch that failed."""
    if err == lib.MOO_EUNREACHABLE:
        return no_contact(plane, owner)
    if err in (lib.MOO_EPEER, lib.MOO_ETIMEOUT):
        return ActorDied(
            "the process that sent this data died or was cut off before all of it "
            "arrived"
        )
    if err == lib.MOO_ESTALE:
        return InternalError("this descriptor was fetched or revoked before")
    return error_for(err, "cannot fetch")


def no_contact(plane: DataPlane, owner: int) -> ActorUnavailable:
    """The exception for an owner on another host that made no contact."""
    unknown = "an unknown address"
    theirs = plane.addresses(owner) or unknown
    ours = plane.addresses(plane.process_id) or unknown
    return ActorUnavailable(
        f"process {owner:016x} (at {theirs}) did not connect in time to hand over its "
        f"data; this process listens at {ours}. Look for a firewall between them, or "
        "for a listener that others cannot reach (MOOACTOR_BIND)"
    )


def size_text(nbytes: int) -> str:
    """Bytes for a reader: "2.1 MB"."""
    for unit, digits in (("GB", 9), ("MB", 6), ("kB", 3)):
        if nbytes >= 10**digits:
            return f"{nbytes / 10**digits:.3g} {unit}"
    return f"{nbytes} bytes"
