# SPDX-License-Identifier: MIT
"""One member of a learner group and its operations, for C.

The contracts are in cext/include/mooactor.h; `mooactor.learner` makes tensors and
exceptions of it. All calls release the GIL.
"""

from __future__ import annotations

import itertools
import operator
import os
import threading
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from mooactor.errors import VersionMismatch
from mooactor.tensors.extension import ffi, lib, missing
from mooactor.tensors.failures import cannot_listen
from mooactor.tensors.network import Network, group_options

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
    # Parsed once: a type by its name takes as long as the rest of a call.
    _MEMBERS = ffi.typeof(f"moo_member [{lib.MOO_GROUP_MAX}]")
    _SLOT, _OUTCOME = ffi.typeof("moo_work **"), ffi.typeof("moo_outcome *")


_HOST_BYTES = 63  # of a name, for C


def part_of(
    kind: str,
    dtype: int = 0,
    op: int = 0,
    root: int = 0,
    layout: int = 0,
    spans: Sequence[int] = (),
    output_bytes: int = 0,
) -> list[int]:
    """The part of a call for tensors of one type; see `moo_group_submit_numbers`.

    Args:
      layout: a hash of the whole call, the same in all its parts: before anything is
        done, all members' must be equal.
      spans: the addresses of all inputs, then those of all outputs, then the bytes of
        each.
    """
    count = len(spans) // 3
    return [KINDS[kind], dtype, op, root, layout, output_bytes, count, *spans]


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
        self._slot = ffi.new(_SLOT)
        self._finalizer = ffi.gc(self._slot, lib.moo_work_clear)
        self._memory = memory
        self._outcome = ffi.new(_OUTCOME)

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
        if not err:
            return outcome_of(out) if out.status else _WELL
        if err == ETIMEOUT:
            return None
        raise error_of(err)

    def members(self) -> list[tuple[int, int, str]]:
        """The pid, process id and host of each member that took part, in rank order;
        none if it is not done, or has failed."""
        found, size = ffi.new(_MEMBERS), ffi.new("uint32_t *")
        lib.moo_work_members(filled(self._slot), found, size)
        return _rows(found, size)

    def done(self) -> bool:
        """Whether it has ended, well or not. False before it is queued, and in a forked
        child."""
        work = self._slot[0]
        return bool(work and lib.moo_work_done(work))


def filled(slot: Any) -> Any:
    """The pointer that C has put into a slot.

    Raises:
      RuntimeError: nothing; or the slot's finalizer, which may come before others of
        the same garbage, has emptied it.
    """
    pointer = slot[0]
    if not pointer:
        raise error_of(ECLOSED)
    return pointer


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
        ENOMEM: f"the group is full: it can have {lib.MOO_GROUP_MAX:,} members, on "
        f"{lib.MOO_GROUP_HOSTS_MAX} hosts, and {lib.MOO_GROUP_TEAM_MAX} on each",
        EFORK: "a forked child is no member of its parent's learner group",
        ECLOSED: "this process has left the learner group",
    }.get(err, ffi.string(lib.moo_strerror(err)).decode())
    return ValueError(text) if err == EINVAL else RuntimeError(text)


W = TypeVar("W", bound=SharedWork)


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


class GroupAgent:
    """The agent's side of a group's place: a shared segment, and the members in it.

    Not thread-safe, and for the process that made it only. After each `look` and `take`
    the `frames` go to the group's master.
    """

    def __init__(self, fd: int, number: int, host: str) -> None:
        """Begin place `number` of a group in the segment `fd`, all zero, which stays
        the caller's. Members are told that they are on `host`.

        Raises:
          ValueError: it is too small.
          RuntimeError: there is no data plane here.
          OSError: the segment could not be mapped, or no descriptor is left.
        """
        if missing is not None:
            raise RuntimeError("learner groups need Linux") from missing
        slot = ffi.new("moo_group_agent **")
        name = host.encode(errors="replace")[:_HOST_BYTES]
        err = lib.moo_group_agent_open(fd, number, name, slot)
        if err:
            raise error_of(err)
        self._agent = slot[0]
        self._frame = ffi.new("char []", lib.MOO_GROUP_FRAME_BYTES)
        #: A descriptor that members need beside the segment.
        self.bell: int = lib.moo_group_agent_bell(self._agent)

    def fileno(self) -> int:
        """A descriptor that is readable when it is time to `look`."""
        return int(lib.moo_group_agent_fd(self._agent))

    def look(self) -> None:
        """See what members want, and which of them are dead, and act on it."""
        lib.moo_group_agent_look(self._agent)

    def take(self, frame: bytes) -> None:
        """A frame of the master's.

        Raises:
          ValueError: it is none.
        """
        if lib.moo_group_agent_take(self._agent, ffi.from_buffer(frame), len(frame)):
            raise ValueError("it is no frame of a learner group's master")

    def frames(self) -> Iterator[bytes]:
        """Take out what there is for the master, each frame when it is asked for."""
        while length := lib.moo_group_agent_next(self._agent, self._frame):
            yield bytes(ffi.buffer(self._frame, length))

    def close(self) -> None:
        """Members that are still there are left to themselves. Call it once."""
        lib.moo_group_agent_close(self._agent)


