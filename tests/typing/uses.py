# SPDX-License-Identifier: MIT
"""Right uses; a type checker must infer exactly these types and report nothing.

Checked, never run: see test_typing.py.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_type

import mooactor as moo
from tests.typing.model import Batch, Learner, Server

batch = Batch([1.0])

# the class is still an ordinary class
local = Learner(1e-4)
assert_type(local, Learner)
assert_type(local.version(), int)
assert_type(local.step(batch), float)

# spawning
h = moo.spawn(Learner, 1e-4)
assert_type(h, Learner)
assert_type(moo.spawn(Learner, lr=1e-4), Learner)
assert_type(moo.spawn(Server), Server)
supervised = moo.on(Learner, name="learner", restart=moo.Restart(max=3, within=60))
assert_type(supervised.spawn(1e-4), Learner)

# calls of described methods
assert_type(h.step(batch), float)
assert_type(h.step(batch, scale=2.0), float)
ref = h.step.remote(batch)
assert_type(ref, moo.Ref[float])
assert_type(ref.get(timeout=5), float)
assert_type(ref.result(), float)
assert_type(ref.done(), bool)
assert_type(ref.cancel(), bool)
assert_type(h.step.tell(batch), None)
assert_type(h.step.options(timeout=5, retries=2, priority=1).remote(batch).get(), float)
assert_type(h.weights.remote(), moo.Ref[dict[str, float]])

# calls of bare methods
assert_type(h.version(), int)
assert_type(moo.submit(h.version), moo.Ref[int])
assert_type(moo.submit(h.step, batch, scale=0.5), moo.Ref[float])
assert_type(moo.submit(h.evaluate, 30), moo.Ref[list[float]])

# calls with several results
x, y = h.step.options(num_returns=2, timeout=5).remote(batch)
assert_type(x, moo.Ref[Any])
assert_type(h.step.options(stream_window=4)(batch), float)

# generators
assert_type(h.rollout(10), Iterator[Batch])
for sample in h.rollout(10):
    assert_type(sample, Batch)
assert_type(h.events(), AsyncIterator[str])
assert_type(h.frames(3), Iterator[Batch])
assert_type(h.frames.options(stream_window=8)(3), Iterator[Batch])


async def awaiting() -> None:
    """The same in a coroutine."""
    assert_type(await h.weights(), dict[str, float])
    assert_type(await h.evaluate(30), list[float])
    assert_type(await h.step.remote(batch), float)
    async for event in h.events():
        assert_type(event, str)
    async for change in moo.monitor(h):
        assert_type(change, moo.Event)


# refs
refs = [h.step.remote(batch), h.step.remote(batch)]
assert_type(moo.get(refs), list[float])
assert_type(moo.get(ref), float)
done, rest = moo.wait(refs, num_returns=2, timeout=1.0)
assert_type(done, list[moo.Ref[float]])
assert_type(rest, list[moo.Ref[float]])
for finished in moo.as_completed(refs):
    assert_type(finished, moo.Ref[float])
assert_type(moo.put({"lr": 1.0}), moo.Ref[dict[str, float]])

# groups
g = moo.on(Learner, num_cpus=2).group(8, 1e-4)
assert_type(g, moo.Group[Learner])
assert_type(len(g), int)
assert_type(g[0], Learner)
assert_type(g[:4], moo.Group[Learner])
assert_type(g[0].step(batch), float)
of_group: moo.Ref[list[float]] = g.call(Learner.step, batch)
assert_type(g.call(Learner.step, batch, scale=2.0).get(), list[float])
assert_type(g.call(Learner.weights).get(), list[dict[str, float]])
assert_type(g.call(Learner.version).get(), list[int])
assert_type(g[:4].tell(Learner.step, batch), None)
for member in g:
    assert_type(member, Learner)
for loss in g.map(Learner.step, [batch, batch], ordered=False, in_flight=3):
    assert_type(loss, float)
assert_type(list(g.map(Learner.step, (b for b in [batch]), retries=1)), list[float])
assert_type(list(g.map(Learner.evaluate, range(3))), list[list[float]])
assert_type(list(g.map(Learner.step, [moo.put(batch)])), list[float])

# supervisors
learner = moo.child(Learner, 1e-4)
assert_type(learner, moo.Child[Learner])
named = moo.on(Learner, name="learner").child(lr=1e-4).options(restart="never")
assert_type(named, moo.Child[Learner])
inner = moo.on(moo.Supervisor).child([named], max=5)
team = moo.spawn(moo.Supervisor, [learner, inner], strategy="one_for_all", within=60)
assert_type(team, moo.Supervisor)
assert_type(team.child(learner), Learner)
assert_type(team.child(inner).child(named), Learner)
assert_type(team.child("learner"), Any)
assert_type(team.add(moo.child(Server)), Server)
assert_type(moo.link(team.child(learner), h), None)
