# SPDX-License-Identifier: MIT
"""The bytes of a CUDA tensor, on their way to another process.

*Shared*: the sender copies them within the device into a buffer that it lends, and the
receiver copies them out of it, also within the device. Both processes must see the same
GPU and be able to open each other's memory there, which is tried (`peer_access`).
*Direct*: the receiver reads that buffer over a fabric, which is tried as well, see
`direct`.
*Staged*: otherwise they travel as an array would, see `staging`; so do those of a
value for several receivers, and small ones.

In each way the value is that in the sender's current stream, and the receiver's current
stream can use it at once.
"""

from __future__ import annotations

import functools
import os
import threading
from pickle import PickleBuffer
from typing import Any, NamedTuple

import torch

from mooactor.errors import ActorDied
from mooactor.tensors import public
from mooactor.tensors.codec import THRESHOLD, sole_receiver
from mooactor.tensors.cuda import staging
from mooactor.tensors.cuda.direct import Direct, Landings, ReadProbe
from mooactor.tensors.cuda.driver import Driver, driver
from mooactor.tensors.cuda.peer_access import PeerAccess, Probe
from mooactor.tensors.cuda.pool import Lent, Opened, Pool, limit
from mooactor.tensors.plane import DataPlane
from mooactor.tensors.tickets import Source

# Below, two copies through pinned memory take no longer than two within the device and
# the calls around them. Not measured yet.
SHARED_FROM = 256 * 1024


class Origin(NamedTuple):
    """The origin of a tensor, and the way of its bytes."""

    uuid: bytes  # of its device; empty if the driver cannot say
    number: int  # of its device, there
    sender: int  # process id
    lent: Lent | None = None  # shared: the buffer to read
    probe: Probe | None = None  # staged: the probe for the next ones
    source: Source | None = None  # direct: the memory to read
    read_probe: ReadProbe | None = None  # staged: the probe for reads, likewise


class _Session:
    """The loans of this process's GPUs, and its reads of others', in one session."""

    def __init__(self, plane: DataPlane, the_driver: Driver) -> None:
        self.plane = plane
        self.driver = the_driver
        self.access = PeerAccess(the_driver, plane)
        self.opened = Opened(the_driver)
        pool, landings = _the_pool(the_driver), _the_landings(the_driver)
        self.direct = Direct(plane, the_driver, pool, landings)

    def close(self) -> None:
        self.opened.close()
        if _pool is not None:
            _pool.end_session(self.plane)


_session: _Session | None = None
_pool: Pool | None = None  # outlives sessions: its memory is never given back
_lock = threading.RLock()
_counts = {
    f"{done}_{way}": 0
    for way in ("shared", "direct", "staged")
    for done in ("sent", "got")
}


def statistics() -> dict[str, int | str]:
    """Counts of large tensors by their way, and of this process's loans and reads."""
    found: dict[str, int | str] = dict(_counts)
    if _pool is not None:
        found |= {f"pool_{key}": n for key, n in _pool.statistics().items()}
    if _session is not None:
        opened = _session.opened.statistics()
        found |= {f"opened_{key}": n for key, n in opened.items()}
        found["direct"] = _session.direct.why
    return found


# -- sending ---------------------------------------------------------------


def pack(flat: torch.Tensor) -> tuple[Any, Origin]:
    """The content of a message for a contiguous CUDA tensor: its bytes, or the ticket
    of a buffer with them; and where they come from.

    Raises:
      OutOfMemory: the limit of shared memory is reached.
    """
    raw = flat.view(-1).view(torch.uint8)
    index, plane = flat.get_device(), public.current()
    origin = Origin(_uuid(index), index, 0 if plane is None else plane.process_id)
    if plane is None or raw.numel() < THRESHOLD:
        return _by_value(raw), origin
    session = _session_of(plane)
    if session is not None and raw.numel() >= SHARED_FROM:
        shared, origin = _shared(session, raw, origin)
        if shared is not None:
            return shared, origin
    memory = _staged(plane, raw)
    _counts["sent_staged"] += 1
    return PickleBuffer(memory), origin


def _staged(plane: DataPlane, raw: torch.Tensor) -> memoryview:
    memory = plane.empty_buffer(raw.numel())
    staging.to_host(raw, torch.frombuffer(memory, dtype=torch.uint8))
    return memory


def _place(raw: torch.Tensor) -> tuple[int, int, int, int]:
    """Its device, address and bytes, and the stream that works on it."""
    device = raw.get_device()
    stream = torch.cuda.current_stream(device).cuda_stream
    return device, raw.data_ptr(), raw.numel(), stream


def _by_value(raw: torch.Tensor) -> Any:
    array: Any = raw.cpu().numpy()
    if array.nbytes < THRESHOLD:
        return bytearray(array.tobytes())
    return PickleBuffer(array)


def _shared(
    session: _Session, raw: torch.Tensor, origin: Origin
) -> tuple[PickleBuffer | None, Origin]:
    """The ticket of a loan; None if there is none, and perhaps a probe instead."""
    peer, most = sole_receiver(), limit(session.driver, origin.number)
    if peer is None or peer == session.plane.process_id or not most:
        return None, origin
    route, _ = session.plane.route(peer)
    if route == "ofi":
        return _direct(session, peer, raw, origin)
    trusted = session.access.may_open(peer, origin.uuid)
    if route not in (None, "shm") or trusted is False:
        return None, origin
    if route is None or trusted is None:
        probe = session.access.probe(origin.number)
        return None, origin._replace(probe=probe)
    loan = _the_pool(session.driver).lend(session.plane, *_place(raw))
    if loan is None:
        return None, origin
    _counts["sent_shared"] += 1
    lent = Lent(origin.sender, os.getpid(), loan.handle)
    ticket: Any = loan.ticket  # before Python 3.12 its type does not say Buffer
    return PickleBuffer(ticket), origin._replace(lent=lent)


