# SPDX-License-Identifier: MIT
"""The fabrics of libfabric on this machine, and its own speed."""

from __future__ import annotations

from mooactor.errors import ActorUnavailable
from mooactor.tensors.extension import ffi, lib, missing, why_missing
from mooactor.tensors.failures import error_for

_TEXT_BYTES = 8192
_WHY_BYTES = 256


def probe() -> tuple[bool, list[str]]:
    """Whether data can travel by a fabric, and lines that name it or say why not.

    The first line names the library, the second the fabric that is chosen. It loads
    libfabric, and asks all its providers.
    """
    if missing is not None:
        return False, [why_missing()]
    text = ffi.new("char[]", _TEXT_BYTES)
    err = lib.moo_fabric_probe(text, _TEXT_BYTES)
    return not err, ffi.string(text).decode(errors="replace").splitlines()


class BareEndpoint:
    """libfabric's own speed: reads as its benchmark `fi_rma_bw` does them.

    The runtime takes no part. Both sides keep a core busy while they work. One thread
    at a time; all methods release the GIL.
    """

    def __init__(self, provider: str, size: int) -> None:
        """Open one with `size` bytes of memory, to be read or to read into.

        Raises:
          ActorUnavailable: there is no such fabric on this machine.
          RuntimeError: the data plane does not exist on this platform.
        """
        if missing is not None:
            raise RuntimeError(why_missing()) from missing
        if not hasattr(lib, "moo_bare_open"):  # built without libfabric
            raise ActorUnavailable(probe()[1][0])
        out, why = ffi.new("moo_bare **"), ffi.new("char[]", _WHY_BYTES)
        err = lib.moo_bare_open(provider.encode(), size, out, why, _WHY_BYTES)
        if err == lib.MOO_EUNREACHABLE:
            raise ActorUnavailable(ffi.string(why).decode(errors="replace"))
        if err:
            raise error_for(err, f"cannot open an endpoint of {provider}")
        self._bare = ffi.gc(out[0], lib.moo_bare_close)

    def offer(self) -> bytes:
        """The address and key for a reader of this memory."""
        out = ffi.new("uint8_t[]", lib.MOO_BARE_OFFER_BYTES)
        if err := lib.moo_bare_offer(self._bare, out):
            raise error_for(err, "the endpoint has no name")
        return bytes(ffi.buffer(out))

    def serve(self, until: int) -> None:
        """Let others read until the descriptor `until` is readable."""
        lib.moo_bare_serve(self._bare, until)

    def read(self, offer: bytes, piece: int, timeout: float = 60.0) -> None:
        """Read all of the memory offered, `piece` bytes at a time, 64 under way.

        Raises:
          RuntimeError: the other side hung up, or `timeout` seconds have passed.
          ValueError: this is no offer, or one of less memory.
        """
        if len(offer) != lib.MOO_BARE_OFFER_BYTES:
            raise ValueError("this is no offer")
        err = lib.moo_bare_read(self._bare, offer, piece, int(timeout * 1e3))
        if err:
            raise error_for(err, "libfabric's reads failed")
