# SPDX-License-Identifier: MIT
"""One process's part of the data plane: memory that other processes can map.

`DataPlane` turns buffers into descriptors of a few bytes and descriptors into
buffers. The work is done in C (see cext/include/mooactor.h), without the GIL.

Invariant: what C gives out here is the caller's, or is given back. C fills a slot that
was there before, and was empty, so a signal handler that raises finds it in one of the
two states. It may do so right after C has copied gigabytes.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pickle import PickleBuffer
from typing import Any

from mooactor.tensors import fetches, tickets
from mooactor.tensors.extension import ffi, lib, missing, why_missing
from mooactor.tensors.failures import (
    error_for,
    export_error,
    fetch_error,
    out_of_memory,
    serve_error,
    size_text,
)
from mooactor.tensors.fetches import Fetch, Import
from mooactor.tensors.limits import default_memory_limit
from mooactor.tensors.network import Network, name_of, serve


def length_of(descriptor: bytes) -> int:
    """The length of its data in bytes."""
    return int.from_bytes(descriptor[24:32], "little")


def owner_of(descriptor: bytes) -> int:
    """The process that owns its memory."""
    return int.from_bytes(descriptor[8:16], "little")


Buffer = bytes | bytearray | memoryview | PickleBuffer | Any

# The time after a process's death in which its descriptors can be imported.
GRACE_MS = 200
_TICKETS = 256
_WHY_BYTES = 640


# Finalizers of buffers, one for each plane ever made; never collected.
_drops: list[Callable[[Any], None]] = []


class DataPlane:
    """Shares this process's memory with others, and imports theirs.

    On one host memory is mapped; between hosts it is fetched, see `begin`.

    Every buffer from it stays mapped and readable as long as anything refers to it,
    even after the end of its owner or of this plane.

    Ordering: none between planes; a descriptor of `export` can be imported at once.
    Threads: all methods may be called from any thread, and release the GIL.
    Forks: a plane belongs to the process that made it; in a forked child every
    method raises `ActorUnavailable`. Memory that the child inherits keeps its value:
    buffers that existed at the fork, and are dropped here, are not reused before the
    child has ended. The exception is memory of `empty_buffer` that was not exported
    yet: parent and child write to the same. Their lifetime is that of a pipe that the
    child holds, so a child that closes all its descriptors gives them up.
    Errors: a method that raises lets go of the caller's buffer first. Exceptions hold
    frames, and frames their variables; a memoryview that is still in use when the
    collector takes them apart crashes CPython.
    """

    __slots__ = (
        "_plane",
        "drop",
        "directory",
        "process_id",
        "memory_limit",
        "tell",
        "hearers",
    )

    def __init__(
        self,
        directory: str,
        process_id: int,
        key: bytes,
        network: Network | None = None,
        *,
        memory_limit: int | None = None,
    ) -> None:
        """Listen in `directory`, which only this user may enter.

        Args:
          process_id: 64 bits, used by no other process of the session before.
          key: the session key; planes with other keys are not talked to.
          network: how to reach others; by default through shared memory alone.
          memory_limit: most bytes of shared memory that this process provides;
            by default half of what the machine or the container has.

        Raises:
          RuntimeError: the data plane does not exist on this platform.
          ValueError: there is no such transport or address.
          ActorUnavailable: the only allowed transport is missing here.
          PermissionError: others could enter the directory.
          OSError: the system refused something.
        """
        if missing is not None:
            raise RuntimeError(why_missing()) from missing
        _check_private(directory)
        self.directory = directory
        self.process_id = process_id
        #: Sends a few bytes to the plane of another process, whose `hear` gets them;
        #: whoever has a way to the process sets this. Without it they are dropped.
        self.tell: Callable[[int, bytes], None] = lambda peer, message: None
        self.hearers: dict[int, Callable[[int, bytes], None]] = {}  # by first byte
        self.memory_limit = memory_limit or default_memory_limit()
        digest = hashlib.blake2b(key, digest_size=lib.MOO_KEY_BYTES).digest()
        out = ffi.new("moo_plane **")
        err = lib.moo_plane_open(
            os.fsencode(directory), process_id, digest, self.memory_limit, out
        )
        if err:
            raise error_for(err, f"cannot open a data plane in {directory}")
        # In C, every buffer holds on to the plane. Their finalizers must not depend on
        # each other in Python: in a reference cycle they run in any order.
        self._plane = ffi.gc(out[0], lib.moo_plane_rele)
        #: The finalizer of its memory, by the address.
        self.drop = functools.partial(lib.moo_drop, out[0])
        _drops.append(self.drop)
        if network is not None and network.transports is not None:
            err = serve(self._plane, network)
            if err:
                raise serve_error(err, self, network)

    def hear(self, peer: int, message: bytes) -> None:
        """Take in what `peer` told this plane; a message that nobody expects is
        dropped."""
        hearer = self.hearers.get(message[0]) if message else None
        if hearer is not None:
            hearer(peer, message[1:])

    @property
    def pointer(self) -> Any:
        """The `moo_plane`, for the modules of this package."""
        return self._plane

    def close(self) -> None:
        """Stop serving other processes. Buffers stay valid. May be called twice."""
        lib.moo_plane_close(self._plane)

    def export(
        self, buffer: Buffer, peer: int, *, moved: bool = False, wait: bool = True
    ) -> bytes:
        """A descriptor of the buffer's present value for process `peer`.

        Private memory is copied once. Memory of `empty_buffer`, `share` or
        `import_` is not copied, unless it was written to after an earlier export.

        Args:
          buffer: contiguous and not empty.
          moved: the receiver may take the memory itself; see `mark_moved`.
          wait: for the first contact with a peer on another host, some seconds at
            most. Otherwise the descriptor is good while contact is being made; if that
            fails, the peer's fetch fails, too.

        Raises:
          OutOfMemory: the limit is reached; the message names the holders.
          ActorDied: the peer's process is gone. Nothing was sent.
          ActorUnavailable: no allowed transport leads to it, or led a moment ago.
          ValueError: the buffer was moved away before, or is empty.
        """
        flags = (lib.MOO_MOVED if moved else 0) | (0 if wait else lib.MOO_NOWAIT)
        return self._export((buffer,), peer, flags)[0]

    def export_all(
        self, buffers: Iterable[Buffer], peer: int, *, wait: bool = False
    ) -> list[bytes]:
        """Descriptors of several buffers; if one fails, none is exported."""
        return self._export(buffers, peer, 0 if wait else lib.MOO_NOWAIT)

    def _export(self, buffers: Iterable[Buffer], peer: int, flags: int) -> list[bytes]:
        slots: list[Any] = []
        try:
            for buffer in buffers:
                slots.append(_new_descriptor())
                if type(buffer) is PickleBuffer:
                    buffer = buffer.raw()
                with ffi.from_buffer(buffer) as data:
                    err = lib.moo_export(
                        self._plane, data, len(data), peer, flags, slots[-1]
                    )
                    if err:
                        raise export_error(err, self, len(data), peer)
            return [bytes(ffi.buffer(slot)) for slot in slots]
        except BaseException:
            self.take_back(slots)
            raise

    def take_back(self, descriptors: Iterable[Any]) -> None:
        """End the leases of descriptors that were never sent. Slots that C has not
        filled are none."""
        for descriptor in descriptors:
            lib.moo_revoke(self._plane, descriptor, len(descriptor))

    def revoke(self, descriptor: bytes) -> None:
        """End the lease of a descriptor that was never sent, or was lost on its way. If
        the receiver has begun to use it, nothing happens."""
        err = lib.moo_revoke(self._plane, descriptor, len(descriptor))
        if err:
            raise error_for(err, "cannot revoke")

    def is_unclaimed(self, descriptor: bytes) -> bool:
        """Whether its lease stands and its receiver has done nothing with it yet, so
        that `revoke` would end it."""
        return bool(lib.moo_is_unclaimed(self._plane, descriptor, len(descriptor)))

    def import_(self, descriptor: bytes) -> Any:
        """The memory of a descriptor, as writable bytes; a `Ticket` if it must be read
        in place.

        Memory of another host is fetched first; `begin` does not wait for that. Writes
        stay in this process, unless the memory was moved here. Its lease ends when the
        last user of the memory is gone.

        Raises:
          ActorDied: the owner died before it could hand its memory over.
          InternalError: the descriptor was imported or revoked before.
          ValueError: it is no descriptor.
        """
        return self.importing(descriptor).result()

    def importing(self, descriptor: bytes) -> Import:
        """As `import_`, to be carried through by the caller; see `Import`."""
        return Import(self, descriptor)

    def begin(
        self, descriptor: bytes, tag: int = 0, out: Buffer | None = None
    ) -> Fetch:
        """Begin to receive the memory of a descriptor, from this host or another.

        Does not wait for a network. `tag`, if not 0, will be among `finished`.

        Args:
          out: writable and contiguous memory of the same size to receive into; by
            default new memory, as `import_` returns it.

        Raises:
          OutOfMemory: no room now; the descriptor can be begun again.
          ValueError: it is no descriptor, or `out` is of another size.
        """
        return self.fetching(descriptor, tag, out).begin()

    def fetching(
        self, descriptor: bytes, tag: int = 0, out: Buffer | None = None
    ) -> Fetch:
        """As `begin`, to be begun by the caller, perhaps twice: see `Fetch`."""
        into = None if out is None else ffi.from_buffer(out, require_writable=True)
        begin = functools.partial(self._begin, descriptor, tag, into)
        view: Callable[[Any, int], Any] = self.view
        if ticket := self.ticket(descriptor):  # held from here on, and given back
            view = functools.partial(_just, ticket)
        error = functools.partial(fetch_error, plane=self, owner=owner_of(descriptor))
        return Fetch(begin, tag, out, view, error)

    def _begin(self, descriptor: bytes, tag: int, into: Any, slot: Any) -> None:
        size = 0 if into is None else len(into)
        memory = ffi.NULL if into is None else into
        err = lib.moo_fetch_begin_once(
            self._plane, descriptor, len(descriptor), memory, size, tag, slot
        )
        if err and into is not None:
            ffi.release(into)
        if err == lib.MOO_ENOMEM:
            raise out_of_memory(self, length_of(descriptor))
        if err:
            raise error_for(err, "cannot fetch")
        if into is not None:
            fetches.pin(slot[0], into)

    def ticket(self, descriptor: bytes) -> tickets.Ticket | None:
        """The right to read its memory in place; None: it is to be imported."""
        if not lib.moo_descriptor_is_ticket(descriptor, len(descriptor)):
            return None
        return tickets.Ticket(self, descriptor)

    def is_remote(self, descriptor: bytes) -> bool:
        """Whether `import_` of it would wait for a network: `begin` does not."""
        return bool(lib.moo_plane_is_remote(self._plane, descriptor, len(descriptor)))

    @property
    def finished_fd(self) -> int:
        """Readable while tags of finished fetches wait; this plane's."""
        fd: int = lib.moo_plane_finished_fd(self._plane)
        if fd < 0:
            raise OSError(ffi.errno, os.strerror(ffi.errno))
        return fd

    def finished(self) -> list[int]:
        """The tags of fetches that are done, or failed, since the last call."""
        tags: list[int] = []
        out = ffi.new("uint64_t[]", _TICKETS)
        while count := lib.moo_plane_finished(self._plane, out, _TICKETS):
            tags += ffi.unpack(out, count)
        return tags

    def endpoint(self) -> bytes:
        """This process's endpoint, for `introduce` on other machines.

        Raises:
          ValueError: only shared memory is allowed.
        """
        out, size = ffi.new("uint8_t[]", lib.MOO_ENDPOINT_BYTES), _new_size()
        err = lib.moo_plane_endpoint(self._plane, out, lib.MOO_ENDPOINT_BYTES, size)
        if err:
            raise error_for(err, "this data plane has no endpoint")
        return bytes(ffi.buffer(out, size[0]))

    def introduce(self, peer: int, endpoint: bytes) -> None:
        """Make the endpoint of process `peer` known.

        Raises:
          ValueError: it is no endpoint of that process.
        """
        err = lib.moo_plane_introduce(self._plane, peer, endpoint, len(endpoint))
        if err:
            raise error_for(err, f"no endpoint of process {peer:016x}")

    def host(self, peer: int) -> bytes | None:
        """The identity of the host that process `peer`, or this one, runs on.

        None: no endpoint of it is known. Processes with the same can share memory.
        """
        out = ffi.new("uint8_t[]", lib.MOO_HOST_BYTES)
        err = lib.moo_plane_host(self._plane, peer, out)
        return None if err else bytes(ffi.buffer(out))

    def route(self, peer: int) -> tuple[str | None, str]:
        """The transport of data for `peer`, None if there is none yet, and why."""
        transport, why = ffi.new("uint32_t *"), ffi.new("char[]", _WHY_BYTES)
        err = lib.moo_plane_route(self._plane, peer, transport, why, _WHY_BYTES)
        if err:
            raise error_for(err, "no route")
        return (
            name_of(transport[0]),
            ffi.string(why).decode(errors="replace"),
        )

    def addresses(self, peer: int) -> str:
        """The addresses of process `peer`, or of this one, for other hosts, as text for
        a message; empty if they are not known (any more)."""
        text = ffi.new("char[]", _WHY_BYTES)
        err = lib.moo_plane_addresses(self._plane, peer, text, _WHY_BYTES)
        return "" if err else ffi.string(text).decode()

    def traffic(self, peer: int) -> tuple[int, int]:
        """Bytes so far: exported for `peer`, and fetched from it over a network."""
        out = ffi.new("uint64_t[2]")
        err = lib.moo_plane_traffic(self._plane, peer, out, out + 1)
        if err:
            raise error_for(err, "no traffic to tell of")
        return out[0], out[1]

    def discard(self, descriptor: bytes) -> None:
        """End the lease of a received descriptor without looking at the data."""
        err = lib.moo_discard(
            self._plane, descriptor, len(descriptor), lib.MOO_CONTACT_MS
        )
        # If the owner is gone, so is the lease.
        if err and err not in (lib.MOO_EPEER, lib.MOO_ETIMEOUT):
            raise error_for(err, "cannot discard")

    def peer_lost(self, peer: int) -> None:
        """Process `peer` died: end its leases, and let go of its memory in time.

        Its earlier descriptors can be imported for `GRACE_MS` more. Its hang-up is
        noticed without this, except if it died before it had a plane.
        """
        lib.moo_peer_lost(self._plane, peer, GRACE_MS)

    def empty_buffer(self, nbytes: int) -> memoryview:
        """Uninitialised shared memory of this process, page-aligned.

        Raises:
          OutOfMemory: the limit is reached.
        """
        return self._allocated(nbytes, lib.moo_empty, self._plane, nbytes)

    def share(self, buffer: Buffer) -> memoryview:
        """The buffer's present value, read-only, which `export` never copies.

        For values that go to several processes. It is a copy, unless the buffer is
        memory of `empty_buffer` or `share`.

        Raises:
          OutOfMemory: the limit is reached.
        """
        if type(buffer) is PickleBuffer:
            buffer = buffer.raw()
        with ffi.from_buffer(buffer) as data:
            size = len(data)
            arguments = lib.moo_share, self._plane, data, size
            return self._allocated(size, *arguments).toreadonly()

    def is_same(self, shared: memoryview, buffer: Buffer) -> bool:
        """Whether `share` of the buffer would now give the same bytes as `shared`."""
        if type(buffer) is PickleBuffer:
            buffer = buffer.raw()
        with ffi.from_buffer(buffer) as data, ffi.from_buffer(shared) as other:
            if len(data) != len(other):
                return False
            return bool(ffi.buffer(data) == ffi.buffer(other))

    def _allocated(
        self, nbytes: int, function: Callable[..., int], *args: Any
    ) -> memoryview:
        """The block with whose address the function of C fills its last argument."""
        views: list[memoryview] = []
        slot = _new_pointer()
        try:
            err = function(*args, slot)
            if err:
                raise export_error(err, self, nbytes, self.process_id)
            # In one step the block gets its finalizer and its place here.
            views.extend(self.view(slot[0], nbytes))
            return views[0]
        except BaseException:
            if slot[0] and not views:
                self.drop(slot[0])
            raise

    def mark_moved(self, address: int) -> bool:
        """Give the shared memory around `address` away with its next export.

        The receiver then writes to the same memory. False: it is not shared.

        Raises:
          ValueError: it was moved away before.
        """
        err = lib.moo_move(self._plane, ffi.cast("void *", address))
        if err and err != lib.MOO_EINVAL:
            raise error_for(err, "cannot move")
        return not err

    def statistics(self) -> dict[str, int]:
        """Counters and sizes, named and explained in mooactor.h."""
        out = ffi.new("moo_statistics *")
        lib.moo_plane_statistics(self._plane, out)
        return {name: getattr(out, name) for name in _STATISTICS}

    def holders(self, most: int = 64) -> list[tuple[int, int, int]]:
        """The holders of this plane's memory: (process id, bytes, leases), largest
        first."""
        out = ffi.new("moo_holder[]", most)
        count = lib.moo_holders(self._plane, out, most)
        return [(h.process_id, h.bytes, h.leases) for h in out[0:count]]

    def is_held(self, buffer: memoryview) -> bool:
        """Whether a buffer of `empty_buffer` or `share` is in use elsewhere: by another
        process, by a message to one that was not read yet, or by another `share`.
        """
        with ffi.from_buffer(buffer) as data:
            return bool(lib.moo_is_held(self._plane, data))

    def __repr__(self) -> str:
        stats = self.statistics()
        return (
            f"<DataPlane of process {self.process_id:016x}: "
            f"{size_text(stats['used'])} of {size_text(self.memory_limit)} in "
            f"{stats['blocks']} blocks, {stats['leases']} leases, "
            f"{stats['imports']} imports>"
        )

    def view(self, pointer: Any, nbytes: int) -> Iterator[memoryview]:
        """Made when it is iterated over, in one step of C."""
        memory = map(ffi.gc, (pointer,), (self.drop,))
        return map(memoryview, map(ffi.buffer, memory, (nbytes,)))


if missing is None:
    _new_descriptor = functools.partial(
        ffi.new, ffi.typeof(f"uint8_t[{lib.MOO_DESCRIPTOR_BYTES}]")
    )
    _new_pointer = functools.partial(ffi.new, ffi.typeof("void **"))
    _new_size = functools.partial(ffi.new, ffi.typeof("size_t *"))
    # Memory from here, as numpy sees it.
    MEMORY_TYPES: tuple[type, ...] = (memoryview, ffi.buffer)
    _STATISTICS = [name for name, _ in ffi.typeof("moo_statistics").fields]


def _just(
    ticket: tickets.Ticket, pointer: Any, nbytes: int
) -> Iterator[tickets.Ticket]:
    return iter((ticket,))


def _check_private(directory: str) -> None:
    status = os.stat(directory)
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise PermissionError(
            f"{directory} must belong to this user with mode 0700: "
            "any process that can enter it reaches the tensors of this session; "
            "run chown and chmod 700 on it"
        )
