# SPDX-License-Identifier: MIT
"""`moo.Accumulator`: updates are those of one process with all samples, whoever dies,
joins or diverges."""

from __future__ import annotations

import itertools
import os
import signal
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import mooactor as moo
from mooactor.learner.work import TakenOut, Work
from tests.interruptions import Point, at_some_points

torch = pytest.importorskip("torch")
accumulator = pytest.importorskip("mooactor.learner.accumulator")
nn = torch.nn

_names = (f"accumulated-{n}" for n in itertools.count())


def network() -> Any:
    """With a parameter that nobody uses, which no optimizer may touch."""
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
    net[2].register_parameter("unused", nn.Parameter(torch.ones(3)))
    return net


def optimizer_of(model: Any) -> Any:
    return torch.optim.Adam(model.parameters(), 0.01, weight_decay=0.1)


def samples(seed: int, count: int) -> Any:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))


def loss_of(model: Any, x: Any) -> Any:
    return (model(x) - x.sum(1, keepdim=True)).square().mean()


class Learner:
    """A member. Its contribution to round n are `count` samples of seed (rank, n)."""

    def join(
        self,
        name: str,
        size: int,
        version: int = 0,
        on_loss: Any = "raise",
        late: bool = False,
        least: int = 0,
        **options: Any,
    ) -> int:
        """Args:
        late: a snapshot comes when the others have made three more steps.
        least: `min_size`, if that is not `size`, which all members wait for.
        """
        if late:
            accumulator._Arrival.done = lambda self: False
            self.has_little_room()
        self.group = moo.LearnerGroup(name, min_size=least or size, on_loss=on_loss)
        seen = 0 if least else size
        while seen < size:
            seen = self.group.size
            self.group.barrier()
        self.model = network()
        if self.group.rank or version:
            for parameter in self.model.parameters():
                nn.init.constant_(parameter, float(version))  # the others' count
        self.optimizer = optimizer_of(self.model)
        self.own = {"updates": version}
        self.accumulator = moo.Accumulator(
            self.group,
            self.model,
            self.optimizer,
            version=version,
            get_state=lambda: self.own,
            set_state=self._set_own,
            before_update=self._note,
            **options,
        )
        self.round = 0
        return self.group.rank

    def _set_own(self, own: Any) -> None:
        self.own.update(own)
        arriving: Any = self.accumulator._arriving
        self.late = len(arriving.kept)

    def _note(self) -> None:
        self.own["updates"] += 1

    def contribute(self, step: Any, count: int) -> None:
        if count:
            x = samples(100 * self.group.rank + self.round, count)
            step.add(loss_of(self.model, x), count=count)
        else:
            step.skip()
        self.round += 1

    def train(self, rounds: int, count: int) -> None:
        for step in self.accumulator:
            if not rounds:
                return
            rounds -= 1
            self.contribute(step, count)

    async def train_asyncio(self, rounds: int, count: int) -> None:
        async for step in self.accumulator:
            if not rounds:
                return
            rounds -= 1
            self.contribute(step, count)

    def train_polling(self, rounds: int, count: int) -> int:
        """How often nothing was to be done yet."""
        idle = 0
        while True:
            step = self.accumulator.poll()
            if step is None:
                idle += 1
            elif not rounds:
                return idle
            else:
                rounds -= 1
                self.contribute(step, count)

    def train_tokens(self, count: int) -> None:
        for step in self.accumulator:
            if step.version:
                return
            step.add(loss_of(self.model, samples(0, 4)), count=count)

    def grow(self) -> None:
        self.accumulator.model.late = nn.Parameter(torch.ones(1))

    def train_to(
        self, version: int, present: Sequence[int] = (), gone: Sequence[int] = ()
    ) -> list[str]:
        """Train until `version`, and until these processes are members, all of them
        with the state, or are not. The warnings meanwhile."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for step in self.accumulator:
                if step.version >= version and self._are_there(present, gone):
                    break
                self.contribute(step, 4)
        return [str(warning.message) for warning in said]

    async def train_to_asyncio(self, version: int, present: Sequence[int]) -> None:
        async for step in self.accumulator:
            if step.version >= version and self._are_there(present):
                break
            self.contribute(step, 4)

    def train_to_polling(self, version: int, present: Sequence[int]) -> None:
        while (step := self.accumulator.poll()) is None or (
            step.version < version or not self._are_there(present)
        ):
            if step is not None:
                self.contribute(step, 4)

    def _are_there(self, present: Sequence[int], gone: Sequence[int] = ()) -> bool:
        pids = {member.pid for member in self.group.members()}
        as_wanted = pids.issuperset(present) and pids.isdisjoint(gone)
        return as_wanted and not self.accumulator.stats()["fetching"]

    def has(self, version: int) -> None:
        """As if a checkpoint had been loaded: parameters of this value."""
        self.accumulator.version = version
        for parameter in self.model.parameters():
            nn.init.constant_(parameter, float(version))

    def dies_in(self, name: str) -> None:
        """Killed when a method of its accumulator is called."""
        pid = os.getpid()
        setattr(self.accumulator, name, lambda *_: os.kill(pid, signal.SIGKILL))

    def is_taken_out(self) -> None:
        """Its next wait ends as if its host were out of the group."""
        conclude = Work._conclude
        accumulator._AWAY_S = 0.0

        def be_out(work: Any, outcome: Any) -> None:
            Work._conclude = conclude  # type: ignore[method-assign]
            raise TakenOut("this host was taken out of the group")

        Work._conclude = be_out  # type: ignore[method-assign]

    def loses_a_snapshot(self) -> None:
        wait = accumulator._Arrival.wait

        def wait_once(arrival: Any) -> None:
            accumulator._Arrival.wait = wait
            arrival.is_lost = True

        accumulator._Arrival.wait = wait_once

    def has_little_room(self) -> None:
        accumulator._KEPT_BYTES = 700  # a gradient has 200

    def waits_briefly(self) -> None:
        """For a snapshot, when the others wait, too."""
        within = accumulator._Arrival.within
        accumulator._Arrival.within = lambda self, seconds: within(self, 0.2)

    def offers_late(self, other: Any) -> None:
        """The first snapshot takes very long on its way."""
        put = accumulator.put

        def put_once(value: Any) -> Any:
            accumulator.put = put
            return other.comes_late.remote()

        accumulator.put = put_once

    def comes_late(self) -> None:
        time.sleep(600)  # until it is killed

    def diverge(self, exponent: bool) -> None:
        with torch.no_grad():
            if exponent:
                self.optimizer.state_dict()["state"][0]["exp_avg"][0, 0] += 1
            else:
                self.model[2].bias[0] += 1e-6

    def state(self) -> tuple[list[float], dict[str, int], dict[str, int]]:
        values = [float(p.detach().double().sum()) for p in self.model.parameters()]
        return values, self.accumulator.stats(), self.own

    def made_up_for(self) -> int:
        """The steps that it made at once when it got the state."""
        return self.late

    def offers(self) -> bool:
        return self.accumulator._offer is not None

    def pid(self) -> int:
        return os.getpid()


def alone(rows: list[list[tuple[int, int]]]) -> list[float]:
    """One process with all samples: of each update the (seed, count) of all members."""
    model = network()
    optimizer = optimizer_of(model)
    for row in rows:
        optimizer.zero_grad()
        loss_of(model, torch.cat([samples(*one) for one in row])).backward()
        optimizer.step()
    return [float(p.detach().double().sum()) for p in model.parameters()]


@pytest.fixture
def learners(group: Any) -> Callable[..., Any]:
    def make(size: int, name: str = "", **options: Any) -> Any:
        made = group(Learner, size)
        ranks = made.call(Learner.join, name or next(_names), size, **options).get()
        order = sorted(range(size), key=lambda i: ranks[i])
        return moo.Group([made[i] for i in order])

    return make


def equal(values: list[float], others: list[float]) -> bool:
    return values == pytest.approx(others, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("how", ["train", "train_asyncio", "train_polling"])
def test_an_update_is_that_of_all_samples_weighted_by_their_number(
    learners: Any, how: str
) -> None:
    both = learners(2, batch=12)
    both.call_each(getattr(Learner, how), [(4, 4), (4, 2)]).get()
    (values, stats, own), (others, _, _) = both.call(Learner.state).get()
    # Two rounds of 6 samples make one update.
    rows = [[(n, 4), (100 + n, 2), (n + 1, 4), (101 + n, 2)] for n in (0, 2)]
    assert values == others
    assert equal(values, alone(rows))
    assert (stats["version"], stats["updates"], stats["samples"]) == (2, 2, 24)
    assert own == {"updates": 2}


def test_exact_batches_are_of_whole_contributions(learners: Any) -> None:
    both = learners(2, batch=5, exact=True)
    both.call_each(Learner.train, [(2, 3), (2, 2)]).get()
    first = both.call(Learner.state).get()
    assert first[0][0] == first[1][0]
    assert first[0][1]["samples"] == 10
    assert equal(first[0][0], alone([[(0, 3), (100, 2)], [(1, 3), (101, 2)]]))
    both.call_each(Learner.train, [(1, 4), (1, 3)]).get()  # neither 4 + 3, nor 4, is 5
    both.call_each(Learner.train, [(1, 0), (1, 2)]).get()  # but 3 + 2 is
    after = both.call(Learner.state).get()
    assert after[0][1]["samples"] == 15
    with pytest.raises(ValueError, match="exactly 5"):
        both.call_each(Learner.train, [(1, 6), (1, 6)]).get()


def test_exact_batches_keep_up_with_large_contributions_and_with_many_small_ones(
    learners: Any,
) -> None:
    both = learners(2, batch=6, exact=True)
    both.call(Learner.train, 5, 6).get()
    large = both.call(Learner.state).get()
    rows = [[(100 * rank + n, 6)] for n in range(5) for rank in (0, 1)]
    assert large[0][0] == large[1][0]
    # All of a round are used in it. Those of rank 1 are of one update before.
    assert large[0][1]["updates"] == len(rows)
    both = learners(2, batch=40, exact=True)
    both.call(Learner.train, 20, 1).get()  # more than a round can choose from
    small = both.call(Learner.state).get()
    rows = [[(100 * rank + n, 1) for n in range(20) for rank in (0, 1)]]
    assert small[0][0] == small[1][0]
    assert equal(small[0][0], alone(rows))


def test_a_member_that_skips_takes_part_and_stale_gradients_are_dropped(
    learners: Any,
) -> None:
    both = learners(2, batch=4, max_staleness=0)
    both.call_each(Learner.train, [(3, 4), (3, 0)]).get()
    (values, stats, _), (others, _, _) = both.call(Learner.state).get()
    assert values == others
    assert equal(values, alone([[(n, 4)] for n in range(3)]))
    assert (stats["updates"], stats["stale"]) == (3, 0)


@pytest.mark.parametrize("slow", [False, True])
def test_a_newcomer_gets_all_state_and_a_checkpoint_that_is_newer_wins(
    learners: Any, spawn: Any, slow: bool
) -> None:
    name, how = next(_names), {"batch": 8, "check_every": 2}
    members = learners(2, name, **how)
    members.call(Learner.train, 3, 4).get()
    late = spawn(Learner)
    going = members.call(Learner.train_to, 40, [late.pid()])
    joined = late.join.remote(name, 2, late=slow, **how)
    assert joined.get() == 2
    late.train_to(40)
    assert going.get() == [[], []]  # no warning: it is not compared without the state
    states = [*members.call(Learner.state).get(), late.state()]
    values, stats, own = states[0]
    assert all(state[0] == values for state in states)
    assert stats["version"] >= 40 and own == {"updates": stats["version"]}
    assert [state[1]["received"] for state in states] == [0, 1, 1]
    assert states[2][2] == own  # the program's own state came along, and was counted on
    assert not slow or late.made_up_for() == 3
    assert not any(members.call(Learner.offers).get())

    newer = spawn(Learner)
    joined = newer.join.remote(name, 2, version=10**6, **how)
    everybody = moo.Group([*members, late])
    going = everybody.call(Learner.train_to, 10**6 + 3)
    joined.get()
    newer.train_to(10**6 + 3)
    going.get()
    states = [*everybody.call(Learner.state).get(), newer.state()]
    assert all(state[0] == states[3][0] for state in states)
    assert states[0][0][0] > 10**5  # its weights were the checkpoint's


@pytest.mark.parametrize("how", ["train_to", "train_to_asyncio", "train_to_polling"])
def test_a_newcomer_whose_state_does_not_come_gives_up_and_the_others_go_on(
    learners: Any, spawn: Any, how: str
) -> None:
    name = next(_names)
    (one,) = learners(1, name, batch=4)
    late, other = spawn(Learner), spawn(Learner)
    late.has_little_room()
    late.waits_briefly()
    one.offers_late(other)
    going = one.train_to.remote(20, [late.pid()])
    late.join(name, 1, batch=4)
    with pytest.raises(moo.CallTimeout, match="waited for it for 30.0 s"):
        getattr(late, how).remote(20, []).get(timeout=60)
    moo.kill(other)
    late.join(name, 1, batch=4)
    late.train_to(20)
    going.get(timeout=60)
    assert late.state()[0] == one.state()[0]


def test_a_newcomer_looks_for_messages_to_know_whether_its_state_is_here() -> None:
    class Unheard:  # until somebody looks
        here = False

        def want(self) -> None:
            pass

        def done(self) -> bool:
            self.here = True
            return True

        def is_here(self) -> bool:
            return self.here

    assert accumulator._Arrival(Unheard(), version=1, room=8).is_due()


def test_gradients_that_are_kept_for_a_newcomer_are_bounded_by_their_size() -> None:
    assert [accumulator._room(n) for n in (1, 1 << 20, 100 << 20, 1 << 30)] == [
        *(1024, 256, 2, 1)
    ]


@pytest.mark.parametrize("on_loss", ["raise", "finish"])
def test_deaths_and_newcomers_leave_all_members_equal(
    learners: Any, spawn: Any, on_loss: str
) -> None:
    name, how = next(_names), {"batch": 8, "on_loss": on_loss}
    members = list(learners(3, name, **how))
    for turn in range(3):
        goal = 30 * (turn + 1)
        late, victim = spawn(Learner), members[1]
        change = [late.pid()], [victim.pid()]
        going = [member.train_to.remote(goal, *change) for member in members]
        joined = late.join.remote(name, 3, **how)
        moo.kill(members.pop(1))
        assert isinstance(going.pop(1).exception(timeout=60), moo.ActorDied)
        joined.get(timeout=60)
        late.train_to.remote(goal, *change).get(timeout=60)
        moo.get(going, timeout=60)
        members.append(late)
        states = [member.state() for member in members]
        assert all(state[0] == states[0][0] for state in states)
        (version,) = {state[1]["version"] for state in states}
        assert version >= goal
        assert {state[2]["updates"] for state in states} == {version}


@pytest.mark.parametrize("on_loss", ["raise", "finish"])
@pytest.mark.parametrize("exact", [False, True])
def test_an_update_never_has_less_than_the_batch(
    learners: Any, on_loss: str, exact: bool
) -> None:
    both = learners(2, least=1, on_loss=on_loss, batch=8, exact=exact)
    both[1].dies_in("_keep_offer")  # when it has counted, and before it adds up
    going = [one.train.remote(2, 4) for one in both]
    assert isinstance(going[1].exception(timeout=60), moo.ActorDied)
    going[0].get(timeout=60)
    values, stats, _ = both[0].state()
    assert (stats["rounds"], stats["updates"], stats["samples"]) == (2, 1, 8)
    assert equal(values, alone([[(0, 4), (1, 4)]]))


def test_the_newest_state_is_offered_by_the_member_that_has_it(learners: Any) -> None:
    three = learners(3, least=1, on_loss="finish", batch=8)
    three[1].has(version=7)
    three[0].dies_in("_first")  # and ranks move while the others look for that one
    going = [one.train.remote(0, 4) for one in three]
    assert isinstance(going[0].exception(timeout=60), moo.ActorDied)
    moo.get(going[1:], timeout=60)
    (values, _, _), (others, stats, _) = [one.state() for one in three[1:]]
    assert values == others and values[1] == 7 * 5  # a bias of five elements
    assert (stats["version"], stats["received"]) == (7, 1)


@pytest.mark.parametrize("exact", [False, True])
def test_a_snapshot_that_is_lost_on_its_way_is_asked_for_again(
    learners: Any, exact: bool
) -> None:
    both = learners(2, batch=8, exact=exact)
    both[0].has(version=7)
    both[1].loses_a_snapshot()
    both.call(Learner.train_to, 12).get()
    (values, _, _), (others, stats, _) = both.call(Learner.state).get()
    assert values == others and stats["received"] == 1


@pytest.mark.parametrize("how", ["train_to", "train_to_asyncio", "train_to_polling"])
def test_a_member_that_was_taken_out_comes_back_as_a_newcomer(
    learners: Any, how: str
) -> None:
    three = learners(3, least=1, batch=8)
    pids = three.call(Learner.pid).get()
    three[0].is_taken_out()
    going = [getattr(one, how).remote(40, pids) for one in three]
    moo.get(going, timeout=60)
    states = three.call(Learner.state).get()
    assert all(values == states[0][0] for values, _, _ in states)
    (version,) = {stats["version"] for _, stats, _ in states}
    assert version >= 40
    assert all(own == {"updates": version} for _, _, own in states)
    assert states[0][1]["received"] == 1  # and none when it was rank 0


def test_a_loop_that_was_interrupted_anywhere_goes_on_in_the_next_one(
    spawn: Any,
) -> None:
    name, other, here = next(_names), spawn(Learner), Learner()
    joined = other.join.remote(name, 2, least=1, batch=8)
    here.join(name, 2, least=1, batch=8)
    joined.get()

    def run(point: Point) -> None:
        goal = here.accumulator.version + 9
        going = other.train_to.remote(goal, [here.pid()])
        point.interrupt(lambda: here.train(2, 4))
        here.train_to(goal)
        going.get(timeout=60)
        assert here.state()[0] == other.state()[0], point.where

    with here.group:
        at_some_points(run)
        stats = here.accumulator.stats()
    assert stats["received"] > 1  # it was in the middle of an update


def test_a_member_that_diverges_is_named_and_healed(learners: Any) -> None:
    three = learners(3, batch=12, check_every=5)
    three.call(Learner.train_to, 5).get()
    for exponent in (False, True):
        three[1].diverge(exponent)
        version = three[0].state()[1]["version"]
        said = three.call(Learner.train_to, version + 5).get()
        healed = "exp_avg of parameter 0" if exponent else "2.bias"
        for warnings_of_one in said:
            assert any(healed in text and "rank 1" in text for text in warnings_of_one)
        states = three.call(Learner.state).get()
        assert states[0][0] == states[1][0] == states[2][0]
        assert states[1][1]["healed"] and not states[0][1]["healed"]


def test_what_makes_no_sense_is_refused(learners: Any) -> None:
    (one,) = learners(1, batch=4)
    for wrong, why in (
        ({"batch": 0}, "batch=0 must be"),
        ({"batch": 4, "check_every": 0}, "check_every=0 must be"),
        ({"batch": 4, "exact": 1}, "exact=1 must be"),
    ):
        with pytest.raises((TypeError, ValueError), match=why):
            one.join(next(_names), 1, **wrong)
    one.grow()
    with pytest.raises(ValueError, match="'late' is new"):
        one.train(1, 4)


def test_numbers_of_samples_need_not_fit_into_the_precision_of_gradients(
    learners: Any,
) -> None:
    both = learners(2, batch=(1 << 25) + 2)
    both.call(Learner.train_tokens, (1 << 24) + 1).get()
    assert [one.state()[1]["updates"] for one in both] == [1, 1]