def _direct(
    session: _Session, peer: int, raw: torch.Tensor, origin: Origin
) -> tuple[PickleBuffer | None, Origin]:
    found = session.direct.lend(peer, origin.uuid, *_place(raw))
    if found is None:
        return None, origin
    if isinstance(found, ReadProbe):
        return None, origin._replace(read_probe=found)
    _counts["sent_direct"] += 1
    return PickleBuffer(found.ticket), origin._replace(source=found.source)


# -- receiving -------------------------------------------------------------


def unpack(data: Any, origin: Origin, nbytes: int) -> torch.Tensor:
    """The bytes of `pack`, on the sender's device if it is seen here, else on the
    current one: flat, of `uint8`, and nobody else's.

    Raises:
      RuntimeError: there is no GPU in this process.
      ActorDied: the loan is gone with its owner.
      ActorUnavailable: the loan could not be read over the fabric.
    """
    if not torch.cuda.is_available():
        raise RuntimeError(
            "a CUDA tensor came to a process that sees no GPU: send `tensor.cpu()`, "
            "or spawn the receiver with num_gpus=1"
        )
    current = torch.cuda.current_device()  # CUDA is initialised from here on
    seen = _index_of(origin)
    index = current if seen is None else seen
    session = _present_session()
    if origin.probe is not None and session is not None:
        session.access.answer(origin.sender, origin.uuid, seen, origin.probe)
    raw = torch.empty(nbytes, dtype=torch.uint8, device=f"cuda:{index}")
    if origin.read_probe is not None and session is not None:
        session.direct.answer(origin.sender, origin.uuid, index, origin.read_probe)
    if (origin.lent is not None or origin.source is not None) and session is None:
        raise ActorDied(
            "this CUDA tensor was not read before its session ended: call get() "
            "before moo.shutdown()"
        )
    if origin.lent is not None and session is not None:
        session.opened.copy(origin.lent, *_place(raw), data)
        _counts["got_shared"] += 1
    elif origin.source is not None and session is not None:
        owner = origin.sender, origin.uuid
        session.direct.copy(*owner, origin.source, data, *_place(raw))
        _counts["got_direct"] += 1
    elif nbytes:
        source = torch.frombuffer(
            bytearray(data) if type(data) is bytes else data, dtype=torch.uint8
        )
        _from_host(source, raw)
    return raw


def _from_host(source: torch.Tensor, raw: torch.Tensor) -> None:
    if source.numel() < THRESHOLD:
        raw.copy_(source)
        return
    staging.to_device(source, raw)
    _counts["got_staged"] += 1


# -- in one process --------------------------------------------------------


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A CUDA tensor's present value in main memory, contiguous: in shared memory if it
    is large and a session runs here.

    Raises:
      OutOfMemory: the limit of shared memory is reached.
    """
    plain, plane = tensor.detach(), public.current()
    if plane is None or plain.nbytes < THRESHOLD:
        return plain.cpu().contiguous()
    memory = _staged(plane, plain.contiguous().view(-1).view(torch.uint8))
    return torch.frombuffer(memory, dtype=plain.dtype).view(plain.shape)


def from_host(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy a contiguous tensor in main memory to a CUDA tensor of its shape and type,
    ahead of all later work of the current stream."""
    plain = target.detach()
    if plain.nbytes < THRESHOLD or not plain.is_contiguous():
        plain.copy_(source)
        return
    raw = plain.view(-1).view(torch.uint8)
    staging.to_device(source.view(-1).view(torch.uint8), raw)


# -- devices ---------------------------------------------------------------


def _uuid(index: int) -> bytes:
    found = _uuids()
    return found[index] if index < len(found) else b""


def _index_of(origin: Origin) -> int | None:
    """The sender's device by its number here; None if it is not seen here."""
    found = _uuids()
    if not found or not origin.uuid:  # no such driver: numbers are all there is
        return origin.number if origin.number < torch.cuda.device_count() else None
    return found.index(origin.uuid) if origin.uuid in found else None


@functools.cache
def _uuids() -> list[bytes]:
    """Of all devices of this process; empty if the driver cannot say."""
    the_driver = driver()
    if the_driver is None:
        return []
    return [the_driver.uuid(index) for index in range(torch.cuda.device_count())]


# -- sessions --------------------------------------------------------------


def _present_session() -> _Session | None:
    plane = public.current()
    return None if plane is None else _session_of(plane)


def _session_of(plane: DataPlane) -> _Session | None:
    """The session of this plane; None if the driver can share nothing."""
    global _session
    the_driver = driver()
    if the_driver is None:
        return None
    with _lock:
        if _session is None or _session.plane is not plane:
            _session = _Session(plane, the_driver)
        return _session


def _the_pool(the_driver: Driver) -> Pool:
    global _pool
    with _lock:
        if _pool is None:
            _pool = Pool(the_driver)
        return _pool


@functools.cache  # as the pool does, it outlives sessions
def _the_landings(the_driver: Driver) -> Landings:
    return Landings(the_driver)


def _end_session() -> None:
    global _session
    with _lock:
        ended, _session = _session, None
    if ended is not None:
        ended.close()


public.at_end(_end_session)
