# SPDX-License-Identifier: MIT
"""`Learner`: the member of a chaos run's learner groups, one loop in a thread for each.

=======  =========  ========  =======================================================
group    `on_loss`  min_size  what the members do
=======  =========  ========  =======================================================
raising  raise      2         sums, means, broadcasts and gathers of *tokens*
lasting  finish     1         the same
trained  either     2         an Accumulator whose gradients are tokens, with exact
                              batches if it raises
=======  =========  ========  =======================================================

A token is a number that stands for one contribution, and is noted before it is given. A
learner has a slot in each tensor, so the contributions of a sum can be read from it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import mooactor as moo
from tests.chaos.client import error_facts
from tests.chaos.history import History
from tests.chaos.workload import Setting, born_as_actor
from tests.conftest import eventually

LEARNERS = ("t0", "t1", "t2", "t3")
#: Seconds in which an operation must end, whatever happens; it never needs so long.
TIMEOUT_S = 40.0
_SIZES = (1, 1, 1, 1000, 30_000, 200_000)  # elements of a slot
_ENDED_S = 3.0  # for a loop to notice that its group is left
_PLACES = 64  # contributions of a learner that an update can have


class _Loop:
    """This process's part in one group: it joins, takes part, leaves and joins again.

    Args:
      slot: of this learner.
      token: the first one; they are never given twice.
    """

    def __init__(self, name: str, notes: History, slot: int, options: dict[str, Any]):
        self.name, self.notes, self.slot = name, notes, slot
        self.options = options
        self.chance = random.Random(f"{name}/{os.getpid()}")
        self.group: Any = None
        self.rounds = 0
        self._over = threading.Event()
        self._noting = threading.Lock()
        self._is_mute = False
        self._tokens = itertools.count(random.randrange(1 << 30) << 8)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Leave the group, perhaps in the middle of an operation."""
        self._over.set()
        if self.group is not None:  # else it is joining, which nobody can end
            self.group.leave()
            self._thread.join(_ENDED_S)
        with self._noting:
            self._is_mute = True

    def token(self) -> int:
        return next(self._tokens)

    def note(self, what: str, **facts: Any) -> None:
        with self._noting:
            if not self._is_mute:
                self.notes.note(what, group=self.name, **facts)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._prepare()
                self._join()
                self._take_part()
            except moo.MooError as error:
                self.note("gave-up", **error_facts(error))
                if isinstance(error, moo.ActorUnavailable):
                    return  # the session is over
            except RuntimeError as error:
                if not self._over.is_set() and "taken out of the group" not in str(
                    error
                ):
                    raise
            finally:
                group, self.group = self.group, None
                if group is not None:
                    self.note("left-group")  # before others can know
                    group.leave()

    def _prepare(self) -> None:
        """Work that takes a while, and so comes before others wait for this member."""

    def _join(self) -> None:
        self.note("joining")
        group = moo.LearnerGroup(self.name, timeout=TIMEOUT_S, **self.options)
        self.note("joined")
        self.group = group
        if self._over.is_set():
            group.leave()

    def _take_part(self) -> None:
        raise NotImplementedError


def _was_taken_out(error: Exception) -> bool:
    """Whether the connections of this host fail, so that it has to join anew."""
    return "taken out of the group" in str(error)


