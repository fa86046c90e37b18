# SPDX-License-Identifier: MIT
"""One member of a learner group, for C: addresses, sizes, numbers.

The contracts are in cext/include/mooactor.h; `mooactor.learner` makes tensors and
exceptions of it. All calls release the GIL.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from mooactor.errors import VersionMismatch
from mooactor.tensors.network import Network, group_options

try:
    from mooactor.tensors._cext import ffi, lib
except ImportError as error:  # not Linux, or not compiled
    _missing: ImportError | None = error
    DTYPES: dict[str, int] = {}
    OPS: dict[str, int] = {}
else:
    _missing = None
    DTYPES = {
        "float32": lib.MOO_DT_F32,
        "float64": lib.MOO_DT_F64,
        "float16": lib.MOO_DT_F16,
        "bfloat16": lib.MOO_DT_BF16,
        "int32": lib.MOO_DT_I32,
        "int64": lib.MOO_DT_I64,
        "uint8": lib.MOO_DT_U8,
    }
    OPS = {
        "sum": lib.MOO_OP_SUM,
        "mean": lib.MOO_OP_MEAN,
        "min": lib.MOO_OP_MIN,
        "max": lib.MOO_OP_MAX,
        "product": lib.MOO_OP_PRODUCT,
    }
    KINDS = {
        "barrier": lib.MOO_GROUP_BARRIER,
        "allreduce": lib.MOO_GROUP_ALLREDUCE,
        "broadcast": lib.MOO_GROUP_BROADCAST,
        "all_gather": lib.MOO_GROUP_ALL_GATHER,
        "reduce_scatter": lib.MOO_GROUP_REDUCE_SCATTER,
    }
    OK, EINVAL, ENOMEM = lib.MOO_OK, lib.MOO_EINVAL, lib.MOO_ENOMEM
    ECLOSED, ETIMEOUT, EPEER = lib.MOO_ECLOSED, lib.MOO_ETIMEOUT, lib.MOO_EPEER
    EFORK, EMISMATCH = lib.MOO_EFORK, lib.MOO_EMISMATCH
    EUNREACHABLE = lib.MOO_EUNREACHABLE


class Part(NamedTuple):
    """The part of a call for tensors of one type, by address; see `moo_request`.

    `layout` is a hash of the whole call, the same in all its parts: before anything is
    done, all members' must be equal.
    """

    kind: str
    dtype: int = 0
    op: int = 0
    root: int = 0
    layout: int = 0
    inputs: Sequence[int] = ()
    outputs: Sequence[int] = ()
    sizes: Sequence[int] = ()
    output_bytes: int = 0

    def fill(self, request: Any) -> list[Any]:
        """Describe it to C. The result must live until C has copied it."""
        request.kind, request.dtype, request.op = KINDS[self.kind], self.dtype, self.op
        request.root, request.layout = self.root, self.layout
        request.count, request.output_bytes = len(self.sizes), self.output_bytes
        if not self.sizes:
            return []
        numbers = (array("Q", column) for column in self[5:8])
        kept = into, out_of, lengths = list(map(ffi.from_buffer, numbers))
        request.inputs = ffi.cast("void **", into)
        request.outputs = ffi.cast("void **", out_of)
        request.bytes = ffi.cast("uint64_t *", lengths)
        return kept


class Info(NamedTuple):
    """A member's place in its group, and its counters."""

    rank: int
    size: int
    epoch: int
    min_size: int
    pending: int
    operations: int
    bytes: int
    failures: int
    waited_s: float
    hosts: int
    transport: int


class Outcome(NamedTuple):
    """The end of an operation; see `moo_outcome`."""

    status: int
    rank: int
    epoch: int
    pid: int
    left: bool
    text: str


class SharedWork:
    """A call in a member's queue. Holds on to the memory it works on.

    It is made before C knows of the operation, and C itself fills in the slot:
    queued work has its memory, even if Python is interrupted at any point.
    """

    __slots__ = ("_slot", "_memory", "_outcome")

    def __init__(self, memory: object) -> None:
        self._slot = ffi.new("moo_work **")
        self._memory = memory
        self._outcome = ffi.new("moo_outcome *")

    @property
    def slot(self) -> Any:
        """The slot into which C puts the queued operation."""
        return self._slot

    def __del__(self) -> None:
        if self._slot[0] != ffi.NULL:
            lib.moo_work_free(self._slot[0])

    def wait(self, seconds: float) -> Outcome | None:
        """The outcome, or None: not yet, after `seconds` or a signal."""
        out = self._outcome
        err = lib.moo_work_wait(self._slot[0], seconds, out)
        if err == ETIMEOUT:
            return None
        if err:
            raise _error(err)
        if out.status == OK:
            return _WELL
        return _outcome(out)

    def done(self) -> bool:
        """Whether it has ended, well or not. False before it is queued."""
        work = self._slot[0]
        return work != ffi.NULL and bool(lib.moo_work_done(work))


def _outcome(out: Any) -> Outcome:
    text = ffi.string(out.text).decode()
    return Outcome(out.status, out.rank, out.epoch, out.pid, bool(out.left), text)


_WELL = Outcome(0, 0, 0, 0, False, "")


