# SPDX-License-Identifier: MIT
"""Gradients averaged during backward, as torch's DistributedDataParallel does.

A hook behind each parameter copies its gradient into a flat *bucket*. A bucket whose
gradients are all there is reduced in the group's own thread, while backward computes
those of the layers before. A callback at the end of backward waits for all buckets and
copies the means back.

- Buckets are reduced in the same order on all members, whatever order gradients arrive
  in. Each has a flag for each of its parameters behind the gradients: the mean of the
  flags tells whether any member has used the parameter.
- A bucket's input and its result are memory of their own, so the reduction may be begun
  anew from the same input when a member is lost. `param.grad` may be any tensor when
  backward begins, also none after ``zero_grad(set_to_none=True)``; afterwards it is a
  view of the result, which saves a copy.
- The layout of buckets is rank 0's order of arrival in the first backward, and becomes
  everybody's together with rank 0's parameters and buffers, at the first training
  forward of an epoch.

Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel
Training" (VLDB), describes buckets, hooks and unused parameters.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mooactor.learner.group import LearnerGroup
from mooactor.learner.work import Work
from mooactor.process import checks

BUCKET_BYTES = 25 << 20
#: The first bucket is small, so that the network has work early.
FIRST_BUCKET_BYTES = 1 << 20


class Bucket:
    """Gradients of some parameters of one type on one device, as one flat tensor."""

    def __init__(self, members: list[int], parameters: Sequence[Tensor], wire: Any):
        """`members`: the parameters' numbers."""
        first = parameters[members[0]]
        sizes = [parameters[i].numel() for i in members]
        self.members = members
        self.gradients = torch.zeros(
            sum(sizes) + len(sizes), dtype=first.dtype, device=first.device
        )
        compressed = wire is not None and wire != first.dtype
        self.sent = self.gradients.to(wire) if compressed else self.gradients
        self.result = torch.empty_like(self.sent)
        #: The rounding errors of the bytes that were sent so far.
        self.error = torch.zeros_like(self.gradients) if compressed else None
        self.views = self._views(self.gradients, parameters)
        self.means = self._views(self.result, parameters)
        self.flags = self.gradients[sum(sizes) :]
        self.used = self.result[sum(sizes) :]
        self.missing = set(members)
        self.work: Work[Any] | None = None

    def _views(self, flat: Tensor, parameters: Sequence[Tensor]) -> dict[int, Tensor]:
        shapes = [parameters[i].shape for i in self.members]
        gradients = flat[: flat.numel() - len(shapes)]
        pieces = torch.split(gradients, [shape.numel() for shape in shapes])
        return {
            i: piece.view(shape)
            for i, piece, shape in zip(self.members, pieces, shapes, strict=True)
        }

    def start(self, group: LearnerGroup, parameters: Sequence[Tensor]) -> None:
        """Begin its reduction; gradients that are missing count as zero."""
        used = [float(i not in self.missing) for i in self.members]
        self.flags.copy_(torch.tensor(used))
        for i in self.missing:
            self.views[i].zero_()
            if (gradient := parameters[i].grad) is not None:
                # It may be the result's memory, and is to stay if nobody uses it.
                parameters[i].grad = gradient.clone()
        if self.error is not None:
            # Error feedback: Seide et al. 2014, "1-Bit Stochastic Gradient Descent".
            self.gradients.add_(self.error)
            self.sent.copy_(self.gradients)
            torch.sub(self.gradients, self.sent, out=self.error)
            self.error[-len(used) :].zero_()
        self.work = group.allreduce(self.sent, "mean", out=self.result).start()

    def reset(self) -> None:
        self.missing, self.work = set(self.members), None


class _Backward:
    """One backward whose gradients are averaged."""

    def __init__(self) -> None:
        self.task = torch._C._current_graph_task_id()
        self.next = 0  # the bucket to be started
        self.arrived: list[int] = []


