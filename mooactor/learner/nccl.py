# SPDX-License-Identifier: MIT
"""Operations whose bytes NCCL moves, and whose ends the group's own protocol decides.

A group with ``backend="nccl"`` or ``"auto"`` has an `Executor`, a thread that makes its
operations one after the other, so that their order is the same on all members. An
operation on GPU tensors has three steps:

1. *Agree.* The members compare their calls, and whether all of them have NCCL and
   tensors on a GPU, in one small operation of the group. All know the result, so all
   take the same way: NCCL, or the CPU's.
2. *Move.* NCCL reduces flat copies of the inputs. A *communicator* belongs to one epoch
   of the group, and is made by the first operation that needs it.
3. *Commit.* In another small operation the members tell each other whether NCCL has
   ended. They repeat that until it has ended on all, and only then copy the results to
   their places. A member that waits for NCCL takes part in this every 20 ms.

A death aborts one of the small operations, for all members alike. They abort the
communicator; then they raise what that operation raised, or, in a group that finishes,
begin again from their inputs, which NCCL never touches. If a small operation has
succeeded on one member, it does so on all, and with it the operation.

The communicator is torch's `ProcessGroupNCCL`, made directly, so that the program's own
``torch.distributed`` is not involved. The alternative was NCCL's C interface by ctypes.
torch's object brings the NCCL that this torch was built with, RCCL on AMD, and the
order of streams and of its allocator; and `ProcessGroupGloo` has the same interface, so
that the tests run this code without a GPU. Its store, by which the members exchange
addresses, is one in memory on each member; the members exchange its new keys in step 3,
as they exchange all else. So it has no port, and needs no key but the session's. NCCL's
own connections are not protected.

torch calls may block, while communicators connect, so each runs in a thread of its own.
Communicators are non-blocking, as others cannot be aborted. They have no watchdog of
torch's, which would end the process when a peer dies.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from mooactor.control import codec
from mooactor.errors import ActorUnavailable, CallTimeout, MooError, PeerLost
from mooactor.learner.arguments import listed
from mooactor.learner.buffers import buffer_of, layout_of
from mooactor.learner.calls import Pair
from mooactor.learner.children import is_child
from mooactor.learner.kinds import is_torch
from mooactor.learner.places import Place
from mooactor.learner.work import Work
from mooactor.tensors.collective import Outcome

if TYPE_CHECKING:
    from mooactor.learner.group import LearnerGroup

#: torch's backend. Tests name gloo, whose tensors are the CPU's.
TRANSPORT = "nccl"
_DEVICES = {"nccl": "cuda", "gloo": "cpu"}
#: The longest time for which a member that waits for NCCL hears nothing of the others.
_TICK_S = 0.02
_LOOK_S = 5e-5
_PATIENCE_S = 2.0
_WELL = Outcome(0, 0, 0, 0, False, "")


def why_not() -> str | None:
    """Why this process cannot use NCCL; None: it can."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    dist: Any = torch.distributed
    if not dist.is_available() or not dist.is_backend_available(TRANSPORT):
        return f"torch {torch.__version__} was built without {TRANSPORT.upper()}"
    if not hasattr(dist.HashStore, "list_keys"):
        return f"torch {torch.__version__} is too old"
    if _DEVICES[TRANSPORT] == "cuda" and not torch.cuda.is_available():
        return "torch finds no GPU"
    return None


def refuse_without() -> None:
    """Check that this process can use NCCL.

    Raises:
      MooError: it cannot.
    """
    if why := why_not():
        raise MooError(
            f"backend='nccl' cannot be used here, because {why}: give backend='cpu', "
            "or 'auto', or install a torch for CUDA on a machine with a GPU"
        )


# -- a call ------------------------------------------------------------------


