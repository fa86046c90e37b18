# SPDX-License-Identifier: MIT
"""`LearnerGroup.wrap` and `ddp_hook` beside torch's DistributedDataParallel over gloo,
with the same data in the same processes."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo

torch = pytest.importorskip("torch")
nn = torch.nn

STEPS, RANKS = 4, 2
_numbers = itertools.count()


class Net(nn.Module):
    """With normalization, and layers that a step may leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.left, self.right = nn.Linear(32, 32), nn.Linear(32, 32)
        self.never = nn.Linear(3, 3)
        self.head = nn.Linear(32, 1)

    def forward(self, x: Any, way: int = 0) -> Any:
        y = self.first(x)
        return self.head(torch.tanh((self.left, self.right)[way % 2](y)))


class Shared(nn.Module):
    """Uses one layer twice, and has its weight under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
        self.out.weight = self.inner.weight

    def forward(self, x: Any, way: int = 0) -> Any:
        return self.out(torch.tanh(self.inner(torch.tanh(self.inner(x))))).sum(1)


def frozen() -> Any:
    net = Net()
    net.first[0].requires_grad_(False)
    return net


Step = Callable[[Any, Any, Any, int, int], None]


def backward(model: Any, x: Any, way: int) -> None:
    (model(x, way).float() ** 2).mean().backward()


def simply(model: Any, optimizer: Any, x: Any, rank: int, step: int) -> None:
    optimizer.zero_grad()
    backward(model, x, 0)
    optimizer.step()


def without_dropping(model: Any, optimizer: Any, x: Any, rank: int, step: int) -> None:
    optimizer.zero_grad(set_to_none=False)
    backward(model, x, step)
    optimizer.step()


def each_its_way(model: Any, optimizer: Any, x: Any, rank: int, step: int) -> None:
    """Ranks leave out different layers, and sometimes all the same one."""
    optimizer.zero_grad(set_to_none=step % 2 == 0)
    backward(model, x, rank * step)
    optimizer.step()


def accumulating(model: Any, optimizer: Any, x: Any, rank: int, step: int) -> None:
    optimizer.zero_grad()
    for part in x.chunk(2):
        backward(model, part, 0)
    optimizer.step()


def in_no_sync(model: Any, optimizer: Any, x: Any, rank: int, step: int) -> None:
    optimizer.zero_grad()
    *first, last = x.chunk(4)
    with model.no_sync():
        for part in first:
            backward(model, part, 0)
    backward(model, last, 0)
    optimizer.step()


CASES: dict[str, tuple[Callable[[], Any], Step, dict[str, Any]]] = {
    "simply": (Net, simply, {}),
    "many buckets": (Net, simply, {"bucket_bytes": 1000}),
    "gradients stay": (Net, without_dropping, {}),
    "unused": (Net, each_its_way, {"bucket_bytes": 1000}),
    "shared": (Shared, simply, {}),
    "frozen": (frozen, simply, {}),
    "accumulated": (Net, accumulating, {}),
    "no_sync": (Shared, in_no_sync, {}),  # DDP's buffers then lag behind a forward
    "bf16": (lambda: Net().bfloat16(), simply, {}),
}


class Trainer:
    """A member of a learner group and of a torch process group."""

    def join(self, name: str, store: str) -> int:
        self.group = moo.LearnerGroup(name, min_size=RANKS)
        self.rank = self.group.rank
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{store}", rank=self.rank, world_size=RANKS
        )
        return self.rank

    def data(self, steps: int) -> Iterator[Any]:
        random = torch.Generator().manual_seed(self.rank)
        return (torch.randn(16, 8, generator=random) for _ in range(steps))

    def train(self, model: Any, step: Step) -> None:
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        for number, x in enumerate(self.data(STEPS)):
            x = x.to(next(model.parameters()).dtype)
            step(model, optimizer, x, self.rank, number)

    def models(self, make: Callable[[], Any]) -> list[Any]:
        """Two that are equal; other ranks have others at first."""
        torch.manual_seed(self.rank)
        model = make()
        return [model, copy.deepcopy(model)]

    def compare(self, case: str) -> tuple[float, list[float]]:
        """How far the two are apart in the end, and sums of the wrapped one."""
        make, step, options = CASES[case]
        ours, theirs = self.models(make)
        wrapped = self.group.wrap(ours, **options)
        ddp = nn.parallel.DistributedDataParallel(theirs, find_unused_parameters=True)
        self.train(wrapped, step)
        self.train(ddp, step)
        return distance(ours, theirs), sums(ours)

    def hooked(self) -> float:
        ours, theirs = map(nn.parallel.DistributedDataParallel, self.models(Shared))
        ours.register_comm_hook(None, moo.ddp_hook(self.group))
        self.train(ours, simply)
        self.train(theirs, simply)
        return distance(ours, theirs)

    def two(self) -> float:
        """An actor and a critic, with one loss."""

        def step(models: Any, optimizer: Any, x: Any) -> None:
            optimizer.zero_grad()
            (models[0](x).pow(2).mean() + models[1](x).mean()).backward()
            optimizer.step()

        pairs = [self.models(Shared), self.models(Shared)]
        ours = [self.group.wrap(pair[0]) for pair in pairs]
        theirs = [nn.parallel.DistributedDataParallel(pair[1]) for pair in pairs]
        for models in (ours, theirs):
            each = [p for model in models for p in model.parameters()]
            optimizer = torch.optim.SGD(each, 0.1)
            for x in self.data(STEPS):
                step(models, optimizer, x)
        return max(distance(*pair) for pair in pairs)

    def compressed(self) -> tuple[float, list[float]]:
        ours, theirs = self.models(Net)
        wrapped = self.group.wrap(ours, wire="bf16", bucket_bytes=1000)
        self.train(wrapped, simply)
        self.train(self.group.wrap(theirs), simply)
        return distance(ours, theirs), sums(ours)

    def interrupted(self) -> list[float]:
        """A backward that raises on one rank spoils no later one."""
        model = self.group.wrap(self.models(Net)[0], bucket_bytes=1000)
        x = next(self.data(1))
        backward(model, x, 0)
        y = model(x)
        if self.rank == 0:
            hook = model.first[0].weight.register_hook(raises)
            with contextlib.suppress(ZeroDivisionError):
                y.mean().backward()
            hook.remove()
        else:
            y.mean().backward()
        self.train(model, simply)
        return sums(model)

    def left(self) -> tuple[bool, bool]:
        """Whether gradients are the mean, and once it has left, its own."""
        module = self.models(Shared)[0]
        model, x = self.group.wrap(module), next(self.data(1))
        found = []
        for _ in range(2):
            model.zero_grad()
            backward(model, x, 0)
            given = [p.grad.clone() for p in module.parameters()]
            own = copy.deepcopy(module)
            own.zero_grad()
            backward(own, x, 0)
            pairs = zip(given, own.parameters(), strict=True)
            found.append(all(torch.equal(mean, p.grad) for mean, p in pairs))
            self.group.leave()
        return not found[0], found[1]

    def odd(self) -> list[str]:
        """The errors of wrong arguments."""
        module = nn.Linear(2, 2)
        frozen = nn.Linear(2, 2).requires_grad_(False)
        wrapped, other = self.group.wrap(module), nn.Linear(2, 2)
        changed = self.group.wrap(other)
        other.late = nn.Parameter(torch.ones(1))
        found = []
        for wrong in (
            lambda: self.group.wrap("module"),
            lambda: self.group.wrap(wrapped),
            lambda: self.group.wrap(frozen),
            lambda: self.group.wrap(module, wire="f8"),
            lambda: copy.deepcopy(wrapped),
            lambda: changed(torch.ones(1, 2)),
        ):
            with pytest.raises((TypeError, ValueError)) as caught:
                wrong()
            found.append(str(caught.value))
        assert wrapped.module is module and wrapped.in_features == 2
        assert list(wrapped.state_dict()) == ["weight", "bias"]
        wrapped.load_state_dict(module.state_dict())
        return found


def raises(gradient: Any) -> None:
    raise ZeroDivisionError


def distance(ours: Any, theirs: Any) -> float:
    """The largest difference of parameters, and of buffers."""
    pairs = zip(state(ours), state(theirs), strict=True)
    return max(float((a.float() - b.float()).abs().max()) for a, b in pairs)


def state(module: Any) -> list[Any]:
    return [t.detach() for t in (*module.parameters(), *module.buffers())]


def sums(module: Any) -> list[float]:
    return [float(p.detach().double().sum()) for p in module.parameters()]


@pytest.fixture
def trainers(group: Any, tmp_path: Path) -> Any:
    made = group(Trainer, RANKS)
    name = f"wrapped-{next(_numbers)}"
    ranks = made.join.call(name, str(tmp_path / "store")).get()
    assert sorted(ranks) == list(range(RANKS))
    return made


def test_parameters_are_those_of_distributed_data_parallel(trainers: Any) -> None:
    for case in CASES:
        (apart, ours), (apart_too, others) = trainers.compare.call(case).get()
        assert ours == others, case
        assert max(apart, apart_too) <= 1e-6, case


def test_several_modules_are_wrapped_and_ddp_takes_a_hook(trainers: Any) -> None:
    assert max(trainers.two.call().get()) <= 1e-6
    assert max(trainers.hooked.call().get()) <= 1e-6


def test_half_the_bytes_give_nearly_the_same_and_the_same_everywhere(
    trainers: Any,
) -> None:
    (apart, ours), (_, others) = trainers.compressed.call().get()
    assert ours == others
    assert 0 < apart < 0.02


def test_a_backward_that_raises_on_one_rank_spoils_no_later_one(trainers: Any) -> None:
    ours, others = trainers.interrupted.call().get()
    assert ours == others


def test_after_leaving_the_gradients_are_this_process_s_own(trainers: Any) -> None:
    assert trainers.left.call().get() == [(True, True)] * RANKS


def test_wrong_modules_are_refused_with_a_reason(trainers: Any) -> None:
    no_module, wrapped, frozen, wire, copied, late = trainers.odd.call().get()[0]
    assert "must be a torch.nn.Module" in no_module
    assert "wrapped already" in wrapped
    assert "requires a gradient" in frozen
    assert "None or 'bf16'" in wire
    assert "state_dict()" in copied
    assert "'late' is new" in late
