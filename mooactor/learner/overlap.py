# SPDX-License-Identifier: MIT
"""Gradients averaged during backward, as torch's DistributedDataParallel does.

A hook behind each parameter puts its gradient into a *bucket*. A bucket whose gradients
are all there is reduced in the group's own thread, while backward computes those of the
layers before. A callback at the end of backward waits for all buckets, and gives the
parameters the means.

- Buckets are reduced in the same order on all members, whatever order gradients arrive
  in. Each has a flag for each of its parameters behind the gradients: the mean of the
  flags tells whether any member has used the parameter.
- A bucket's result is memory of its own, so the reduction may be begun anew from the
  same gradients when a member is lost. `param.grad` may be any tensor when backward
  begins, also none after ``zero_grad(set_to_none=True)``; afterwards it is a view of
  the result, which saves a copy.
- In main memory the gradients are reduced where they lie, which saves another. On
  other devices, and for bf16 on the wire, they are copied to one flat tensor: one
  transfer for a bucket.
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
    """Gradients of some parameters of one type on one device."""

    def __init__(self, members: list[int], parameters: Sequence[Tensor], wire: Any):
        """`members`: the parameters' numbers."""
        first = parameters[members[0]]
        sizes = [parameters[i].numel() for i in members]
        compressed = wire is not None and wire != first.dtype
        kind: Any = {"dtype": first.dtype, "device": first.device}
        self.members = members
        self.result = torch.zeros(sum(sizes) + len(sizes), **kind)
        self.flat: Tensor | None = None
        #: The rounding errors of the bytes that were sent so far.
        self.error: Tensor | None = None
        if compressed or not first.is_cpu:
            self.flat = torch.zeros_like(self.result)
            self.views = self._views(self.flat, parameters)
        if compressed:
            self.error = torch.zeros_like(self.result)
            self.result = self.result.to(wire)
        self.means = self._views(self.result, parameters)
        self.used = self.result[sum(sizes) :]
        self.gradients: dict[int, Tensor] = {}  # that have arrived
        self.work: Work[Any] | None = None

    @property
    def missing(self) -> set[int]:
        return set(self.members) - set(self.gradients)

    def put(self, number: int, gradient: Tensor) -> None:
        """A gradient has arrived."""
        if self.flat is not None:
            gradient = self.views[number].copy_(gradient)
        self.gradients[number] = gradient

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
        missing = self.missing
        used = torch.tensor([float(i not in missing) for i in self.members])
        for i in missing:
            self.put(i, torch.zeros_like(parameters[i]))
            if (gradient := parameters[i].grad) is not None:
                # It may be the result's memory, and is to stay if nobody uses it.
                parameters[i].grad = gradient.clone()
        if self.flat is None:
            gradients = [self.gradients[i] for i in self.members]
            means = [self.means[i] for i in self.members]
            gradients.append(used.to(self.used.dtype))
            self.work = group.allreduce(gradients, "mean", out=[*means, self.used])
        else:
            self.flat[-len(used) :] = used
            sent = self.flat if self.error is None else self._rounded(self.error)
            self.work = group.allreduce(sent, "mean", out=self.result)
        self.work.start()

    def _rounded(self, error: Tensor) -> Tensor:
        """The bytes to send. Error feedback: Seide et al. 2014, "1-Bit Stochastic
        Gradient Descent"."""
        assert self.flat is not None
        sent = self.flat.add_(error).to(self.result.dtype)
        torch.sub(self.flat, sent, out=error)
        error[-len(self.members) :].zero_()
        return sent

    def reset(self) -> None:
        self.gradients, self.work = {}, None


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
            refuse_new_parameters(self.module, self._trained)
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
            if number in bucket.gradients:
                raise RuntimeError(
                    "a parameter's gradient came twice in one backward: give "
                    "torch.utils.checkpoint use_reentrant=False"
                )
            bucket.put(number, gradient.detach())
            backward.arrived.append(number)
            while (n := backward.next) < len(self._buckets):
                if len(self._buckets[n].gradients) < len(self._buckets[n].members):
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


def refuse_new_parameters(module: nn.Module, trained: Sequence[Tensor]) -> None:
    """Check that all parameters that require a gradient are among these.

    Raises:
      ValueError: one is not, so that each member would change it by its own gradient.
    """
    known = set(map(id, trained))
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and id(parameter) not in known:
            raise ValueError(
                f"parameter {name!r} is new, or requires a gradient since then: wrap "
                "the module, or make its Accumulator, when it has the parameters that "
                "it will have"
            )


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