class _Call:
    """A queued operation. It has what `Work` needs of a `SharedWork`."""

    def __init__(
        self,
        kind: str,
        label: str,
        pairs: list[Pair],
        given: tuple[Any, Any],
        result: Any,
        options: dict[str, Any],
    ) -> None:
        self.kind, self.label, self.given, self.result = kind, label, given, result
        self.options, self.names_a_rank = options, kind != "allreduce"
        self.sources = listed(given[0])
        self.targets = self.sources
        if kind in ("all_gather", "reduce_scatter"):
            self.targets = [result]
        elif given[1] is not None:
            self.targets = listed(given[1])
        buffers = [source for source, _ in pairs]
        shapes = ", ".join(f"{b.dtype}{list(b.shape)}" for b in buffers)
        self.described = f"{label} of {len(buffers)} tensors, {shapes}"[:150]
        said = f"{label} {layout_of(buffers, options['keys'])}".encode()
        digest = hashlib.blake2b(said, digest_size=7).digest()
        self.digest = int.from_bytes(digest, "little")
        self.device = self._device()
        self.event: Any = None  # after it the inputs are what the caller passed
        if self.device is not None and self.device.type == "cuda":
            torch = sys.modules["torch"]
            self.event = torch.cuda.current_stream(self.device).record_event()
        self.until = 0.0
        self.took_part: list[tuple[int, int, str]] = []
        self.error: BaseException | None = None
        self.ended = threading.Event()

    def _device(self) -> Any:
        """The GPU of its tensors, of which some may be on the CPU; None: there is none,
        there are several, or they are no tensors of torch."""
        tensors = [*self.sources, *self.targets]
        if not tensors or not all(map(is_torch, tensors)):
            return None
        wanted = _DEVICES[TRANSPORT]
        devices = {tensor.device for tensor in tensors if tensor.device.type != "cpu"}
        devices = devices or {tensor.device for tensor in tensors}
        (device, *more) = devices
        return None if more or device.type != wanted else device

    @contextmanager
    def on_its_stream(self, stream: Any) -> Iterator[None]:
        """Torch's work in here comes after the caller's of before, in `stream`."""
        if self.event is None:
            yield
            return
        cuda = sys.modules["torch"].cuda
        with cuda.device(self.device), cuda.stream(stream):
            stream.wait_event(self.event)
            yield

    # -- for Work ----------------------------------------------------------

    def wait(self, seconds: float) -> Outcome | None:
        return _WELL if self.ended.wait(seconds) else None

    def done(self) -> bool:
        return self.ended.is_set()

    def members(self) -> list[tuple[int, int, str]]:
        return self.took_part

    def conclude(self) -> None:
        if self.error is not None:
            raise self.error


# -- torch's side ------------------------------------------------------------


