# SPDX-License-Identifier: MIT
"""Virtual batches over the members of a learner group, as in moolib's Accumulator.

Members contribute sums of gradients with their numbers of samples. Each *round* they
add up the numbers. When these reach the virtual batch, the gradients are added up too,
and every member makes the same step of its optimizer with their mean over all samples.

- The number of samples is the last element of the gradients that are reduced, so the
  sum and the divisor always name the same members. A contribution is kept until that
  operation has succeeded: after `PeerLost` the round begins anew with the members that
  are left.
- Newcomers come in at the barrier that ends a round. When the members have changed,
  they compare their *versions* (steps of the optimizer, a checkpoint's included). The
  first member with the newest one offers a snapshot of parameters, buffers, the
  optimizer's state and the program's own. Those that are new, or behind, fetch it
  while the others train: they take part in rounds, contribute nothing, keep the
  gradients that were reduced meanwhile, and make these steps once they have the
  snapshot. When a group begins, there is nothing to train meanwhile, and they wait.
- A member whose host was taken out of the group, since its connections with another
  host fail, joins again as a newcomer.
- Every `check_every` versions, and after the members have changed, they compare a hash
  of each tensor, as soon as nobody fetches a snapshot. Those that are outvoted are
  named in a warning, and get these tensors from the majority.

A round is one state machine, `_round`, that yields operations to wait for. `for`,
`async for` and `poll` differ in how they wait. The accumulator keeps the round and its
present operation, so a loop that was interrupted there, by Ctrl-C or the end of a task,
is resumed by the next one. If an exception ended the round itself, as in the middle of
an update, this member joins again as a newcomer.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mooactor.actors.api import put
from mooactor.actors.ref import Ref
from mooactor.control import codec
from mooactor.control.complaints import was_interrupted
from mooactor.errors import (
    ActorDied,
    ActorUnavailable,
    CallTimeout,
    MooError,
    PeerLost,
)
from mooactor.learner.group import LearnerGroup
from mooactor.learner.overlap import refuse_new_parameters
from mooactor.learner.work import TakenOut, Work
from mooactor.process import checks

_Round = Generator["Work[Any] | _OwnWait", None, None]
#: Contributions of a member that one round can choose from, if `exact`.
_CHOICE = 16
#: Seconds after which a member comes back that was taken out of the group.
_AWAY_S = 30.0
#: Reduced gradients that a member keeps while it fetches a snapshot: as many as fit
#: into so many bytes, but not more than that number, as the others wait while it makes
#: up for them. When there is no room left, the others wait for the snapshot, for half
#: of the group's timeout.
_KEPT_BYTES, _KEPT = 256 << 20, 1024


class Step:
    """One round of this process, to which it may contribute once or several times."""

    __slots__ = ("version", "_of")

    def __init__(self, accumulator: Accumulator) -> None:
        self.version = accumulator.version
        self._of = accumulator

    def add(self, loss: Tensor | None = None, *, count: int) -> None:
        """Contribute the gradients of a loss.

        Args:
          loss: the mean over `count` samples; backward is run here. Without it, the
            parameters have the gradients of such a mean already. Either way they are
            None afterwards.
          count: the number of samples, which is the weight of these gradients.
        """
        checks.count("count", count, "a number of samples", least=1)
        if loss is not None:
            torch.autograd.backward(loss)
        self._of._add(count, self.version)

    def skip(self) -> None:
        """Contribute nothing; gradients that the parameters have are dropped."""
        for parameter in self._of._trained:
            parameter.grad = None


class _Contribution(NamedTuple):
    samples: int
    version: int  # of the parameters that it was computed with
    #: Flat, one for each type: gradients, how often each parameter had one, the count.
    sums: list[Tensor]


class _OwnWait(ABC):
    """Something that concerns this member alone, and is waited for as a `Work` is."""

    def start(self) -> _OwnWait:
        return self

    @abstractmethod
    def done(self) -> bool: ...

    @abstractmethod
    def wait(self) -> None: ...

    def __await__(self) -> Generator[Any, None, None]:
        while not self.done():
            yield from asyncio.sleep(0.05).__await__()
        self.wait()


class _Arrival(_OwnWait):
    """A snapshot on its way."""

    def __init__(self, ref: Ref[Any], version: int, room: int) -> None:
        self._ref, self.version, self._room = ref, version, room
        self.kept: list[list[Tensor]] = []  # gradients that were reduced since then
        self.value: Any = None
        self.is_lost = False  # with its owner, or the way to it
        self.is_late = False
        self._until = math.inf
        ref.want()

    def is_due(self) -> bool:
        """Whether it is here, or others have to wait for it now."""
        return not self.is_lost and (self.done() or len(self.kept) >= self._room)

    def within(self, seconds: float) -> _Arrival:
        """It is late after so long."""
        self._until = time.monotonic() + seconds
        return self

    def done(self) -> bool:
        return self._is_here() or time.monotonic() >= self._until

    def _is_here(self) -> bool:
        return self._ref.done() and self._ref.is_here()  # the former hears of it

    def wait(self) -> None:
        left = self._until - time.monotonic()
        if left <= 0 and not self._is_here():
            self.is_late = True
            return
        try:
            self.value = self._ref.get(max(0.0, left))
        except (ActorDied, ActorUnavailable):
            self.is_lost = True
        except CallTimeout:
            self.is_late = True


class _Return(_OwnWait):
    """Joining the group again, `away_s` after it was made."""

    def __init__(self, group: LearnerGroup, away_s: float) -> None:
        group._member()  # of which it still is one
        self._group = group
        self._when: float | None = time.monotonic() + away_s

    def done(self) -> bool:
        return self._is_back(0.0)

    def wait(self) -> None:
        while not self._is_back(0.1):
            pass

    def _is_back(self, seconds: float) -> bool:
        if self._when is not None and time.monotonic() < self._when:
            time.sleep(seconds)
            return False
        try:
            if self._when is not None:
                self._group.leave()
                self._group._knock()
                self._when = None
            return self._group._is_in(seconds)
        except Exception:
            self._group.leave()
            raise


class Accumulator:
    """Trains a model on virtual batches over all members of a group.

    ::

        accumulator = moo.Accumulator(group, model, optimizer, batch=256)
        for step in accumulator:  # endless: break, or raise, to end it
            samples = next(batches)
            step.add(loss_of(model, samples), count=len(samples))

    All members iterate until they leave the group, and members that join begin to. An
    iteration is one round: it waits for the others, also if this member has skipped.
    Members that fetch the state take part in rounds, and run nothing of the program's
    loop meanwhile. If the others have had to wait for that for half of the group's
    timeout, the member leaves, and its loop raises `CallTimeout`.
    The group is the accumulator's from now on: for operations of its own the program
    has another group.
    A process makes its model and optimizer before it joins the group, as the others
    wait for its first iteration from then on.
    In an asyncio program, ``async for`` does the same. A loop that must never wait, as
    moolib's, calls `poll`.

    After Ctrl-C, or any exception, the next loop goes on where this one has ended; in
    the middle of an update, as a member that joins. Another accumulator needs another
    membership: leave the group, and join again.

    Threads: one at a time.
    """

    def __init__(
        self,
        group: LearnerGroup,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        batch: int,
        exact: bool = False,
        max_staleness: int | None = None,
        check_every: int = 100,
        version: int = 0,
        before_update: Callable[[], object] | None = None,
        get_state: Callable[[], Any] | None = None,
        set_state: Callable[[Any], object] | None = None,
    ) -> None:
        """All members give the same arguments, but for `version`.

        Args:
          batch: samples of all members together for one update, at least.
          exact: updates have exactly so many samples, chosen from whole contributions;
            others wait for a later one.
          max_staleness: contributions whose parameters are more versions behind are
            dropped; None: none is.
          check_every: versions between two comparisons of the members' states. There is
            one after each change of the members, too, and none while a member fetches
            the state.
          version: of `model` and `optimizer`: the number of updates in a checkpoint.
          before_update: called on each member when the parameters have the mean
            gradients, before the optimizer's step: to clip them, or to schedule rates.
            Without `optimizer` it makes the update itself.
          get_state, set_state: a picklable value of the program that goes to members
            that join, and is set there.

        Raises:
          ValueError: no parameter requires a gradient, or `batch` is not positive.
        """
        checks.count("batch", batch, "a number of samples", least=1)
        checks.count("check_every", check_every, "a number of versions", least=1)
        self.group, self.model, self.optimizer = group, model, optimizer
        self.batch, self.exact = batch, checks.flag("exact", exact)
        self.version = checks.count("version", version, "a number of updates")
        self.max_staleness = max_staleness
        self.check_every = check_every
        self._before_update = before_update
        self._get_state, self._set_state = get_state, set_state
        self._trained = [p for p in model.parameters() if p.requires_grad]
        if not self._trained:
            raise ValueError("no parameter of the model requires a gradient")
        self._kinds: dict[Any, list[int]] = {}
        for number, parameter in enumerate(self._trained):
            dtype = torch.promote_types(parameter.dtype, torch.float32)
            self._kinds.setdefault((dtype, parameter.device), []).append(number)
        self._pending: list[_Contribution] = []
        self._results = self._zeros()
        self._epoch = -1  # of the last comparison of versions
        self._is_new = True
        self._arriving: _Arrival | None = None
        self._offer: Ref[Any] | None = None  # until all others have it
        self._fetching = 0  # members without it, as of the last round
        self._check_is_due = False  # of the states; all members see it alike
        self._has_more = False  # contributions, perhaps, for one more update at once
        self._counts: Counter[str] = Counter()
        #: The round, and what it waits for; None: it has come to its end.
        self._running: tuple[_Round, Work[Any] | _OwnWait | None] | None = None
        self._is_torn = False  # if no round is running: the last one was cut short
        self._has_begun = False

    # -- three ways to wait ------------------------------------------------

    def __iter__(self) -> Iterator[Step]:
        while True:
            while (work := self._awaited()) is not None:
                with self._going_on():
                    work.wait()
            yield Step(self)

    async def __aiter__(self) -> AsyncIterator[Step]:
        while True:
            while (work := self._awaited()) is not None:
                with self._going_on():
                    await work
            yield Step(self)
            await asyncio.sleep(0)

    def poll(self) -> Step | None:
        """Never waits. A step to contribute to, or None while a round is under way. The
        next call after a step begins its round.

        Raises:
          CallTimeout: as `Work.wait` does.
        """
        while (work := self._awaited()) is not None:
            if not work.start().done():
                return None
            with self._going_on():
                work.wait()
        return Step(self)

    def _awaited(self) -> Work[Any] | _OwnWait | None:
        """The operation that this member is at; None: its next step can begin."""
        if self._running is None:
            self._advance(self._before_step(self._is_torn))
        assert self._running is not None
        _, work = self._running
        if work is None:
            self._running = None
        return work

    def _advance(self, steps: _Round, error: Exception | None = None) -> None:
        """To the round's next operation, or its end."""
        self._is_torn = True  # first: a signal handler may raise at any point
        self._running = None
        try:
            work = next(steps) if error is None else steps.throw(error)
        except StopIteration:
            work = None
        self._running = steps, work
        self._is_torn = False

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """The body waits for the present operation, then the round goes on. If the wait
        is interrupted, it stays the present one."""
        assert self._running is not None
        steps, work = self._running
        try:
            yield
        except (PeerLost, TakenOut) as error:
            self._advance(steps, error)
        except Exception as error:
            if not was_interrupted(error):
                # An operation fails for all alike, and all of them begin a round.
                self._is_torn = not isinstance(work, Work)
                self._running = None
            raise
        else:
            self._advance(steps)

    # -- what there is to know ---------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether this member has rank 0: one of them has, at any time."""
        return self.group.rank == 0

    def stats(self) -> dict[str, int]:
        """Counts of this member: rounds, updates, samples of all members in them, its
        own contributions, those dropped because they were stale, operations that lost a
        member, states received, and tensors healed; and the version, and the members
        that are fetching the state now, which all members see alike."""
        names = ("rounds", "updates", "samples", "contributions", "stale")
        counts = {name: self._counts[name] for name in names}
        rest = ("lost", "received", "healed")
        now = {"version": self.version, "fetching": self._fetching}
        return counts | {n: self._counts[n] for n in rest} | now

    # -- contributions -----------------------------------------------------

    def _zeros(self) -> list[Tensor]:
        sizes = {
            kind: sum(self._trained[i].numel() + 1 for i in numbers) + 1
            for kind, numbers in self._kinds.items()
        }
        return [
            torch.zeros(size, dtype=dtype, device=device)
            for (dtype, device), size in sizes.items()
        ]

    def _pieces(self, flat: Tensor, numbers: list[int]) -> tuple[list[Tensor], Tensor]:
        """The gradients of these parameters, and how often each had one."""
        parameters = [self._trained[i] for i in numbers]
        sizes = [parameter.numel() for parameter in parameters]
        gradients, uses = torch.split(flat[:-1], [sum(sizes), len(sizes)])
        pieces = zip(torch.split(gradients, sizes), parameters, strict=True)
        return [piece.view(parameter.shape) for piece, parameter in pieces], uses

    @torch.no_grad()
    def _add(self, count: int, version: int) -> None:
        refuse_new_parameters(self.model, self._trained)
        if self.exact and count > self.batch:
            raise ValueError(
                f"a contribution of {count} samples cannot be part of a batch of "
                f"exactly {self.batch}: give smaller ones, or exact=False"
            )
        last = self._pending[-1] if self._pending else None
        is_apart = self.exact and not self._joins(last, count)
        if last is None or is_apart or last.version != version:
            last = _Contribution(0, version, self._zeros())
        else:
            self._pending.pop()  # one that is interrupted here is dropped, not torn
        for numbers, flat in zip(self._kinds.values(), last.sums, strict=True):
            pieces, uses = self._pieces(flat, numbers)
            for place, number in enumerate(numbers):
                gradient = self._trained[number].grad
                if gradient is not None:
                    pieces[place].add_(gradient.to(flat.dtype), alpha=count)
                    uses[place] += 1
            flat[-1] += count
        self._pending.append(last._replace(samples=last.samples + count))
        self._counts["contributions"] += 1
        for parameter in self._trained:
            parameter.grad = None

    def _joins(self, last: _Contribution | None, count: int) -> bool:
        """Whether a contribution becomes part of the last one, as no round could choose
        it: otherwise a batch of very many small ones would never be complete."""
        fits = last is not None and last.samples + count <= self.batch
        return fits and len(self._pending) >= _CHOICE

    def _drop_stale(self) -> None:
        if self.max_staleness is None:
            return
        least = self.version - self.max_staleness
        kept = [c for c in self._pending if c.version >= least]
        self._counts["stale"] += len(self._pending) - len(kept)
        self._pending = kept

    # -- a round -----------------------------------------------------------

    def _before_step(self, is_torn: bool) -> _Round:
        """End the round of the last step; join again if that is necessary."""
        away_s = 0.0
        while True:
            try:
                if is_torn:
                    yield from self._join_again(away_s)
                yield from self._before_step_as_member()
                return
            except TakenOut:
                # The others lose some seconds with each member that comes back while
                # its connections still fail.
                is_torn, away_s = True, min(_AWAY_S, self.group.timeout / 2)

    def _join_again(self, away_s: float) -> _Round:
        self._has_begun, self._is_new, self._epoch = False, True, -1
        if self._arriving is not None:
            self._arriving.is_lost = True
        yield _Return(self.group, away_s)

    def _before_step_as_member(self) -> _Round:
        """End the round of the last step; at first, get the state of the others."""
        if self._has_begun:
            yield from self._round()
        else:
            yield from self._compare_versions()
            self._has_begun = True
        while self._arriving is not None:
            yield from self._round()

    def _round(self) -> _Round:
        self._counts["rounds"] += 1
        more = True
        while more:
            before = self.version
            self._drop_stale()
            try:
                yield from self._attempt()
                more = self._has_more
            except PeerLost:
                self._counts["lost"] += 1
                more = self.version == before  # else what failed came after the update
            yield from self._compare_versions()

    def _attempt(self) -> _Round:
        chosen = yield from self._choose()
        if chosen is not None:
            sums = self._zeros()
            for index in chosen:
                torch._foreach_add_(sums, self._pending[index].sums)
            yield self.group.allreduce(sums, "sum", out=self._results)
            # Beyond 16 million samples f32 has no room for each of them.
            if float(self._results[0][-1]) < self.batch * (1 - 1e-6):
                chosen = None  # a member was lost after it had counted its samples
        if chosen is not None:
            left = [c for i, c in enumerate(self._pending) if i not in chosen]
            self._pending = left
            self._counts["samples"] += int(self._results[0][-1])
            if self._arriving is None:
                self._update(self._results)
            else:
                if not self._arriving.is_lost:
                    kept = [flat.clone() for flat in self._results]
                    self._arriving.kept.append(kept)
                self.version += 1
            self._check_is_due |= self.version % self.check_every == 0
            if self._check_is_due and not self._fetching:
                self._check_is_due = False
                yield from self._compare_states()
        arriving = self._arriving
        if arriving is not None and arriving.is_due():
            yield from self._receive(arriving)
        yield self.group.barrier_async()  # newcomers come in

    def _choose(self) -> Generator[Any, None, list[int] | None]:
        """Which of this member's contributions make an update with those of others;
        None: there are not enough yet."""
        counts = [c.samples for c in self._pending]
        arriving = self._arriving
        arrives = [arriving is not None, arriving is not None and arriving.is_lost]
        if not self.exact:
            total = torch.tensor([*arrives, sum(counts)])
            result = torch.empty_like(total)
            yield self.group.allreduce(total, "sum", out=result)
            self._keep_offer(*result[:2].tolist())
            enough = int(result[2]) >= self.batch
            return list(range(len(counts))) if enough else None
        row = torch.zeros(_CHOICE + 2, dtype=torch.int64)
        for place, count in enumerate(counts[:_CHOICE]):
            row[place] = count
        row[_CHOICE:] = torch.tensor(arrives)
        work = self.group.all_gather(row)
        yield work
        rows = work.result().tolist()
        self._keep_offer(*(sum(row[_CHOICE + i] for row in rows) for i in (0, 1)))
        offered = [row[i] for i in range(_CHOICE) for row in rows]
        picked = _subset(offered, self.batch)
        self._has_more = picked is not None and sum(offered) >= 2 * self.batch
        if picked is None:
            return None
        size, rank = len(rows), self.group.rank
        return [at // size for at in picked if at % size == rank]

    @torch.no_grad()
    def _update(self, sums: list[Tensor]) -> None:
        for numbers, flat in zip(self._kinds.values(), sums, strict=True):
            pieces, uses = self._pieces(flat / flat[-1], numbers)
            for number, piece, used in zip(numbers, pieces, uses.tolist(), strict=True):
                parameter = self._trained[number]
                # As in one process, the optimizer leaves out what nobody has used.
                parameter.grad = piece.to(parameter.dtype) if used else None
        if self._before_update is not None:
            with torch.enable_grad():
                self._before_update()
        if self.optimizer is not None:
            self.optimizer.step()
        for parameter in self._trained:
            parameter.grad = None
        self._counts["updates"] += 1
        self.version += 1

    # -- state -------------------------------------------------------------

    def _compare_versions(self) -> _Round:
        """The members have changed: those that are behind get the newest state."""
        while self._epoch != self.group.epoch:
            try:
                # Of one shape, whatever the size: while a group forms, one member can
                # know of a newcomer before another does. Afterwards all know the same.
                has = -1 if self._arriving is not None else self.version
                lacks = self._is_new or has < 0
                most = torch.tensor([has, -has, int(lacks), int(not lacks)])
                yield self.group.allreduce(most, "max")
                epoch = self.group.epoch
                newest, oldest, news, trained = most.tolist()
                if newest < 0:
                    raise MooError(
                        f"no member of learner group {self.group.name!r} has the "
                        "state any more: start from a checkpoint"
                    )
                if (newest != -oldest or news) and self.group.size > 1:
                    giver = yield from self._first(has == newest)
                    if self.group.epoch != epoch:
                        continue  # it may be the rank of another one now
                    yield from self._share_state(
                        giver, has < newest, newest, bool(trained)
                    )
            except PeerLost:
                self._counts["lost"] += 1
            else:
                self._epoch, self._is_new = epoch, False
                self._check_is_due = True

    def _first(self, is_one: bool) -> Generator[Any, None, int]:
        """The lowest rank of those that say yes."""
        rank = torch.tensor([self.group.rank if is_one else 1 << 30])
        yield self.group.allreduce(rank, "min")
        return int(rank)

    def _share_state(
        self, giver: int, behind: bool, newest: int, trained: bool
    ) -> _Round:
        """A member that has the newest version offers it to the others.

        Args:
          giver: its rank.
          behind: this member has an older version, or no state.
          trained: some members are not new, and can go on meanwhile.
        """
        gives = self.group.rank == giver
        said = b""
        if gives:
            self._keep_offer(0)
            self._offer = put(self._snapshot())
            said = codec.encode_in_band(self._offer)
        size = torch.tensor([len(said)])
        yield self.group.broadcast(size, giver)
        data = torch.empty(int(size), dtype=torch.uint8)
        if gives:
            data = torch.frombuffer(bytearray(said), dtype=torch.uint8)
        yield self.group.broadcast(data, giver)
        self._fetching = int(trained)  # at least, until the next round
        if gives or not (self._is_new or behind):
            return
        self._counts["stale"] += len(self._pending)
        self._pending.clear()
        room = _room(sum(flat.nbytes for flat in self._results))
        offer = codec.decode(data.numpy().tobytes())
        self._arriving = _Arrival(offer, newest, room)
        self.version = newest
        if not trained:
            yield from self._receive(self._arriving)

    def _kept_state(self) -> list[Tensor]:
        return [*self.model.parameters(), *self.model.buffers()]

    def _snapshot(self) -> tuple[Any, ...]:
        optimizer = self.optimizer and self.optimizer.state_dict()
        own = self._get_state() if self._get_state else None
        return [t.detach().cpu() for t in self._kept_state()], optimizer, own

    def _keep_offer(self, arriving: int, lost: int = 0) -> None:
        """So many members are still without the snapshot; and so many of them can not
        get it any more, and need another one."""
        self._fetching = arriving
        if lost:
            self._epoch = -1  # have all compare versions behind this round
        if self._offer is not None and not arriving:
            self._offer.unpin()
            self._offer = None

    def _receive(self, arrival: _Arrival) -> _Round:
        """Wait for the snapshot, and make the steps that the others have made since.
        They wait, too, so this member gives up before the operation fails for them."""
        seconds = self.group.timeout / 2
        yield arrival.within(seconds)
        if arrival.is_late:
            self.group.leave()
            raise CallTimeout(
                f"the state of learner group {self.group.name!r} was not here when the "
                f"others had waited for it for {seconds} s, so this process has left: "
                "join again with a longer timeout="
            )
        if arrival.is_lost:
            return
        values, optimizer, own = arrival.value
        with torch.no_grad():
            for tensor, value in zip(self._kept_state(), values, strict=True):
                tensor.copy_(value)
        if self.optimizer is not None and optimizer is not None:
            self.optimizer.load_state_dict(optimizer)
        if self._set_state is not None:
            self._set_state(own)
        self._arriving = None
        self._counts["received"] += 1
        self.version = arrival.version
        for sums in arrival.kept:
            self._update(sums)

    def _named_state(self) -> dict[str, Tensor]:
        """Everything that must be equal on all members."""
        found: dict[str, Tensor] = dict(self.model.named_parameters())
        if self.optimizer is not None:
            for number, values in self.optimizer.state_dict()["state"].items():
                for name, value in values.items():
                    if isinstance(value, Tensor):
                        found[f"the optimizer's {name} of parameter {number}"] = value
        return {name: t.detach() for name, t in found.items() if t.numel()}

    def _compare_states(self) -> _Round:
        """Find members whose tensors differ from those of most, and mend them."""
        state = self._named_state()
        hashes = torch.tensor([_hash_of(t) for t in state.values()], dtype=torch.int64)
        work = self.group.all_gather(hashes)
        yield work
        rows = work.result().tolist()
        for number, (name, tensor) in enumerate(state.items()):
            column = [row[number] for row in rows]
            votes = Counter(column)
            if len(votes) < 2:
                continue
            # A tie is decided by the lowest rank.
            right = max(votes, key=lambda h: (votes[h], -column.index(h)))
            healed = tensor.clone()
            yield self.group.broadcast(healed, column.index(right))
            if column[self.group.rank] != right:
                with torch.no_grad():
                    tensor.copy_(healed)
                self._counts["healed"] += 1
            wrong = [r for r, h in enumerate(column) if h != right]
            ranks = ", ".join(map(str, wrong))
            warnings.warn(
                f"{name} had diverged at version {self.version} on rank {ranks} of "
                f"learner group {self.group.name!r}, and was replaced by the "
                "majority's: look for operations that are not deterministic, and for "
                "updates outside of the accumulator",
                RuntimeWarning,
                stacklevel=2,
            )


def _room(gradient_bytes: int) -> int:
    return min(_KEPT, max(1, _KEPT_BYTES // gradient_bytes))


def _subset(counts: list[int], batch: int) -> list[int] | None:
    """The places of some of these numbers that add up to `batch`, the first ones before
    later ones; None: no numbers do."""
    reached: dict[int, tuple[int, int]] = {0: (0, -1)}  # a sum: the one before, a place
    for place, count in enumerate(counts):
        if not count:
            continue
        for total in list(reached):
            if total + count <= batch:
                reached.setdefault(total + count, (total, place))
        if batch in reached:
            break
    else:
        return None
    places = []
    while batch:
        batch, place = reached[batch]
        places.append(place)
    return places


def _hash_of(tensor: Tensor) -> int:
    flat = tensor.detach().cpu().contiguous().view(-1)
    data: Any = flat.view(torch.uint8).numpy()
    digest = hashlib.blake2b(data, digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