class GroupMaster:
    """Decides who belongs to a group, and how its operations end.

    Not thread-safe. After each `take` and `lost` the `frames` go to the places.
    """

    def __init__(self) -> None:
        if missing is not None:
            raise RuntimeError("learner groups need Linux") from missing
        slot = ffi.new("moo_group_master **")
        err = lib.moo_group_master_open(slot)
        if err:
            raise error_of(err)
        self._master = ffi.gc(slot[0], lib.moo_group_master_close)
        self._frame = ffi.new("char []", lib.MOO_GROUP_FRAME_BYTES)
        self._number = ffi.new("uint32_t *")

    def take(self, number: int, frame: bytes) -> None:
        """A frame of the agent of that place.

        Raises:
          ValueError: it is none.
        """
        data = ffi.from_buffer(frame)
        if lib.moo_group_master_take(self._master, number, data, len(frame)):
            raise ValueError("it is no frame of a learner group's agent")

    def lost(self, number: int) -> None:
        """Nothing comes from that place any more: its members are dead."""
        lib.moo_group_master_lost(self._master, number)

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Take out what there is for the places, each frame when it is asked for."""
        slot = (self._master, self._number, self._frame)
        while length := lib.moo_group_master_next(*slot):
            yield self._number[0], bytes(ffi.buffer(self._frame, length))


class SharedGroup:
    """This process's membership in a group, by one of its shared segments.

    Invariant: work that C has is in `works` until it is done and settled, whether or
    not anybody keeps it. Both queues are in the same order, because `lock` is held
    while an operation enters both, and no signal handler can come between.

    The collector leaves the group before it takes apart any memory that C works on: it
    calls all finalizers first.

    Threads: any may leave at any time. Every other method then raises; C sees to that.
    Forks: so they do in a forked child, but `submit` and `settle` might wait for the
    lock there.
    """

    __slots__ = ("lock", "works", "_finalizer", "_slot")

    def __init__(
        self,
        fd: int,
        bell: int,
        process_id: int,
        min_size: int,
        timeout_s: float,
        *,
        network: Network | None = None,
        finishes: bool = False,
        backend: int = 0,
    ) -> None:
        """Join, without waiting for others, nor for the agent.

        Args:
          fd, bell: the group's segment, and its agent's `GroupAgent.bell`. Both stay
            the caller's.
          network: transports that may be used, by default shared memory alone; where to
            listen for members of other places, if others are among them; and the
            connections from each place to the next, the most that a member wants.
          finishes: an operation that loses a member is made by the others.
          backend: a number that all members have in common.

        Raises:
          ValueError: `bind` is no address, or there are too many stripes.
          RuntimeError: the group is full, or there is no data plane here.
          VersionMismatch: another version of mooactor made the group.
          OSError: the segment could not be mapped, or nobody can listen there.
        """
        if missing is not None:
            raise RuntimeError("learner groups need Linux") from missing
        network = network or Network()
        options, _kept = group_options(network, finishes, backend)
        #: Held while an operation is queued. A signal handler may queue one, too.
        self.lock = threading.RLock()
        #: In the order queued. Loop over a copy: a signal handler may change it.
        self.works: list[SharedWork] = []
        slot = self._slot = ffi.new("moo_group **")
        self._finalizer = ffi.gc(slot, lib.moo_group_clear)
        try:
            err = lib.moo_group_join(
                *(fd, bell, process_id, min_size, timeout_s, options, slot)
            )
        except BaseException:  # whoever keeps the traceback keeps this
            lib.moo_group_clear(slot)
            raise
        if err == lib.MOO_ESYS and (said := cannot_listen(ffi.errno, network)):
            raise said
        if err:
            raise error_of(err)

    @property
    def _group(self) -> Any:
        return filled(self._slot)

    def ready(self, seconds: float) -> bool:
        """Whether the group has its members and this one is among them.

        Raises:
          ValueError: the group has another `min_size`, `on_loss` or `backend`.
          RuntimeError: the group is full.
        """
        err = lib.moo_group_ready(self._group, seconds)
        if err in (EINVAL, EMISMATCH):
            least = self.describe().min_size
            other = f"min_size than {least}" if err == EINVAL else "on_loss or backend"
            raise ValueError(f"has another {other}: pass the same to all members")
        if err and err != ETIMEOUT:
            raise error_of(err)
        return not err

    def submit(self, work: W, parts: Sequence[list[int]]) -> W:
        """Queue a call, which ends as one: with the first of its parts (see `part_of`)
        that fails. Returns its work.

        If this is interrupted, the call is queued as if it were not, or not at all.
        """
        listed = parts[0] if len(parts) == 1 else [n for part in parts for n in part]
        numbers = array("Q", listed).tobytes()
        said: dict[str, int] = {}
        call = (filled(self._slot), numbers, len(numbers), len(parts), work.slot)
        errors = itertools.starmap(lib.moo_group_submit_numbers, (call,))
        taken = map(operator.not_, map(said.setdefault, ("err",), errors))
        with self.lock:
            if self.works:
                self.settle()
            # One step for signal handlers: C takes it, and it is kept.
            self.works.extend(itertools.compress((work,), taken))
        if said["err"]:
            raise error_of(said["err"])
        return work

    def settle(self, ended: SharedWork | None = None) -> None:
        """Settle and let go of all works that have ended, as `ended` has. Never
        blocks."""
        if not self.works:
            return
        with self.lock:
            for work in self.works[:]:
                if work is not ended and not work.done():
                    break
                work.settle()
                try:  # by name: the first one now may be another than a moment ago
                    self.works.remove(work)
                except ValueError:
                    pass  # a signal handler has settled it meanwhile

    def start(self) -> None:
        """Start a thread of the group's own, which runs the queue from now on."""
        err = lib.moo_group_start(self._group)
        if err:
            raise error_of(err)

    def describe(self) -> Info:
        """The present state and counters of this member."""
        info = ffi.new("moo_group_info *")
        err = lib.moo_group_describe(self._group, info)
        if err:
            raise error_of(err)
        return Info(*(getattr(info, name) for name in Info._fields))

    def obstacle(self) -> Outcome | None:
        """The error of the members' last barrier, the reason why a newcomer waits."""
        out = ffi.new("moo_outcome *")
        err = lib.moo_group_obstacle(self._group, out)
        if err:
            raise error_of(err)
        return outcome_of(out) if out.status else None

    def members(self) -> list[tuple[int, int, str]]:
        """Each member's pid, process id and host, in rank order."""
        found, size = ffi.new(_MEMBERS), ffi.new("uint32_t *")
        err = lib.moo_group_members(self._group, found, size)
        if err:
            raise error_of(err)
        return _rows(found, size)

    def leave(self) -> None:
        """Leave at once. Queued work fails. May be called twice."""
        if self._slot[0] != ffi.NULL:  # else a finalizer has come first
            lib.moo_group_close(self._slot[0])
        self.settle()


def _rows(members: Any, size: Any) -> list[tuple[int, int, str]]:
    """Each one's pid, process id and host, of an array of `moo_member`."""
    return [
        (one.pid, one.id, ffi.string(one.host).decode(errors="ignore"))
        for one in members[0 : size[0]]
    ]


def can_reduce(dtype: str, op: str) -> bool:
    """Whether there is arithmetic for elements of this type."""
    return dtype in DTYPES and (op != "mean" or "float" in dtype)


def segment_bytes() -> int:
    """The size of the shared segment that a group needs."""
    if missing is not None:
        raise RuntimeError("learner groups need Linux") from missing
    return int(lib.moo_group_segment_bytes())
