# SPDX-License-Identifier: MIT
"""Membership in a learner group, and its members' operations."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from mooactor.control import codec
from mooactor.control.messages import readable
from mooactor.errors import CallTimeout, MooError
from mooactor.learner.arguments import keys_of, refuse_other_keys, reusable
from mooactor.learner.buffers import (
    Buffer,
    buffer_of,
    buffers_of,
    empty_like,
    layout_of,
    nothing_staged,
    refuse_shared,
)
from mooactor.learner.calls import Pair, parts_of
from mooactor.learner.children import is_child, refuse_in_child
from mooactor.learner.queued import Entry, Queued
from mooactor.learner.work import Member, Work, failure
from mooactor.process import checks
from mooactor.process.current import current_runtime
from mooactor.process.loops import refuse_to_block
from mooactor.tensors import collective
from mooactor.tensors.collective import OPS, Info, SharedGroup
from mooactor.tensors.network import Network, name_of

if TYPE_CHECKING:
    from mooactor.learner.nccl import Executor

T = TypeVar("T")
M = TypeVar("M")  # a torch.nn.Module
Reduction = Literal["sum", "mean", "min", "max", "product"]

# The time for which C keeps the thread before Python looks for signals.
_SLICE_S = 0.1
_BACKENDS = "cpu", "nccl", "auto"


class LearnerGroup:
    """This process's membership in a named group of learners.

    All members make the same calls in the same order. Results are the same on every
    rank, bit for bit. An operation ends alike for all of them: all get its result,
    or all raise the same error. Members may be on any hosts of the session. Those of
    one host share memory; between hosts tensors go round a ring.

    Membership changes in epochs. A newcomer is admitted at a `barrier` of the members,
    or at once while they are fewer than `min_size`. When a member dies, an operation
    raises `PeerLost` on all others, which keep their order and go on in the next epoch;
    with ``on_loss="finish"`` it is made without that member.
    When one leaves, allreduce and barrier simply go on without it, and operations that
    name a rank raise `PeerLost`. With fewer than `min_size` members left, operations
    wait for newcomers. All members see a new epoch after the same call, so decisions by
    it agree.

    Threads: operations may be queued and waited for from any thread. Forks: a child is
    no member; there this, and its works, raise `ActorUnavailable`.

    ::

        group = moo.LearnerGroup("learners", min_size=2)
        epoch = None
        while training:
            try:  # any of these may find that a member is gone
                if group.epoch != epoch:  # at first, and after a change of members
                    group.broadcast(parameters, root=0).wait()
                    epoch = group.epoch
                gradients = compute_gradients(parameters)
                group.allreduce(gradients, op="mean").wait()
                optimizer.step(gradients)
                group.barrier()  # newcomers enter here
            except moo.PeerLost:
                continue  # the epoch is another now
        group.leave()
    """

    def __init__(
        self,
        name: str,
        min_size: int = 2,
        *,
        on_loss: Literal["raise", "finish"] = "raise",
        backend: Literal["cpu", "nccl", "auto"] = "cpu",
        timeout: float = 60.0,
    ) -> None:
        """Join, and wait until the group has `min_size` members.

        Args:
          name: all that join by the same name in a session are in one group.
          min_size: 1 to 1,024; the same for all members.
          on_loss: what becomes of an `allreduce` or a `barrier` that loses a member:
            ``"raise"``, all others get `PeerLost`; or ``"finish"``, they make it
            with their own inputs, and `Work.participants` says who took part. With
            fewer than `min_size` members left, and in operations that name a rank,
            they get `PeerLost` in any case. To finish costs a copy of each input that
            its result would overwrite: give `out`. The same for all members.
          backend: what moves the bytes of tensors on GPUs: ``"cpu"``, they are copied
            to main memory and back; ``"nccl"``, NCCL, through torch; ``"auto"``, NCCL
            in each operation for which all members have it, and tensors on a GPU, and
            else the CPU. With ``"nccl"`` and ``"auto"`` a thread makes operations in
            the order queued, without `Work.wait`. The same for all members.
          timeout: seconds for this, and for each operation: if a member does not join
            in time, it fails for all.

        Raises:
          CallTimeout: not let in, or too few members, within `timeout`.
          MooError: the system has no memory for it, this process cannot listen for
            members on other hosts, or it cannot use the `backend`.
          ValueError: the group exists with another `min_size`, `on_loss` or `backend`,
            or an argument makes no sense.
          ActorUnavailable: no session runs in this process.
        """
        name = checks.name("name", name)
        checks.count("min_size", min_size, "a number of members", least=1, most=1024)
        checks.one_of("on_loss", on_loss, ("raise", "finish"))
        checks.one_of("backend", backend, _BACKENDS)
        checks.seconds("timeout", timeout, positive=True, optional=False)
        refuse_to_block(
            f"learner group {name!r} to form", "`await asyncio.to_thread(…)`"
        )
        if backend == "nccl":
            from mooactor.learner.nccl import refuse_without

            refuse_without()
        self.name, self.timeout = name, timeout
        self._min_size, self._backend = min_size, backend
        self._finishes = on_loss == "finish"
        self._pid = os.getpid()
        self._shared: SharedGroup | None = None
        try:
            self._knock()
            while not self._is_in(_SLICE_S):
                pass
        except BaseException:
            self.leave()
            raise

    def _knock(self) -> None:
        """Ask to be let in: at first, or after `leave`."""
        self._executor: Executor | None = None
        self._queued: Queued | Executor
        runtime = current_runtime()
        network, share = _ways(runtime.network)
        fds = runtime.group_memory(self.name, share)
        member = (runtime.process_id, self._min_size, self.timeout)
        options = {"network": network, "finishes": self._finishes}
        options["backend"] = _BACKENDS.index(self._backend)
        try:
            self._shared = _join(self.name, *fds, *member, **options)
        finally:
            for fd in fds:
                os.close(fd)
        self._queued = Queued(self._shared)
        self._until = time.monotonic() + self.timeout

    def _is_in(self, seconds: float) -> bool:
        """Whether this member was let in, for which it waits so long at most. After an
        error it has to leave."""
        shared = self._member()
        try:
            ready = shared.ready(seconds)
        except ValueError as error:
            raise ValueError(f"learner group {self.name!r} {error}") from None
        if ready and self._backend != "cpu" and self._executor is None:
            self._execute()
        if not ready and time.monotonic() >= self._until:
            raise CallTimeout(
                f"{self._why_not_in(shared)} (waited for {self.timeout} s)"
            )
        return ready

    def _execute(self) -> None:
        """From now on an executor makes this member's operations."""
        from mooactor.learner.nccl import Executor

        member = object.__new__(LearnerGroup)
        member.__dict__.update(self.__dict__)
        self._executor = self._queued = Executor(member, self._backend, self._finishes)
        weakref.finalize(self, self._executor.close)

    def _why_not_in(self, shared: SharedGroup) -> str:
        info = shared.describe()
        if info.size:
            return (
                f"learner group {self.name!r} did not form: {info.size} of "
                f"{info.min_size} members have joined; start the others, or lower "
                "min_size"
            )
        obstacle = shared.obstacle()
        why = (
            "newcomers enter at a barrier, so call group.barrier() in the loop of "
            "each member, and see there whether it fails"
        )
        if obstacle is not None:
            last = failure(f"barrier of learner group {self.name!r}", obstacle)
            why = f"newcomers enter at a barrier, and the last barrier failed: {last}"
        return (
            f"the members of learner group {self.name!r} did not let this process in: "
            f"{why}"
        )

    # -- who is there ------------------------------------------------------

    @property
    def rank(self) -> int:
        """This member's place, from 0. It changes when one of a lower rank goes."""
        return self._info().rank

    @property
    def size(self) -> int:
        """The number of members."""
        return self._info().size

    @property
    def epoch(self) -> int:
        """Grows by each change of membership, and by each operation that failed. It
        stays the same if NCCL fails and no member is lost: no tensor has changed
        then, and the members can go on as they are."""
        return self._info().epoch

    def members(self) -> list[Member]:
        """The members of the present epoch, in rank order."""
        found = enumerate(self._member().members())
        return [Member(rank, *member) for rank, member in found]

    @property
    def transport(self) -> str | None:
        """The transport of this host's large tensors: ``"shm"`` if all members share
        memory, else ``"ofi"`` or ``"tcp"``. None until the first operation of an epoch
        has made the connections. ``"nccl"`` if the last operation on tensors of a GPU
        went by NCCL."""
        by = self._executor and self._executor.transport
        return by or name_of(self._info().transport)

    def statistics(self) -> dict[str, Any]:
        """Counts since joining: operations, bytes, failures, and seconds asleep; the
        number of the members' hosts, and the `transport`."""
        info = self._info()
        return {**info._asdict(), "transport": self.transport}

    # -- what they do together ---------------------------------------------

    def allreduce(
        self, tensors: T, op: Reduction = "mean", *, out: Any = None
    ) -> Work[T]:
        """Reduce each tensor over all members, in rank order.

        Args:
          tensors: an array or tensor, or a list or dict of them, reduced as one;
            numpy or torch, f32, f64, f16, bf16, i32, i64 or u8. All members' dicts must
            have the same keys: strings, integers or tuples of them. Unless `out` is
            given the results replace them, in the memory that they have now: wait
            before ``model.half()`` or ``tensor.data = …`` gives them another. After a
            failed operation the results are undefined.
          op: ``"sum"``, ``"mean"`` (floating point only), ``"min"``, ``"max"`` or
            ``"product"``. Half precision is computed in f32 and rounded once.
          out: tensors of the same shapes and types, and with the same keys, for the
            results; the inputs then stay as they are.

        Raises:
          TypeError: there is no such reduction of these types, or of tensors of this
            kind, of which docs/allreduce.md has a table; or keys are of another kind.
          ValueError: two of the tensors share memory, or elements of one do; a tensor
            shares memory, in part, with a result that is still queued and has to be
            copied; or `out` does not fit.
        """
        checks.one_of("op", op, OPS)
        tensors, out = reusable(tensors), reusable(out)
        with self._turn():
            pairs = self._pairs(tensors, out)
            for source, _ in pairs:
                if not collective.can_reduce(source.dtype, op):
                    raise TypeError(
                        f"{op!r} is not defined for {source.dtype}: convert the "
                        "tensor to another type first"
                    )
            result = tensors if out is None else out
            label, keys = f"allreduce({op})", keys_of(tensors)
            given = tensors, out
            return self._queue(
                "allreduce", label, pairs, given, result, op=op, keys=keys
            )

    def broadcast(self, tensors: T, root: int = 0) -> Work[T]:
        """Replace the tensors of all members by those of rank `root`.

        Any type without Python objects will do.

        Raises:
          TypeError, ValueError: as `allreduce` does.
        """
        checks.count("root", root, "the rank of a member")
        tensors = reusable(tensors)
        with self._turn():
            pairs = self._pairs(tensors, None)
            label, keys = f"broadcast from rank {root}", keys_of(tensors)
            given = tensors, None
            return self._queue(
                "broadcast", label, pairs, given, tensors, root=root, keys=keys
            )

    def all_gather(self, tensor: Any) -> Work[Any]:
        """All members' tensors, stacked in rank order: ``[size, *shape]``."""
        with self._turn():
            source = self._source(tensor)
            result = empty_like(tensor, (self.size, *source.shape))
            pair = source, self._new(result)
            given = tensor, None
            return self._queue("all_gather", "all_gather", [pair], given, result)

    def reduce_scatter(self, tensor: Any, op: Reduction = "mean") -> Work[Any]:
        """Reduce ``[size, *shape]`` over all members; each gets its row.

        Raises:
          ValueError: the first dimension is not the size of the group.
        """
        checks.one_of("op", op, OPS)
        with self._turn():
            source = self._source(tensor)
            if not collective.can_reduce(source.dtype, op):
                raise TypeError(
                    f"{op!r} is not defined for {source.dtype}: convert the tensor "
                    "to another type first"
                )
            if not source.shape or source.shape[0] != self.size:
                raise ValueError(
                    f"the first dimension must be the group's size, {self.size}; "
                    f"the shape is {source.shape}"
                )
            result = empty_like(tensor, source.shape[1:])
            pair = source, self._new(result)
            label = f"reduce_scatter({op})"
            given = tensor, None
            return self._queue("reduce_scatter", label, [pair], given, result, op=op)

    def barrier(self) -> None:
        """Wait until all members have come here, and admit newcomers.

        Raises:
          PeerLost, CallTimeout: see `Work.wait`.
          RuntimeError: on a running event loop, which it would freeze.
        """
        refuse_to_block("a barrier", "`await asyncio.to_thread(group.barrier)`")
        with self._turn():
            work = self._queue("barrier", "barrier", [], ([], None), None)
        work.wait()

    def barrier_async(self) -> Work[None]:
        """As `barrier`, to be waited for later: by `Work.wait`, or ``await``."""
        with self._turn():
            return self._queue("barrier", "barrier", [], ([], None), None)

    def broadcast_object(self, value: Any = None, root: int = 0) -> Any:
        """The picklable object that rank `root` gives, on all members; others give
        nothing. Waits for all of them.

        Raises:
          TypeError: it cannot be pickled.
          PeerLost, CallTimeout, RuntimeError: as `barrier` does.
        """
        import numpy as np  # 0.1 s of each process that never needs it

        size = np.zeros(1, np.int64)
        data = np.zeros(0, np.uint8)
        if self.rank == root:
            data = np.frombuffer(codec.encode_in_band(value), np.uint8)
            size[0] = len(data)
        self.broadcast(size, root).wait()
        data = data.copy() if self.rank == root else np.empty(int(size[0]), np.uint8)
        self.broadcast(data, root).wait()
        return codec.decode(data.tobytes())

    def wrap(
        self,
        module: M,
        *,
        bucket_bytes: int = 25 << 20,
        broadcast_buffers: bool = True,
        wire: Literal["bf16"] | None = None,
    ) -> M:
        """The module, with gradients that are averaged over the members in each
        backward, overlapped with it; as torch's DistributedDataParallel.

        Parameters and buffers become rank 0's at the first training forward of each
        epoch. All members run forward and backward equally often. A parameter that a
        member did not use counts as a zero gradient there; one that nobody used keeps
        the gradient that it had, or none. After an error of backward the gradients are
        undefined: zero them, and go on. After `leave` forward and backward are this
        process's own.

        Args:
          module: a `torch.nn.Module` on any devices, not itself wrapped. Parameters
            that require no gradient now are left out.
          bucket_bytes: gradients are reduced in runs of about so many bytes.
          broadcast_buffers: buffers, such as the running means of batch normalization,
            are rank 0's in every training forward.
          wire: ``"bf16"`` rounds f32 gradients for their way, and adds the rounding
            errors to the next ones (error feedback). Two hosts of one member each send
            half the bytes, others up to three quarters: partial sums travel as f32.

        Returns:
          A module with `no_sync()`, a context in which backward only accumulates, and
          `.module`; everything else is the module's own.

        Raises:
          TypeError, ValueError: it is no module, is wrapped already, or no parameter
            of it requires a gradient.
          PeerLost, CallTimeout: by forward and backward, as `Work.wait` does.
        """
        from mooactor.learner.overlap import Wrapped

        options: Any = {
            "bucket_bytes": bucket_bytes,
            "broadcast_buffers": broadcast_buffers,
            "wire": wire,
        }
        # It has all that the module has.
        return cast(M, Wrapped(cast(Any, module), self, **options))

    # -- the end -----------------------------------------------------------

    def leave(self) -> None:
        """Leave the group; the others go on. May be called twice, from any thread, and
        by a forked child, which has nothing to leave.

        Operations of this member that are queued fail; the others may get the result of
        one that was under way. Modules that it has wrapped are plain ones from then on.
        """
        shared = self._shared
        if shared is not None and not is_child(self._pid):
            shared.leave()
            if self._executor is not None:
                self._executor.close()
            self._shared = None  # after: who was interrupted may call it again

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
        if is_child(self._pid):
            return f"<LearnerGroup {self.name!r}, of the parent process>"
        try:
            info = self._info()
        except RuntimeError:
            return f"<LearnerGroup {self.name!r}, left>"
        return (
            f"<LearnerGroup {self.name!r}, rank {info.rank} of {info.size}, "
            f"epoch {info.epoch}, {_way(info, self.transport)}>"
        )

    def __reduce__(self) -> Any:
        raise TypeError(
            "a LearnerGroup belongs to one process and cannot be sent: join by its "
            "name in the other process"
        )

    # -- inside ------------------------------------------------------------

    def _member(self) -> SharedGroup:
        refuse_in_child(self._pid, self.name)
        shared = self._shared
        if shared is None:
            raise RuntimeError(
                f"this process has left learner group {self.name!r}; join it again "
                "with moo.LearnerGroup"
            )
        return shared

    def _has_left(self) -> bool:
        return self._shared is None

    def _info(self) -> Info:
        return self._member().describe()

    def _turn(self) -> AbstractContextManager[Any]:
        """The lock, held from a look at the queue until an operation is queued behind
        it."""
        member = self._member()
        if member.works:
            member.settle()
        return member.lock

    def _source(self, tensor: Any) -> Buffer:
        source = buffer_of(tensor, written=False, staged=self._queued.staged)
        self._queued.refuse_overlaps([source])
        return source

    def _new(self, result: Any) -> Buffer:
        staged = self._executor.staged if self._executor else nothing_staged
        return buffer_of(result, written=True, staged=staged)

    def _pairs(self, tensors: Any, out: Any) -> list[Pair]:
        """The memory of tensors and of their results; without `out` it is the same."""
        staged = self._queued.staged
        sources = buffers_of(tensors, written=out is None, staged=staged)
        if out is None:
            refuse_shared(tensors, sources)
            self._queued.refuse_overlaps(sources)
            return [(source, source) for source in sources]
        refuse_other_keys(keys_of(tensors), keys_of(out))
        targets = buffers_of(out, written=True, staged=staged, what="result")
        if layout_of(sources) != layout_of(targets):
            raise ValueError("out= must have the shapes and types of the tensors")
        refuse_shared(tensors, targets, sources, out)
        self._queued.refuse_overlaps((*sources, *targets))
        return list(zip(sources, targets))

    def _queue(
        self,
        kind: str,
        label: str,
        pairs: list[Pair],
        given: tuple[Any, Any],
        result: T,
        *,
        op: str = "sum",
        root: int = 0,
        keys: tuple[Any, ...] = (),
    ) -> Work[T]:
        """`given`: the tensors and `out` themselves, which an executor looks at."""
        if self._executor is not None:
            options = {"op": op, "root": root, "keys": keys}
            return self._executor.queue(kind, label, pairs, given, result, options)
        assert isinstance(self._queued, Queued)
        parts = parts_of(kind, pairs, op=op, root=root, keys=keys)
        entry = Entry(pairs, label)
        self._queued.member.submit(entry, parts)
        return Work(self.name, label, entry, result, self._queued, self._pid)