class Communicator:
    """Torch's process group of one epoch of the group."""

    def __init__(self, view: _View, timeout_s: float) -> None:
        dist: Any = sys.modules["torch.distributed"]
        self.epoch, self._rank, self._size = view.epoch, view.rank, len(view.members)
        self._timeout = timedelta(seconds=timeout_s)
        self.store: Any = dist.HashStore()
        self.store.set_timeout(self._timeout)
        #: Keys of the store that all members have.
        self.known: set[str] = set()
        self.is_open = False
        self._torchs: Any = None
        self._stream: Any = None
        self._is_aborted = False

    def run(self, call: _Call) -> list[tuple[Any, list[Any]]]:
        """Reduce or move copies of a call's inputs. Flat results, each with the tensors
        that it is for."""
        if call.event is not None and self._stream is None:
            self._stream = sys.modules["torch"].cuda.Stream(call.device)
        with call.on_its_stream(self._stream):
            if not self.is_open:
                self._open(call.device)
            begun = [self._begin(call, *run) for run in _runs(call)]
            for work in (work for _, work, _ in begun if work is not None):
                while TRANSPORT == "nccl" and not work.is_completed():
                    time.sleep(_LOOK_S)  # torch itself would look every 10 ms
                work.wait()  # raises what went wrong
            return [(result, targets) for result, _, targets in begun]

    def deliver(self, call: _Call, results: list[tuple[Any, list[Any]]]) -> None:
        """Copy them to their places."""
        torch = sys.modules["torch"]
        with call.on_its_stream(self._stream), torch.no_grad():
            for flat, targets in results:
                flat = flat.view(targets[0].dtype)
                pieces = torch.split(flat, [target.numel() for target in targets])
                for target, piece in zip(targets, pieces, strict=True):
                    target.copy_(piece.view(target.shape))
            if self._stream is not None:
                self._stream.synchronize()  # so any stream may use them

    def abort(self) -> None:
        """End what is under way, and free it. Returns at once: while a communicator
        connects, torch may keep the caller."""
        self._is_aborted = True
        if self._torchs is not None:
            _Task(self._torchs.abort).start()

    def _open(self, device: Any) -> None:
        from torch._C import _distributed_c10d as c10d

        if TRANSPORT == "gloo":
            options = (self.store, self._rank, self._size, self._timeout)
            self._torchs = c10d.ProcessGroupGloo(*options)
        else:
            made: Any = c10d.ProcessGroupNCCL
            options = made.Options()
            options.config.blocking = 0
            options._timeout = self._timeout
            with _without_watchdog(self._timeout):
                self._torchs = made(self.store, self._rank, self._size, options)
            self._torchs.eager_connect_single_device(device)
        if self._is_aborted:
            self._torchs.abort()
            raise RuntimeError("aborted while it connected")
        self.is_open = True

    def _begin(self, call: _Call, flat: Any, targets: list[Any]) -> tuple[Any, ...]:
        from torch._C import _distributed_c10d as c10d

        op, result, parts = str(call.options["op"]), flat, _TORCHS[call.kind]
        options: Any = getattr(c10d, parts[0])()
        options.asyncOp = True
        if call.kind == "broadcast":
            options.rootRank, options.rootTensor = call.options["root"], 0
        elif call.kind != "all_gather":
            if op == "mean":
                flat.div_(self._size)  # before: sums of half precision may overflow
                op = "sum"
            options.reduceOp = getattr(c10d.ReduceOp, op.upper())
        tensors: tuple[Any, ...] = ([flat],)
        if call.kind in ("all_gather", "reduce_scatter"):
            size = targets[0].numel() * targets[0].itemsize
            result = flat.new_empty(size // flat.itemsize)
            tensors = (result, flat)
        if not flat.numel():
            return result, None, targets
        return result, getattr(self._torchs, parts[1])(*tensors, options), targets


# Torch's options and its method for each kind of operation.
_TORCHS = {
    "allreduce": ("AllreduceOptions", "allreduce"),
    "broadcast": ("BroadcastOptions", "broadcast"),
    "all_gather": ("AllgatherOptions", "_allgather_base"),
    "reduce_scatter": ("ReduceScatterOptions", "_reduce_scatter_base"),
}


@contextmanager
def _without_watchdog(timeout: timedelta) -> Iterator[None]:
    """`ProcessGroupNCCL` reads the environment when it is made. With "blocking wait" it
    has no watchdog; nobody waits so here."""
    name, given = "TORCH_NCCL_BLOCKING_WAIT", os.environ.get("TORCH_NCCL_BLOCKING_WAIT")
    seconds = str(max(1, int(timeout.total_seconds())))
    os.environ.setdefault("TORCH_NCCL_NONBLOCKING_TIMEOUT", seconds)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if given is None:
            del os.environ[name]
        else:
            os.environ[name] = given


def _runs(call: _Call) -> Iterator[tuple[Any, list[Any]]]:
    """The inputs of each type as one new flat tensor on the call's device, and the
    places of the results. Operations that only move tensors move bytes."""
    torch = sys.modules["torch"]
    moved = call.kind in ("broadcast", "all_gather")
    numbers: dict[Any, list[int]] = {}
    for number, source in enumerate(call.sources):
        numbers.setdefault(source.dtype, []).append(number)
    for alike in numbers.values():
        flats = [
            call.sources[i].detach().resolve_conj().resolve_neg().reshape(-1)
            for i in alike
        ]
        flats = [flat.to(call.device).contiguous() for flat in flats]
        if moved:
            flats = [flat.view(torch.uint8) for flat in flats]
        yield torch.cat(flats), [call.targets[i] for i in alike]


class _Task(threading.Thread):
    """Something that may block for long, or for ever."""

    def __init__(self, do: Callable[[], Any]) -> None:
        super().__init__(name="moo-nccl-call", daemon=True)
        self._do = do
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.value = self._do()
        except BaseException as error:
            self.error = error


# -- the group's side --------------------------------------------------------


class _View(NamedTuple):
    """The members of one epoch, in rank order, and this one's rank."""

    epoch: int
    rank: int
    members: list[tuple[int, int, str]]


class _Again(Exception):
    """The members are others now, or NCCL has failed: all begin the call again."""


class Executor:
    """Makes a member's operations, one after the other, in a thread of its own."""

    def __init__(self, group: LearnerGroup, backend: str, finishes: bool) -> None:
        """Args:
        group: this member as one without a backend. Nobody else queues anything in it.
        """
        self._group, self._backend, self._finishes = group, backend, finishes
        self.member = group._member()
        self._has_nccl = why_not() is None
        self._communicator: Communicator | None = None
        #: What the last operation on a GPU's tensors went by; None: by the CPU.
        self.transport: str | None = None
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = threading.Thread(
            target=self._run, name=f"moo-nccl {group.name}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Leave the group; what is queued fails. May be called twice."""
        if is_child(self._group._pid):
            return
        self.member.leave()
        self._calls.put(None)
        if threading.current_thread() is not self._thread:
            # A signal handler may have interrupted the holder of the group's lock.
            self._thread.join(_PATIENCE_S)

    # -- as `Queued`: tensors are copied when it is their turn ---------------

    def staged(self, place: Place) -> Any:
        """Memory that stands for a copy, which is made later."""
        if isinstance(place.kind, tuple):
            return sys.modules["torch"].empty(0, dtype=place.kind[0])
        import numpy as np

        return np.empty(0, cast(Any, place.kind).newbyteorder("="))

    def refuse_overlaps(self, buffers: object) -> None:
        """Operations see each other's results, whatever their memory."""

    def queue(self, *call: Any) -> Work[Any]:
        """Args: see `_Call`."""
        made = _Call(*call)
        on_gpus = any(is_torch(t) and t.device.type != "cpu" for t in made.sources)
        if on_gpus and made.device is None and self._backend == "nccl":
            raise ValueError(
                f"{made.label} by NCCL takes torch tensors of one GPU: pass those of "
                "several GPUs, and arrays, in operations of their own"
            )
        self._calls.put(made)
        group = self._group
        how = cast(Any, made), made.result, self, group._pid
        return Work(group.name, made.label, *how)

    def start(self) -> None:
        self.member.describe()  # raises if this process has left

    def bring(self, call: _Call) -> None:
        call.conclude()

    # -- the thread ----------------------------------------------------------

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call.took_part = self._make(call)
            except BaseException as error:
                call.error = error
            call.ended.set()
            del call
        self._drop()

    def _make(self, call: _Call) -> list[tuple[int, int, str]]:
        """Returns the members that took part."""
        while True:  # until all have the results, or all fail
            view = None if call.kind == "barrier" else self._agree(call)
            if view is None:
                return self._on_cpu(call)
            try:
                deliver = self._by_nccl(call, view)
                break
            except _Again:
                self._drop()
            except BaseException:
                self._drop()
                raise
        deliver()  # an error of it is this member's alone
        return view.members

    def _drop(self) -> None:
        if self._communicator is not None:
            self._communicator.abort()
            self._communicator = None

    def _on_cpu(self, call: _Call) -> list[tuple[int, int, str]]:
        group, options = self._group, call.options
        if call.event is not None:
            call.event.synchronize()
        with group._turn():
            if call.kind in ("all_gather", "reduce_scatter"):
                pairs = [(group._source(call.given[0]), group._new(call.result))]
            else:
                pairs = group._pairs(*call.given)
            given = call.given
            work = group._queue(call.kind, call.label, pairs, given, None, **options)
        work.wait()
        if call.event is not None:
            sys.modules["torch"].cuda.synchronize(call.device)
        if call.device is not None:
            self.transport = None
        return work._work.members()

    def _by_nccl(self, call: _Call, view: _View) -> Callable[[], None]:
        """Returns what copies the results to their places."""
        communicator = self._communicator
        if communicator is None or communicator.epoch != view.epoch:
            self._drop()
            communicator = Communicator(view, self._group.timeout)
            self._communicator = communicator
        call.until = call.until or time.monotonic() + self._group.timeout
        task = _Task(lambda: communicator.run(call))
        task.start()
        self._end_together(call, view, communicator, task)
        self.transport = TRANSPORT
        return lambda: communicator.deliver(call, task.value)

    # -- what members tell each other ----------------------------------------

    def _say(self, call: _Call, values: Any, root: int | None = None) -> Any:
        """The largest of each of all members' values, the same on all; with `root`,
        which is only a check that there is such a rank, those of that member.

        Raises:
          PeerLost, CallTimeout: as any operation of the group.
        """
        import numpy as np

        kind = "allreduce" if root is None else "broadcast"
        said = np.array(values, np.int64) if isinstance(values, list) else values
        heard = said if root is not None else np.empty_like(said)
        pairs = [(buffer_of(said, written=False), buffer_of(heard, written=True))]
        with self._group._turn():
            work = self._group._queue(
                *(kind, call.label, pairs, ([], None), None),
                op="max",
                root=root or 0,
                keys=("mooactor",),  # no call of a program's has these
            )
        try:
            work.wait()
        except ValueError as error:
            raise ValueError(
                f"{error}, ahead of the calls themselves: make the same calls, in the "
                "same order, on all members"
            ) from None
        self._heard_by = work._work.members()
        return heard

    def _view(self) -> _View:
        """The members who said the last thing."""
        info = self._group._info()
        return _View(info.epoch, info.rank, self._heard_by)

    def _agree(self, call: _Call) -> _View | None:
        """None: the members take the CPU."""
        view = None
        if call.names_a_rank:
            self._say(call, [0], root=call.options["root"])
            view = self._view()
        can = self._has_nccl and call.device is not None
        said = [not can, can, call.digest, -call.digest]
        cannot, some_can, most, least = map(int, self._say(call, said))
        if view is not None:
            self._refuse_others(call, view)
        view = self._view()
        if most != -least:
            raise self._mismatch(call, view)
        if cannot and some_can and self._backend == "nccl":
            raise ValueError(
                f"the members disagree in {self._what(call)}: some pass tensors on a "
                "GPU, others do not; backend='auto' would take the CPU for all"
            )
        return None if cannot else view

    def _mismatch(self, call: _Call, view: _View) -> ValueError:
        rows = self._tell_all(call, view, call.described.encode(), 256)
        calls = [row.rstrip(b"\0").decode() for row in rows]
        rank = next((r for r, text in enumerate(calls) if text != calls[0]), 0)
        story = f"rank 0 called {calls[0]}; rank {rank} called {calls[rank]}"
        return ValueError(
            f"the members disagree in {self._what(call)}: {story}"
            + (", with other keys" if not rank else "")
        )

    def _tell_all(
        self, call: _Call, view: _View, said: bytes, most: int
    ) -> list[bytes]:
        """Each member's words, in rank order, at most `most` bytes."""
        import numpy as np

        rows = np.zeros((len(view.members), most), np.uint8)
        rows[view.rank, : len(said)] = np.frombuffer(said, np.uint8)
        return [row.tobytes() for row in self._say(call, rows)]

    def _refuse_others(self, call: _Call, view: _View) -> None:
        """Check that the members are still those of `view`.

        Raises:
          _Again: they are not, and the call goes on with those that are left.
          PeerLost: they are not, and it names a rank.
        """
        now = self._view()
        if now.epoch == view.epoch:
            return
        if not call.names_a_rank:
            raise _Again
        gone = [r for r, one in enumerate(view.members) if one not in now.members]
        rank = gone[0] if gone else 0
        raise PeerLost(
            f"rank {rank} (process {view.members[rank][0]}) of epoch {view.epoch} died "
            f"or left during {self._what(call)}; the others get this error too and can "
            "go on in the next epoch",
            rank=rank,
            epoch=view.epoch,
        )

    def _end_together(
        self, call: _Call, view: _View, communicator: Communicator, task: _Task
    ) -> None:
        """Return when the task has succeeded on all members; meanwhile they exchange
        the new keys of their stores. All members return, or raise the same."""
        store, known = communicator.store, communicator.known
        while True:
            task.join(_TICK_S)
            running, error = task.is_alive(), task.error
            news = {
                key: bytes(store.get(key)) for key in set(store.list_keys()) - known
            }
            known.update(news)
            failed = 0 if error is None else 1 if communicator.is_open else 2
            text = f"{error}"[:300] if failed else ""
            said = codec.encode_in_band((news, text)) if news or failed else b""
            late = time.monotonic() >= call.until
            heard = self._say(call, [running, failed, late, len(said)])
            some_run, some_failed, some_late, most = map(int, heard)
            self._refuse_others(call, view)
            texts = [""] * len(view.members)
            if most:
                rows = self._tell_all(call, view, said, most)
                # A member that failed because another died learns of that here.
                self._refuse_others(call, view)
                for rank, row in enumerate(rows):
                    if not any(row):
                        continue
                    theirs, texts[rank] = codec.decode(row)
                    for key in theirs.keys() - known:
                        store.set(key, theirs[key])
                        known.add(key)
            if some_late and (some_run or some_failed):
                raise CallTimeout(
                    f"{self._what(call)} took too long: NCCL had not ended within "
                    f"{self._group.timeout} s"
                )
            if some_failed:
                self._fail(call, view, texts, some_failed == 2)
            if not some_run:
                return

    def _fail(self, call: _Call, view: _View, texts: list[str], unopened: bool) -> None:
        """NCCL has failed somewhere, though no member is known to be lost."""
        rank = next((rank for rank, text in enumerate(texts) if text), 0)
        story = f"{TRANSPORT.upper()} failed on rank {rank}: {texts[rank]}"
        if unopened:
            raise ActorUnavailable(
                f"{self._what(call)}: {story}; NCCL_DEBUG=INFO says more, and "
                "backend='cpu' goes without it"
            )
        if self._finishes and not call.names_a_rank:
            raise _Again
        raise PeerLost(
            f"{story}, during {self._what(call)}; the others get this error too and "
            "can go on",
            rank=rank,
            epoch=view.epoch,
        )

    def _what(self, call: _Call) -> str:
        return f"{call.label} of learner group {self._group.name!r}"
