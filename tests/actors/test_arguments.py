# SPDX-License-Identifier: MIT
"""Wrong arguments of public functions: one sentence each, which names the argument."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.actors.counter import Counter

T, V = TypeError, ValueError
NAMES: dict[str, Any] = {"moo": moo, "Counter": Counter, "np": np, "math": math}

# A call's text, the error's type, and how its sentence begins: with the argument.
CASES: list[tuple[str, type[Exception], str]] = [
    ("moo.get(3)", T, "refs=3"),
    ("moo.get([1])", T, "refs[0]=1"),
    ("moo.get([ref], timeout='x')", T, "timeout='x'"),
    ("moo.get([ref], timeout=math.nan)", V, "timeout=nan"),
    ("moo.wait(ref)", T, "refs=<Ref Counter.add done>"),
    ("moo.wait([ref], num_returns=2)", V, "num_returns=2"),
    ("moo.wait([ref], num_returns=1.0)", T, "num_returns=1.0"),
    ("moo.wait([ref], timeout=True)", T, "timeout=True"),
    ("moo.wait([ref], fetch=1)", T, "fetch=1"),
    ("moo.prefetch([ref, 1])", T, "refs[1]=1"),
    ("moo.as_completed([handle])", T, "refs[0]=<Handle Counter"),
    ("moo.submit(Counter.add, 1)", T, "function=<function Counter.add"),
    ("moo.lookup(b'x')", T, "name=b'x'"),
    ("moo.lookup('nobody', timeout='3')", T, "timeout='3'"),
    ("moo.stop(3)", T, "handle=3"),
    ("moo.stop(handle, timeout=math.nan)", V, "timeout=nan"),
    ("moo.kill(group)", T, "handle=<Group of 2"),
    ("moo.monitor(None)", T, "handle=None"),
    ("moo.link(3, handle)", T, "a=3"),
    ("moo.unlink(handle, group)", T, "b=<Group of 2"),
    ("moo.child(3)", T, "an actor is made of a class, not of 3"),
    ("moo.child(Counter).options(restart='on-failure')", V, "restart='on-failure'"),
    ("moo.child(Counter).options(grace=-1)", V, "grace=-1"),
    ("moo.Supervisor(moo.child(Counter))", T, "children=<Child Counter>"),
    ("moo.Supervisor([Counter])", T, "children[0]=<class"),
    ("moo.Supervisor(strategy='all')", V, "strategy='all'"),
    ("moo.Supervisor(max=1.5)", T, "max=1.5"),
    ("moo.Supervisor(jitter=math.inf)", V, "jitter=inf"),
    ("moo.Supervisor(backoff=10**400)", V, "backoff=1000"),
    ("moo.Supervisor(in_order=1)", T, "in_order=1"),
    ("moo.Restart(max=-1)", V, "Restart(max=-1"),
    ("moo.Restart(within=0)", V, "Restart(max=3, within=0"),
    ("moo.Restart(backoff=math.nan)", V, "Restart(backoff=nan)"),
    ("moo.Restart(snapshot_every=0.5)", T, "Restart(snapshot_every=0.5)"),
    ("slow.get('x')", T, "timeout='x'"),
    ("ref.add_done_callback(3)", T, "callback=3"),
    ("add.options(timeuot=1)", T, ".options() has no option 'timeuot' (did you mean"),
    ("handle.add.options(timeout=0)", V, "timeout=0"),
    ("handle.add.options(timeout=-(10**400))", V, "timeout=-1000"),
    ("handle.add.options(retries=-1)", V, "retries=-1"),
    ("handle.add.options(retries=1.5)", T, "retries=1.5"),
    ("handle.add.options(priority=300)", V, "priority=300"),
    ("handle.up_to.options(stream_window=0)", V, "stream_window=0"),
    ("handle.up_to.options(num_returns=2)", T, "Counter.up_to is a generator"),
    ("handle.add.options(num_returns=0)", V, "num_returns=0"),
    ("group.call('add')", T, "function='add'"),
    ("group.call_each(Counter.add, 3)", T, "arguments=3"),
    ("group.call_each(Counter.add, [1, 2])", T, "arguments[0]=1"),
    ("group.map(Counter.add, 3)", T, "items=3"),
    ("group.map(Counter.add, [], in_flight=0)", V, "in_flight=0"),
    ("group.map(Counter.add, [], ordered='no')", T, "ordered='no'"),
    ("moo.Group([3])", T, "handles[0]=3"),
    ("moo.actor(max_concurrency=1.5)", T, "max_concurrency=1.5"),
    ("moo.actor(max_pending='x')", T, "max_pending='x'"),
    ("moo.actor(overflow='drop')", V, "overflow='drop'"),
    ("moo.method(timeout=-1)", V, "timeout=-1"),
    ("moo.method(read_only='x')", T, "read_only='x'"),
    ("moo.method(3)", T, "function=3"),
    ("moo.on(Counter, name='')", V, "name=''"),
    ("moo.on(Counter, name=3)", T, "name=3"),
    ("moo.on(Counter, num_cpus=math.inf)", V, "num_cpus=inf"),
    ("moo.on(Counter, num_gpus=1.5)", V, "num_gpus=1.5"),
    ("moo.on(Counter, memory='1')", T, "memory='1'"),
    ("moo.on(Counter, detached='yes')", T, "detached='yes'"),
    ("moo.on(Counter, restart=3)", T, "restart=3"),
    ("moo.on(Counter, env={'A': 3})", T, "env['A']"),
    ("moo.on(Counter, env={'A': 'a\\0b'})", V, "env['A']"),
    ("moo.on(Counter, env={'OMP_NUM_THREADS': '0'})", V, "env['OMP_NUM_THREADS']"),
    ("moo.on(Counter).group(-1)", V, "n=-1"),
    ("moo.init(memory=1000)", V, "memory=1000"),
    ("moo.init(memory=8e9 + 0.5)", V, "memory=8000000000.5"),
    ("moo.init(memory=math.nan)", V, "memory=nan"),
    ("moo.init(memory='1 GB')", T, "memory='1 GB'"),
    ("moo.init(seed=-1)", V, "seed=-1"),
    ("moo.init(debug=1)", T, "debug=1"),
    ("moo.init(sigusr1='yes')", T, "sigusr1='yes'"),
    ("moo.init(preload='numpy')", T, "preload='numpy'"),
    ("moo.init(transport=3)", T, "transport=3"),
    ("moo.init(3)", T, "address=3"),
    ("moo.empty((2, -1))", V, "shape=(2, -1)"),
    ("moo.empty(3, 'x')", T, "dtype='x'"),
    ("moo.empty(3, like='jax')", V, "like='jax'"),
    ("moo.LearnerGroup(3)", T, "name=3"),
    ("moo.LearnerGroup('x', min_size=1025)", V, "min_size=1025"),
    ("moo.LearnerGroup('x', timeout=math.inf)", V, "timeout=inf"),
    ("moo.ddp_hook(group)", T, "group=<Group of 2"),
    ("learners.allreduce(np.ones(3), op='maen')", V, "op='maen'"),
    ("learners.broadcast(np.ones(3), root='first')", T, "root='first'"),
    ("learners.barrier_work.wait('x')", T, "timeout='x'"),
]
WITHOUT_ARGUMENTS = {"actors", "current", "hosts", "shutdown", "stats"}
ANY_VALUE = {"move", "put", "spawn"}  # spawn's own is a class; see test_plain_classes


@pytest.fixture(scope="module")
def names(session: Any) -> Iterator[dict[str, Any]]:
    handle = moo.spawn(Counter)
    group = moo.on(Counter).group(2)
    group.call(Counter.add, 0).get()  # connections are no leak of a test's
    ref = handle.add.remote()
    ref.get()
    slow = handle.until_cancelled.remote()
    learners = moo.LearnerGroup("arguments", min_size=1)
    learners.barrier_work = learners.allreduce(np.ones(3))  # type: ignore[attr-defined]
    made = {
        "handle": handle,
        "add": handle.add,
        "group": group,
        "ref": ref,
        "slow": slow,
    }
    yield {**NAMES, **made, "learners": learners}
    learners.leave()
    for actor in (handle, *group):
        moo.kill(actor)


def test_a_wrong_argument_is_named(names: dict[str, Any]) -> None:
    for code, kind, begins in CASES:
        with pytest.raises(kind) as caught:
            eval(code, names)
        message = str(caught.value)
        assert message.startswith(begins), (code, message)
        assert "\n" not in message and len(message) < 240


def test_every_public_function_has_its_row() -> None:
    tried = {found for code, *_ in CASES for found in re.findall(r"^moo\.(\w+)", code)}
    functions = {n for n in moo.__all__ if inspect.isfunction(getattr(moo, n))}
    assert functions - tried - WITHOUT_ARGUMENTS - ANY_VALUE == set()


def test_numbers_of_numpy_are_numbers(names: dict[str, Any]) -> None:
    ref = names["ref"]
    done, _ = moo.wait([ref], num_returns=np.int64(1), timeout=np.float32(1))
    assert done == [ref]
    options = names["group"][0].add.options(timeout=np.float64(5), retries=np.uint8(1))
    assert options(0) == 0


def test_a_time_out_may_be_over_already(names: dict[str, Any]) -> None:
    with pytest.raises(moo.CallTimeout):
        moo.get([names["slow"]], timeout=-1)


@pytest.mark.parametrize("timeout", [4e6, 1e9, 1e300, math.inf])
def test_a_timeout_may_be_longer_than_clocks_of_the_system_count(
    names: dict[str, Any], timeout: float
) -> None:
    add = names["group"][0].add.options(timeout=timeout)
    assert add(0) == 0
    assert moo.get([add.remote(0), names["ref"]], timeout=timeout) == [0, 1]
    lasting = names["group"][0].sleep.options(timeout=timeout).remote(0.1)
    assert moo.wait([lasting], timeout=timeout)[0] == [lasting]