class SharedGroup:
    """This process's membership in the group that lives in a shared segment.

    Invariant: work queued in C has its memory in `_unfinished`, from before it is
    queued until it is done, whether or not anybody keeps the work. Both queues are in
    the same order, because one lock is held while an operation enters both.
    """

    __slots__ = ("_group", "_lock", "_unfinished")

    def __init__(
        self,
        fd: int,
        process_id: int,
        min_size: int,
        timeout_s: float,
        *,
        network: Network | None = None,
        host: str = "",
    ) -> None:
        """Join, without waiting for others. `fd` stays the caller's.

        Args:
          network: transports that may be used, by default all; the address to listen on
            when members are on several hosts, by default all addresses, but only this
            machine's own if all members are on one host that may not use shared memory;
            the connections from each host to the next, the most that a member wants.
          host: members whose `host` is the same share memory.

        Raises:
          ValueError: the group has another `min_size`, `bind` is no address, or there
            are too many stripes.
          RuntimeError: the group is full, or there is no data plane here.
          VersionMismatch: another version of mooactor made the group.
          OSError: the segment could not be mapped.
        """
        if _missing is not None:
            raise RuntimeError("learner groups need Linux") from _missing
        out = ffi.new("moo_group **")
        options, _kept = group_options(network or Network(), host)
        err = lib.moo_group_join(fd, process_id, min_size, timeout_s, options, out)
        if err:
            raise _error(err)
        self._group = ffi.gc(out[0], lib.moo_group_leave)
        self._lock = threading.RLock()  # a signal handler may queue, too
        self._unfinished: deque[SharedWork] = deque()  # but for done ones in front

    def ready(self, seconds: float) -> bool:
        """Whether the group has its members and this one is among them."""
        err = lib.moo_group_ready(self._group, seconds)
        if err and err != ETIMEOUT:
            raise _error(err)
        return bool(err == OK)

    def submit(self, parts: Sequence[Part], memory: object = None) -> SharedWork:
        """Queue a call, which ends as one: with the first of its parts that fails."""
        requests = ffi.new("moo_request []", len(parts))
        kept = [part.fill(request) for part, request in zip(parts, requests)]
        work = self._queue(requests, len(parts), memory)
        del kept  # C has its own copy now
        return work

    def _queue(self, requests: Any, parts: int, memory: object) -> SharedWork:
        work = SharedWork(memory)
        with self._lock:
            while self._unfinished and self._unfinished[0].done():
                self._unfinished.popleft()
            self._unfinished.append(work)
            err = ECLOSED
            if self._group is not None:
                err = lib.moo_group_submit(self._group, requests, parts, work.slot)
            if err:
                self._unfinished.remove(work)
                raise _error(err)
        return work

    def start(self) -> None:
        """Start a thread of the group's own, which runs the queue from now on."""
        err = lib.moo_group_start(self._group)
        if err:
            raise _error(err)

    def describe(self) -> Info:
        """The present state and counters of this member."""
        info = ffi.new("moo_group_info *")
        lib.moo_group_describe(self._group, info)
        return Info(*(getattr(info, name) for name in Info._fields))

    def obstacle(self) -> Outcome | None:
        """The error of the members' last barrier, the reason why a newcomer waits."""
        out = ffi.new("moo_outcome *")
        lib.moo_group_obstacle(self._group, out)
        return _outcome(out) if out.status else None

    def members(self) -> list[tuple[int, int]]:
        """Each member's pid and process id, in rank order."""
        pids = ffi.new("int32_t []", lib.MOO_GROUP_MAX)
        ids = ffi.new("uint64_t []", lib.MOO_GROUP_MAX)
        size = lib.moo_group_members(self._group, pids, ids)
        return [(pids[rank], ids[rank]) for rank in range(size)]

    def leave(self) -> None:
        """Leave at once. Queued work fails; no other method may follow."""
        with self._lock:  # a thread that queues meanwhile finds no group
            group, self._group = self._group, None
            ffi.release(group)
            self._unfinished.clear()


def can_reduce(dtype: str, op: str) -> bool:
    """Whether there is arithmetic for elements of this type."""
    return dtype in DTYPES and (op != "mean" or "float" in dtype)


def segment_bytes() -> int:
    """The size of the shared segment that a group needs."""
    if _missing is not None:
        raise RuntimeError("learner groups need Linux") from _missing
    return int(lib.moo_group_segment_bytes())


def _error(err: int) -> Exception:
    """The exception for a call that was refused, not for an outcome."""
    if err == lib.MOO_ESYS:
        return OSError(ffi.errno, os.strerror(ffi.errno))
    if err == lib.MOO_EVERSION:
        return VersionMismatch(
            "another version of mooactor made this learner group: install the same "
            "version for all members"
        )
    text = {
        EINVAL: "one of the arguments is not valid for a learner group",
        ENOMEM: f"the group is full: it has {lib.MOO_GROUP_MAX} members, and no group "
        "can have more",
        EFORK: "a forked child is no member of its parent's learner group",
        ECLOSED: "this process has left the learner group",
    }.get(err, ffi.string(lib.moo_strerror(err)).decode())
    return ValueError(text) if err == EINVAL else RuntimeError(text)
