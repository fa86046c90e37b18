# SPDX-License-Identifier: MIT
"""Membership in a learner group, and what its members do together."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Literal, NamedTuple, TypeVar

from mooactor.errors import CallTimeout, InternalError
from mooactor.learner.buffers import (
    Buffer,
    buffer_of,
    empty_like,
    layout_of,
    listed,
)
from mooactor.learner.work import Work
from mooactor.process.current import current_runtime
from mooactor.tensors import collective
from mooactor.tensors.collective import Info, SharedGroup, SharedWork
from mooactor.tensors.transports import name_of

T = TypeVar("T")
Reduction = Literal["sum", "mean", "min", "max", "product"]

# How long C may keep the thread before Python looks for signals.
_SLICE_S = 0.1


class Member(NamedTuple):
    """One member of a group, as of the present epoch."""

    rank: int
    pid: int
    process_id: int


class LearnerGroup:
    """This process's membership in a named group of learners.

    All members make the same calls in the same order. Results are the same on every
    rank, bit for bit. An operation ends alike for all of them: all get its result,
    or all raise the same error.

    Membership changes in epochs. Who asks to join is let in at a `barrier` of the
    members, or at once while they are fewer than `min_size`. When a member dies, the
    operation under way raises `PeerLost` on all others, who keep their order and go
    on in the next epoch. When one leaves, allreduce and barrier simply go on
    without it, and what names a rank raises `PeerLost`. With fewer than `min_size`
    members left, operations wait for newcomers.

    Threads: operations may be queued and waited for from any thread. Forks: a child
    is no member.

    ::

        group = moo.LearnerGroup("learners", min_size=2)
        epoch = None
        while training:
            if group.epoch != epoch:  # at first, and after a loss or a newcomer
                group.broadcast(parameters, root=0).wait()
                epoch = group.epoch
            ...
            try:
                group.allreduce(gradients, op="mean").wait()
            except moo.PeerLost:
                continue
            optimizer.step()
            group.barrier()  # newcomers enter here
    """

    def __init__(self, name: str, min_size: int = 2, *, timeout: float = 60.0) -> None:
        """Join, and wait until the group has `min_size` members.

        Args:
          name: whoever joins by the same name in a session is in the same group.
          min_size: 1 to 64; the same for all members.
          timeout: seconds for this, and for each operation: one that a member does
            not come to in time fails for all.

        Raises:
          CallTimeout: not let in, or too few members, within `timeout`.
          ValueError: the group exists with another `min_size`.
          ActorUnavailable: no session runs in this process.
        """
        self.name, self.timeout = name, timeout
        self._shared: SharedGroup | None = None
        self._pid = os.getpid()
        runtime = current_runtime()
        fd = runtime.shared_segment(f"learners:{name}", collective.segment_bytes())
        try:
            self._shared = _join(fd, name, runtime.process_id, min_size, timeout)
        finally:
            os.close(fd)
        try:
            self._wait_until_in(self._shared, time.monotonic() + timeout)
        except BaseException:
            self.leave()
            raise

    def _wait_until_in(self, shared: SharedGroup, until: float) -> None:
        while not shared.ready(_SLICE_S):
            if time.monotonic() < until:
                continue
            info = shared.describe()
            raise CallTimeout(
                f"learner group {self.name!r} did not form within {self.timeout} s: "
                f"{info.size} of {info.min_size} members"
                if info.size
                else f"the members of learner group {self.name!r} did not let this "
                f"process in within {self.timeout} s: they do so at a barrier"
            )

    # -- who is there ------------------------------------------------------

    @property
    def rank(self) -> int:
        """This member's place, from 0. Changes when one of a lower rank goes."""
        return self._info().rank

    @property
    def size(self) -> int:
        """The number of members."""
        return self._info().size

    @property
    def epoch(self) -> int:
        """Grows by each change of membership, and by each operation that failed."""
        return self._info().epoch

    def members(self) -> list[Member]:
        """The members of the present epoch, in rank order."""
        found = enumerate(self._member().members())
        return [Member(rank, pid, process_id) for rank, (pid, process_id) in found]

    @property
    def transport(self) -> str | None:
        """What this host's large tensors go by: ``"shm"`` if all members share
        memory, else ``"ofi"`` or ``"tcp"``. None until the first operation of an epoch
        has made the connections."""
        return name_of(self._info().transport)

    def statistics(self) -> dict[str, Any]:
        """Counts since joining: operations, bytes, failures, and seconds asleep; how
        many hosts the members are on, and the `transport`."""
        info = self._info()
        return {**info._asdict(), "transport": name_of(info.transport)}

    # -- what they do together ---------------------------------------------

    def allreduce(
        self, tensors: T, op: Reduction = "mean", *, out: Any = None
    ) -> Work[T]:
        """Reduce each tensor over all members, in rank order.

        Args:
          tensors: an array or tensor, or a list or dict of them, reduced as one;
            numpy or torch, f32, f64, f16, bf16, i32, i64 or u8. Unless `out` is
            given the results replace them. What a failed operation leaves in the
            place of results is undefined.
          op: ``"sum"``, ``"mean"`` (floating point only), ``"min"``, ``"max"`` or
            ``"product"``. Half precision is computed in f32 and rounded once.
          out: tensors of the same shapes and types for the results; the inputs
            then stay as they are.

        Raises:
          TypeError: there is no such reduction of these types.
        """
        outputs = tensors if out is None else out
        pairs = self._pairs(listed(tensors), listed(outputs), out is not None)
        for source, _ in pairs:
            if not collective.can_reduce(source.dtype, op):
                raise TypeError(f"there is no {op!r} of {source.dtype}")
        works = [self._submit("allreduce", part, op=op) for part in _by_dtype(pairs)]
        return self._work(f"allreduce({op})", works, outputs, pairs)

    def broadcast(self, tensors: T, root: int = 0) -> Work[T]:
        """Replace the tensors of all members by those of rank `root`.

        Any type without Python objects will do.
        """
        buffers = [buffer_of(tensor, written=True) for tensor in listed(tensors)]
        pairs = [(buffer, buffer) for buffer in buffers]
        work = self._submit("broadcast", pairs, root=root)
        return self._work(f"broadcast from rank {root}", [work], tensors, pairs)

    def all_gather(self, tensor: Any) -> Work[Any]:
        """All members' tensors, stacked in rank order: ``[size, *shape]``."""
        source = buffer_of(tensor, written=False)
        result = empty_like(tensor, (self.size, *source.shape))
        target = buffer_of(result, written=True)
        works = [self._submit("all_gather", [(source, target)])]
        return self._work("all_gather", works, result, [(source, target)])

    def reduce_scatter(self, tensor: Any, op: Reduction = "mean") -> Work[Any]:
        """Reduce ``[size, *shape]`` over all members; each gets its row.

        Raises:
          ValueError: the first dimension is not the size of the group.
        """
        source = buffer_of(tensor, written=False)
        if not collective.can_reduce(source.dtype, op):
            raise TypeError(f"there is no {op!r} of {source.dtype}")
        if not source.shape or source.shape[0] != self.size:
            raise ValueError(
                f"the first dimension must be the group's size, {self.size}; "
                f"the shape is {source.shape}"
            )
        result = empty_like(tensor, source.shape[1:])
        target = buffer_of(result, written=True)
        works = [self._submit("reduce_scatter", [(source, target)], op=op)]
        return self._work(f"reduce_scatter({op})", works, result, [(source, target)])

    def barrier(self) -> None:
        """Wait until all members have come here, and let newcomers in.

        Raises:
          PeerLost, CallTimeout: see `Work.wait`.
        """
        work = self._member().submit("barrier")
        self._work("barrier", [work], None, []).wait()

    # -- the end -----------------------------------------------------------

    def leave(self) -> None:
        """Leave the group; the others go on. May be called twice.

        Operations of this member that are queued fail.
        """
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.leave()

    close = leave

    def __enter__(self) -> LearnerGroup:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()

    def __repr__(self) -> str:
        if self._shared is None:
            return f"<LearnerGroup {self.name!r}, left>"
        info = self._info()
        return (
            f"<LearnerGroup {self.name!r}, rank {info.rank} of {info.size}, "
            f"epoch {info.epoch}, {_way(info)}>"
        )

    def __reduce__(self) -> Any:
        raise TypeError(
            "a LearnerGroup is one process's membership; join by name elsewhere"
        )

    # -- inside ------------------------------------------------------------

    def _member(self) -> SharedGroup:
        if self._shared is None:
            raise RuntimeError(f"this process has left learner group {self.name!r}")
        return self._shared

    def _info(self) -> Info:
        return self._member().describe()

    def _pairs(
        self, tensors: list[Any], outputs: list[Any], separate: bool
    ) -> list[tuple[Buffer, Buffer]]:
        sources = [buffer_of(tensor, written=not separate) for tensor in tensors]
        if not separate:
            return [(source, source) for source in sources]
        targets = [buffer_of(tensor, written=True) for tensor in outputs]
        if layout_of(sources) != layout_of(targets):
            raise ValueError("out= must have the shapes and types of the tensors")
        return list(zip(sources, targets))

    def _submit(
        self,
        kind: str,
        pairs: list[tuple[Buffer, Buffer]],
        *,
        op: str = "sum",
        root: int = 0,
    ) -> SharedWork:
        sources = [source for source, _ in pairs]
        return self._member().submit(
            kind,
            dtype=collective.DTYPES.get(sources[0].dtype, 0) if sources else 0,
            op=collective.OPS[op],
            root=root,
            layout=layout_of(sources),
            inputs=[source.address for source in sources],
            outputs=[target.address for _, target in pairs],
            sizes=[source.bytes for source in sources],
            output_bytes=pairs[0][1].bytes if pairs else 0,
            memory=pairs,
        )

    def _work(
        self,
        label: str,
        works: list[SharedWork],
        result: T,
        pairs: Iterable[tuple[Buffer, Buffer]],
    ) -> Work[T]:
        finish: list[Callable[[], object]] = [
            target.finish for _, target in pairs if target.finish is not None
        ]
        return Work(self.name, label, works, result, finish, self._member().start)


