# SPDX-License-Identifier: MIT
"""One operation of a learner group, for C: addresses, sizes, numbers.

The contracts are in cext/include/mooactor.h. All calls release the GIL.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from mooactor.errors import VersionMismatch
from mooactor.tensors.extension import ffi, lib, missing

DTYPES: dict[str, int] = {}
OPS: dict[str, int] = {}
KINDS: dict[str, int] = {}

if missing is None:
    DTYPES.update(
        float32=lib.MOO_DT_F32,
        float64=lib.MOO_DT_F64,
        float16=lib.MOO_DT_F16,
        bfloat16=lib.MOO_DT_BF16,
        int32=lib.MOO_DT_I32,
        int64=lib.MOO_DT_I64,
        uint8=lib.MOO_DT_U8,
    )
    OPS.update(
        sum=lib.MOO_OP_SUM,
        mean=lib.MOO_OP_MEAN,
        min=lib.MOO_OP_MIN,
        max=lib.MOO_OP_MAX,
        product=lib.MOO_OP_PRODUCT,
    )
    KINDS.update(
        barrier=lib.MOO_GROUP_BARRIER,
        allreduce=lib.MOO_GROUP_ALLREDUCE,
        broadcast=lib.MOO_GROUP_BROADCAST,
        all_gather=lib.MOO_GROUP_ALL_GATHER,
        reduce_scatter=lib.MOO_GROUP_REDUCE_SCATTER,
    )
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

    It is made before C knows of the operation, and C itself fills in the slot, which
    has its finalizer by then: queued work has its memory, and is freed in the end, even
    if Python is interrupted at any point.
    """

    __slots__ = ("_finalizer", "_memory", "_outcome", "_slot")

    def __init__(self, memory: object = None) -> None:
        self._slot = ffi.new("moo_work **")
        self._finalizer = ffi.gc(self._slot, lib.moo_work_clear)
        self._memory = memory
        self._outcome = ffi.new("moo_outcome *")

    @property
    def slot(self) -> Any:
        """The slot into which C puts the queued operation."""
        return self._slot

    def settle(self) -> None:
        """Called when it is done, before its group lets go of it; again, if a signal
        handler raises. Never blocks."""

    def wait(self, seconds: float) -> Outcome | None:
        """The outcome, or None: not yet, after `seconds` or a signal."""
        out = self._outcome
        err = lib.moo_work_wait(filled(self._slot), seconds, out)
        if err == ETIMEOUT:
            return None
        if err:
            raise error_of(err)
        if out.status == OK:
            return _WELL
        return outcome_of(out)

    def done(self) -> bool:
        """Whether it has ended, well or not. False before it is queued, and in a forked
        child."""
        work = self._slot[0]
        return work != ffi.NULL and bool(lib.moo_work_done(work))


def filled(slot: Any) -> Any:
    """What C has put into a slot.

    Raises:
      RuntimeError: nothing; or the slot's finalizer, which may come before others of
        the same garbage, has emptied it.
    """
    if slot[0] == ffi.NULL:
        raise error_of(ECLOSED)
    return slot[0]


def outcome_of(out: Any) -> Outcome:
    """A `moo_outcome`."""
    text = ffi.string(out.text).decode()
    return Outcome(out.status, out.rank, out.epoch, out.pid, bool(out.left), text)


_WELL = Outcome(0, 0, 0, 0, False, "")


def error_of(err: int) -> Exception:
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