def _way(info: Info, transport: str | None) -> str:
    """The members' ways to each other, in words."""
    transport = transport or "not connected yet"
    return transport if info.hosts < 2 else f"{info.hosts} hosts, {transport}"


def _ways(network: Network) -> tuple[Network, str | None]:
    """How this process reaches members that it shares no memory with, and the text that
    those have in common with which it does; None: it may share none."""
    host_id = readable(os.environ.get("MOOACTOR_HOST_ID", ""))
    if host_id and network.transports is None:  # this machine plays several hosts
        network = network.between_hosts("127.0.0.1", None)
    shares = "shm" in (network.transports or ("shm",))
    return network, host_id if shares else None


def _join(name: str, *place_and_member: Any, **options: Any) -> SharedGroup:
    try:
        return SharedGroup(*place_and_member, **options)
    except OSError as error:
        raise MooError(f"cannot join learner group {name!r}: {error}") from error


def ddp_hook(group: LearnerGroup) -> Callable[[Any, Any], Any]:
    """For programs that keep torch's DistributedDataParallel: its gradients are
    averaged by `group` when this is registered.

    ::

        model = DistributedDataParallel(module)
        model.register_comm_hook(None, moo.ddp_hook(group))

    Raises:
      TypeError: `group` is no learner group.
    """
    if not isinstance(group, LearnerGroup):
        raise TypeError(f"{checks.shown('group', group)} must be a LearnerGroup")
    from mooactor.learner.overlap import hook_of

    return hook_of(group)