class Wrapped(nn.Module):
    """A module whose gradients are, after each backward, the mean over a group.

    Calls, attributes, parameters and ``state_dict`` are those of `module`, which it has
    as `.module`. Made by `LearnerGroup.wrap`.
    """

    module: nn.Module

    def __init__(
        self,
        module: nn.Module,
        group: LearnerGroup,
        *,
        bucket_bytes: int = BUCKET_BYTES,
        broadcast_buffers: bool = True,
        wire: Literal["bf16"] | None = None,
    ) -> None:
        """See `LearnerGroup.wrap`."""
        super().__init__()
        if not isinstance(module, nn.Module):
            raise TypeError(
                f"{checks.shown('module', module)} must be a torch.nn.Module"
            )
        if isinstance(module, Wrapped):
            raise ValueError("the module is wrapped already")
        if wire not in (None, "bf16"):
            raise ValueError(f"{checks.shown('wire', wire)} must be None or 'bf16'")
        checks.count("bucket_bytes", bucket_bytes, "a number of bytes", least=1)
        self.module = module
        self._group = group
        self._bucket_bytes = bucket_bytes
        self._buffers_too = checks.flag("broadcast_buffers", broadcast_buffers)
        self._wire = torch.bfloat16 if wire else None
        self._trained = [p for p in module.parameters() if p.requires_grad]
        if not self._trained:
            raise ValueError("no parameter of the module requires a gradient")
        self._syncs = True
        self._epoch = -1  # of the group, at the last agreement
        # The order of arrival of rank 0's gradients, when it is known.
        self._order: list[int] | None = None
        self._is_settled = False
        self._backward: _Backward | None = None
        self._lock = threading.Lock()  # several devices have a thread each
        self._lay_out(list(range(len(self._trained)))[::-1])
        me = weakref.ref(self)
        for number, parameter in enumerate(self._trained):
            hook: Any = parameter.register_post_accumulate_grad_hook  # it has no types
            hook(_hook(me, number))

    # -- as the module -----------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        in_backward = torch._C._current_graph_task_id() != -1  # of a checkpoint
        trains = self.training and torch.is_grad_enabled() and not in_backward
        if trains and not self._group._has_left():
            with self._lock:
                if self._backward is not None:  # it has raised in the middle
                    self._conclude(self._backward)
            self._agree()
        return self.module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.load_state_dict(*args, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a wrapped module belongs to this process's group: send or copy its "
            ".module, or its state_dict()"
        )

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward in here adds to the gradients of this process alone; the next one
        outside averages the sums. All members must do the same."""
        before, self._syncs = self._syncs, False
        try:
            yield
        finally:
            self._syncs = before

    # -- what all members have in common -----------------------------------

    def _agree(self) -> None:
        """Take rank 0's parameters, buffers and order, if the members have changed
        since, or the order has become known; else its buffers."""
        group, known = self._group, self._order is not None
        if self._epoch == group.epoch and self._is_settled >= known:
            if (
                self._syncs
                and self._buffers_too
                and (buffers := _numbers(self.module.buffers()))
            ):
                group.broadcast(buffers).wait()
            return
        order = torch.tensor([int(known), *(self._order or range(len(self._trained)))])
        while True:
            epoch = group.epoch
            state = [*self.module.parameters(), *self.module.buffers()]
            group.broadcast([*_numbers(state), order]).wait()
            if epoch == group.epoch:
                break
        self._epoch, self._is_settled = epoch, bool(order[0])
        if self._is_settled:
            self._order = order[1:].tolist()
            self._lay_out(self._order)

    def _lay_out(self, order: list[int]) -> None:
        buckets: list[list[int]] = []
        room: dict[Any, tuple[list[int], int]] = {}
        for number in order:
            parameter = self._trained[number]
            kind = parameter.dtype, parameter.device
            members, left = room.get(kind, ([], 0))
            if left < parameter.nbytes:
                left = self._bucket_bytes if buckets else FIRST_BUCKET_BYTES
                members = []
                buckets.append(members)
            members.append(number)
            room[kind] = members, left - parameter.nbytes
        self._buckets = [Bucket(b, self._trained, self._wire) for b in buckets]
        self._bucket_of = {i: b for b in self._buckets for i in b.members}

    # -- backward ----------------------------------------------------------

    def _arrived(self, number: int) -> None:
        """The gradient of this parameter is complete for this backward."""
        if not self._syncs or self._group._has_left():
            return
        gradient = self._trained[number].grad
        assert gradient is not None
        if gradient.layout != torch.strided:
            raise TypeError(
                f"a gradient of layout {gradient.layout} cannot be averaged: give the "
                "embedding sparse=False"
            )
        with self._lock:
            backward = self._current()
            bucket = self._bucket_of[number]
            if number not in bucket.missing:
                raise RuntimeError(
                    "a parameter's gradient came twice in one backward: give "
                    "torch.utils.checkpoint use_reentrant=False"
                )
            bucket.views[number].copy_(gradient.detach())
            bucket.missing.remove(number)
            backward.arrived.append(number)
            while (n := backward.next) < len(self._buckets):
                if self._buckets[n].missing:
                    break
                self._start_next(backward)

    def _current(self) -> _Backward:
        backward = self._backward
        if backward and backward.task != torch._C._current_graph_task_id():
            self._conclude(backward)  # it has raised in the middle
            backward = None
        if backward is None:
            backward = self._backward = _Backward()
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: self._finish(backward))
        return backward

    def _start_next(self, backward: _Backward) -> None:
        bucket = self._buckets[backward.next]
        backward.next += 1
        bucket.start(self._group, self._trained)

    def _finish(self, backward: _Backward) -> None:
        """At the end of backward: the gradients become the means."""
        with self._lock:
            if self._backward is not backward:
                return
            if failed := self._conclude(backward):
                raise failed
            if self._order is None:
                late = sorted(set(self._bucket_of) - set(backward.arrived))
                self._order = backward.arrived + late[::-1]

    def _conclude(self, backward: _Backward) -> Exception | None:
        """Reduce the rest, for which the other members wait also when this one's
        backward has raised, and take what all have got; the first error, if any."""
        self._backward = None
        failed: Exception | None = None
        while backward.next < len(self._buckets):
            self._start_next(backward)
        for bucket in self._buckets:
            assert bucket.work is not None
            try:
                bucket.work.wait()
                if failed is None:
                    self._take(bucket)
            except Exception as error:  # the others end, too, before it is raised
                failed = failed or error
            finally:
                bucket.reset()
        return failed

    def _take(self, bucket: Bucket) -> None:
        flags = bucket.used.tolist()
        for number, flag in zip(bucket.members, flags, strict=True):
            if flag:  # else nobody has used it: its gradient stays as it is
                parameter, mean = self._trained[number], bucket.means[number]
                parameter.grad = mean.to(parameter.dtype)


def _hook(me: weakref.ref[Wrapped], number: int) -> Callable[[Tensor], None]:
    def hook(_: Tensor) -> None:
        wrapped = me()
        if wrapped is not None:
            wrapped._arrived(number)

    return hook


def _numbers(tensors: Any) -> list[Tensor]:
    """Their memory, without autograd's part; those that have none are left out."""
    return [t.detach() for t in tensors if t.numel()]


def hook_of(group: LearnerGroup) -> Callable[[Any, Any], Any]:
    """See `mooactor.ddp_hook`."""

    # Without annotations, which torch compares with its own types.
    return lambda state, bucket: _future_mean(group, bucket.buffer())


def _future_mean(group: LearnerGroup, gradients: Tensor) -> Any:
    work = group.allreduce(gradients, "mean").start()
    future: Any = torch.futures.Future()

    def conclude() -> None:
        try:
            future.set_result(work.result())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=conclude, name="moo-ddp-hook", daemon=True).start()
    return future