def _way(info: Info) -> str:
    """How the members reach each other, for a reader."""
    transport = name_of(info.transport) or "not connected yet"
    return transport if info.hosts < 2 else f"{info.hosts} hosts, {transport}"


def _join(
    fd: int, name: str, process_id: int, min_size: int, timeout: float
) -> SharedGroup:
    if not 1 <= min_size <= 64 or not timeout > 0:
        raise ValueError(
            f"min_size is 1 to 64 and timeout positive, not {min_size} and {timeout}"
        )
    network = current_runtime().network
    host = os.environ.get("MOOACTOR_HOST_ID", "")
    try:
        return SharedGroup(
            fd,
            process_id,
            min_size,
            timeout,
            host=host,
            transports=collective.transport_mask(str(network)),
            bind=network.bind,
            checksum=network.checksum,
            stripes=network.stripes,
        )
    except ValueError:
        raise ValueError(
            f"learner group {name!r} exists with another min_size than {min_size}"
        ) from None
    except OSError as error:
        raise InternalError(f"cannot map learner group {name!r}: {error}") from error


def _by_dtype(
    pairs: list[tuple[Buffer, Buffer]],
) -> list[list[tuple[Buffer, Buffer]]]:
    """One operation per type, in the order in which the types first appear."""
    parts: dict[str, list[tuple[Buffer, Buffer]]] = {}
    for pair in pairs:
        parts.setdefault(pair[0].dtype, []).append(pair)
    return list(parts.values()) or [[]]