class Adding(_Loop):
    """Rounds of operations that the members derive from the first one's result."""

    def _take_part(self) -> None:
        while not self._over.is_set():
            try:
                self._round()
            except moo.PeerLost:
                continue  # so do all others
            self.rounds += 1
            time.sleep(self.chance.uniform(0.0, 0.02))  # a step computes, too
            if self.chance.random() < 0.01:
                return

    def _round(self) -> None:
        common = random.Random(str(self._reduce("sum", 1)))
        kinds = ("reduce", "reduce", "two", "broadcast", "gather")
        for kind in common.choices(kinds, k=common.randrange(3)):
            op, size = common.choice(["sum", "mean"]), common.choice(_SIZES)
            root = common.randrange(self.group.size)
            if kind == "reduce":
                self._reduce(op, size)
            elif kind == "two" and self.options["min_size"] < 2:
                # In the other group the second one could wait for a newcomer.
                self._two(op, size)
            elif kind == "broadcast":
                value = np.full(size, token := self.token())
                self._end("broadcast", token, self.group.broadcast, value, root=root)()
            elif kind == "gather":
                value = np.full(size, token := self.token())
                self._end("all_gather", token, self.group.all_gather, value)()
        self.group.barrier()
        self._note_view()

    def _reduce(self, op: str, size: int) -> list[int]:
        return self._begin_reduce(op, size)()

    def _two(self, op: str, size: int) -> None:
        """Two operations at once. Each is waited for, whatever becomes of the other."""
        first = self._begin_reduce(op, size)
        with contextlib.ExitStack() as afterwards:
            try:
                afterwards.callback(self._begin_reduce(op, 1))
            finally:
                first()

    def _begin_reduce(self, op: str, size: int) -> Any:
        token = self.token() * (12 if op == "mean" else 1)  # the mean is exact
        value = np.zeros((len(LEARNERS), size), "f8" if op == "mean" else "i8")
        value[self.slot] = token
        how: dict[str, Any] = {"op": op}
        given: Any = torch.from_numpy(value) if self.chance.random() < 0.3 else value
        if self.chance.random() < 0.5:
            how["out"] = given * 0
        return self._end(op, token, self.group.allreduce, given, **how)

    def _end(self, kind: str, token: int, begin: Any, *args: Any, **how: Any) -> Any:
        """Queue an operation. Returns a function that waits for it, and notes that."""
        label = f"{self.notes.who}/{self.name}/{token}"
        epoch = self._epoch()
        self.note("begins", op=label, kind=kind, token=token, slot=self.slot)
        with self._noting_errors(label):
            work = begin(*args, **how)
            if self.chance.random() < 0.3:
                work.start()

        def end() -> list[int]:
            with self._noting_errors(label):
                value = np.asarray(work.result())
            ids = [member.process_id for member in work.participants]
            value = value * len(ids) if kind == "mean" else value
            rows = value.reshape(-1, value.shape[-1]) if value.ndim > 1 else value[None]
            tokens = [int(row[0]) for row in rows]
            facts = {"even": bool((rows == rows[:, :1]).all()), "members": ids}
            same = epoch if self._epoch() == epoch else None
            self.note(
                "finished", op=label, how="value", got=tokens, epoch=same, **facts
            )
            return tokens

        return end

    def _epoch(self) -> int | None:
        with contextlib.suppress(RuntimeError):  # it has left
            return int(self.group.epoch)
        return None

    @contextlib.contextmanager
    def _noting_errors(self, label: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            facts = error_facts(error) | {"epoch": getattr(error, "epoch", None)}
            facts["taken_out"] = _was_taken_out(error)
            self.note("finished", op=label, how="error", **facts)
            raise

    def _note_view(self) -> None:
        group = self.group
        ids = [member.process_id for member in group.members()]
        self.note("view", epoch=group.epoch, members=ids)


class _Tokens(torch.nn.Module):
    """A model whose parameters are, but for a factor, sums of tokens; with a name."""

    def __init__(self) -> None:
        super().__init__()
        self.sums = torch.nn.Parameter(torch.zeros(len(LEARNERS) * _PLACES).double())
        self.register_buffer("name", torch.tensor(random.randrange(1 << 60)))


class Training(_Loop):
    """An Accumulator. Each contribution's gradient is one token in a place of its
    own."""

    def _prepare(self) -> None:
        self.model = _Tokens()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-9, momentum=0.9)

    def _take_part(self) -> None:
        self.exact = self.options["on_loss"] == "raise"
        self.batch = 16 if self.exact else 8
        self.accumulator = moo.Accumulator(
            self.group,
            self.model,
            self.optimizer,
            batch=self.batch,
            exact=self.exact,
            check_every=7,
            before_update=self._note_update,
        )
        self._samples = self._received = 0
        for number, step in enumerate(self.accumulator):
            self.rounds += 1
            self._note_step()
            if self._over.is_set() or self.chance.random() < 0.005:
                return
            time.sleep(self.chance.choice([0.0, 0.01, 0.01, 0.1]))  # it computes
            if self.chance.random() < 0.2:
                step.skip()
            else:
                self._contribute(step, number % _PLACES, self.chance.choice([1, 2, 4]))

    def _contribute(self, step: Any, place: int, count: int) -> None:
        token = self.token()
        at = self.slot * _PLACES + place
        gradient = torch.zeros_like(self.model.sums)
        gradient[at] = token / count
        self.model.sums.grad = gradient
        self.note("adds", token=token, at=at, samples=count, exact=self.exact)
        step.add(count=count)

    def _name(self) -> str:
        return f"{int(self.model.name):x}"

    def _note_update(self) -> None:
        stats = self.accumulator.stats()
        # Of steps that are made again after a state has come, the sum is not known.
        again = stats["received"] != self._received
        total = 0 if again else stats["samples"] - self._samples
        self._samples = stats["samples"]
        assert self.model.sums.grad is not None
        sums = (self.model.sums.grad * total).round().tolist()
        got = {str(at): int(value) for at, value in enumerate(sums) if value}
        facts = {"model": self._name(), "version": stats["version"]}
        most = self.batch if self.exact else None
        batch = {"least": self.batch, "most": most}
        self.note("updates", total=total, got=got, **facts, **batch)

    def _note_step(self) -> None:
        stats = self.accumulator.stats()
        self._received, self._samples = stats["received"], stats["samples"]
        state = [self.model.sums.detach()]
        for values in self.optimizer.state_dict()["state"].values():
            state.append(values["momentum_buffer"])
        digest = zlib.crc32(b"".join(t.numpy().tobytes() for t in state))
        names = ("version", "received", "stale", "healed")
        facts = {name: stats[name] for name in names}
        self.note("step", model=self._name(), digest=digest, **facts)


@moo.actor
class Learner:
    """A member of three groups at once, from its birth on."""

    def __init__(self, setting: Setting, on_loss: str) -> None:
        self.notes = born_as_actor(setting)
        me = self.notes, LEARNERS.index(moo.current().name.rpartition(":")[2])
        self.loops: list[_Loop] = [
            Adding("raising", *me, {"min_size": 2, "on_loss": "raise"}),
            Adding("lasting", *me, {"min_size": 1, "on_loss": "finish"}),
            Training("trained", *me, {"min_size": 2, "on_loss": on_loss}),
        ]

    def proceed(self, call: str) -> None:
        """Return when each loop has made two rounds more."""
        self.notes.note("ran", call=call, method="proceed")
        before = [loop.rounds for loop in self.loops]
        goals = [rounds + 2 for rounds in before]

        def have_gone_on() -> bool:
            pairs = zip(self.loops, goals, strict=True)
            return all(loop.rounds >= goal for loop, goal in pairs)

        assert eventually(have_gone_on, TIMEOUT_S), (
            f"{[loop.name for loop in self.loops]} had made {before} rounds, "
            f"and have made {[loop.rounds for loop in self.loops]} now"
        )
        self.notes.note("done", call=call, value=None)

    def on_stop(self) -> None:
        for loop in self.loops:
            loop.end()
        self.notes.note("over")
