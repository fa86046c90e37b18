# SPDX-License-Identifier: MIT
"""One member of a learner group, for C.

The contracts are in cext/include/mooactor.h; `mooactor.learner` makes tensors and
exceptions of it. All calls release the GIL.
"""

from __future__ import annotations

import itertools
import operator
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from mooactor.tensors.extension import ffi, lib, missing
from mooactor.tensors.network import Network, group_options
from mooactor.tensors.operations import (
    DTYPES,
    Outcome,
    Part,
    SharedWork,
    error_of,
    filled,
    outcome_of,
)

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
    """The agent's side of a group that lives in a shared segment.

    Not thread-safe, and for the process that made it only.
    """

    def __init__(self, fd: int) -> None:
        """Begin a group in the segment `fd`, all zero, which stays the caller's.

        Raises:
          ValueError: it is too small.
          RuntimeError: there is no data plane here.
          OSError: the segment could not be mapped, or no descriptor is left.
        """
        if missing is not None:
            raise RuntimeError("learner groups need Linux") from missing
        slot = ffi.new("moo_group_agent **")
        err = lib.moo_group_agent_open(fd, slot)
        if err:
            raise error_of(err)
        self._agent = slot[0]
        #: A descriptor that members need beside the segment.
        self.bell: int = lib.moo_group_agent_bell(self._agent)

    def fileno(self) -> int:
        """A descriptor that is readable when it is time to `look`."""
        return int(lib.moo_group_agent_fd(self._agent))

    def look(self) -> None:
        """See what members want, and which of them are dead, and act on it."""
        lib.moo_group_agent_look(self._agent)

    def close(self) -> None:
        """Members that are still there are left to themselves. Call it once."""
        lib.moo_group_agent_close(self._agent)


class SharedGroup:
    """This process's membership in the group that lives in a shared segment.

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
        host: str = "",
    ) -> None:
        """Join, without waiting for others, nor for the agent.

        Args:
          fd, bell: the group's segment, and its agent's `GroupAgent.bell`. Both stay
            the caller's.
          network: transports that may be used, by default all; the address to listen on
            when members are on several hosts, by default all addresses, but only this
            machine's own if all members are on one host that may not use shared memory;
            the connections from each host to the next, the most that a member wants.
          host: members whose `host` is the same share memory.

        Raises:
          ValueError: `bind` is no address, or there are too many stripes.
          RuntimeError: the group is full, or there is no data plane here.
          VersionMismatch: another version of mooactor made the group.
          OSError: the segment could not be mapped.
        """
        if missing is not None:
            raise RuntimeError("learner groups need Linux") from missing
        options, _kept = group_options(network or Network(), host)
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
        if err:
            raise error_of(err)

    @property
    def _group(self) -> Any:
        return filled(self._slot)

    def ready(self, seconds: float) -> bool:
        """Whether the group has its members and this one is among them.

        Raises:
          ValueError: the group has another `min_size`.
          RuntimeError: the group is full.
        """
        err = lib.moo_group_ready(self._group, seconds)
        if err and err != lib.MOO_ETIMEOUT:
            raise error_of(err)
        return not err

    def submit(self, work: W, parts: Sequence[Part]) -> W:
        """Queue a call, which ends as one: with the first of its parts that fails.
        Returns its work.

        If this is interrupted, the call is queued as if it were not, or not at all.
        """
        requests = ffi.new("moo_request []", len(parts))
        kept = [part.fill(request) for part, request in zip(parts, requests)]
        said: dict[str, int] = {}
        call = (self._group, requests, len(parts), work.slot)
        errors = itertools.starmap(lib.moo_group_submit, (call,))
        taken = map(operator.not_, map(said.setdefault, ("err",), errors))
        with self.lock:
            self.settle()
            # One step for signal handlers: C takes it, and it is kept.
            self.works.extend(itertools.compress((work,), taken))
        del kept  # C has its own copy now
        if said["err"]:
            raise error_of(said["err"])
        return work

    def settle(self) -> None:
        """Settle and let go of all works that have ended. Never blocks."""
        with self.lock:
            for work in self.works[:]:
                if not work.done():
                    break
                work.settle()
                self._forget(work)

    def _forget(self, work: SharedWork) -> None:
        # By name: the first one now may be another than a moment ago.
        try:
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

    def members(self) -> list[tuple[int, int]]:
        """Each member's pid and process id, in rank order."""
        pids = ffi.new("int32_t []", lib.MOO_GROUP_MAX)
        ids = ffi.new("uint64_t []", lib.MOO_GROUP_MAX)
        size = ffi.new("uint32_t *")
        err = lib.moo_group_members(self._group, pids, ids, size)
        if err:
            raise error_of(err)
        return [(pids[rank], ids[rank]) for rank in range(size[0])]

    def leave(self) -> None:
        """Leave at once. Queued work fails. May be called twice."""
        if self._slot[0] != ffi.NULL:  # else a finalizer has come first
            lib.moo_group_close(self._slot[0])
        self.settle()


def can_reduce(dtype: str, op: str) -> bool:
    """Whether there is arithmetic for elements of this type."""
    return dtype in DTYPES and (op != "mean" or "float" in dtype)


def segment_bytes() -> int:
    """The size of the shared segment that a group needs."""
    if missing is not None:
        raise RuntimeError("learner groups need Linux") from missing
    return int(lib.moo_group_segment_bytes())
