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

# what is written, the error's type, and how its sentence begins
CASES: list[tuple[str, type[Exception], str]] = [
    ("moo.get(3)", T, "refs=3 must be a Ref or a list of Refs"),
    ("moo.get([1])", T, "refs[0]=1 must be a Ref"),
    ("moo.get([ref], timeout='x')", T, "timeout='x' must be a number of seconds"),
    ("moo.get([ref], timeout=math.nan)", V, "timeout=nan must be"),
    ("moo.get(slow, timeout='x')", T, "timeout='x' must be"),
    ("moo.wait(ref)", T, "refs=<Ref Counter.add done> must be a list of Refs"),
    ("moo.wait([ref, None])", T, "refs[1]=None must be a Ref"),
    ("moo.wait([ref], num_returns=2)", V, "num_returns=2 must be"),
    ("moo.wait([ref], num_returns=1.0)", T, "num_returns=1.0 must be"),
    ("moo.wait([ref], timeout=True)", T, "timeout=True must be"),
    ("moo.wait([ref], fetch=1)", T, "fetch=1 must be True or False"),
    ("moo.prefetch([ref, 1])", T, "refs[1]=1 must be a Ref"),
    ("moo.as_completed(ref)", T, "refs=<Ref Counter.add done> must be a list"),
    ("moo.as_completed([handle])", T, "refs[0]=<Handle Counter"),
    ("moo.as_completed([ref], timeout='x')", T, "timeout='x' must be"),
    ("moo.submit(Counter.add, 1)", T, "function=<function Counter.add"),
    ("moo.stop(3)", T, "handle=3 must be a handle"),
    ("moo.stop(handle, timeout='x')", T, "timeout='x' must be"),
    ("moo.kill(group)", T, "handle=<Group of 2"),
    ("moo.monitor(None)", T, "handle=None must be a handle"),
    ("moo.link(3, handle)", T, "a=3 must be a handle"),
    ("moo.unlink(handle, group)", T, "b=<Group of 2"),
    ("moo.child(3)", T, "an actor is made of a class, not of 3"),
    ("moo.child(Counter).options(restart='on-failure')", V, "restart='on-failure'"),
    ("moo.child(Counter).options(grace=-1)", V, "grace=-1 must be"),
    ("moo.Supervisor(moo.child(Counter))", T, "children=<Child Counter> must be a"),
    ("moo.Supervisor([Counter])", T, "children[0]=<class"),
    ("moo.Supervisor(strategy='all')", V, "strategy='all' must be 'one_for_one', "),
    ("moo.Supervisor(max=1.5)", T, "max=1.5 must be a number of restarts"),
    ("moo.Supervisor(within='1 min')", T, "within='1 min' must be a number of sec"),
    ("moo.Supervisor(jitter=math.inf)", V, "jitter=inf must be between 0 and 1e+09"),
    ("moo.Supervisor(backoff=10**400)", V, "backoff=1000"),
    ("handle.add.options(timeout=-(10**400))", V, "timeout=-1000"),
    ("moo.Supervisor(in_order=1)", T, "in_order=1 must be True or False"),
    ("slow.get('x')", T, "timeout='x' must be"),
    ("slow.exception('x')", T, "timeout='x' must be"),
    ("ref.add_done_callback(3)", T, "callback=3 must be a function"),
    ("add.options(timeuot=1)", T, ".options() has no option 'timeuot' (did you mean"),
    ("handle.add.options(patience=1)", T, ".options() has no option 'patience'; its"),
    ("handle.add.options(timeout=-1)", V, "timeout=-1 must be a number of seconds a"),
    ("handle.add.options(timeout=0)", V, "timeout=0 must be"),
    ("handle.add.options(timeout='1')", T, "timeout='1' must be"),
    ("handle.add.options(retries=-1)", V, "retries=-1 must be"),
    ("handle.add.options(retries=1.5)", T, "retries=1.5 must be"),
    ("handle.add.options(priority=300)", V, "priority=300 must be"),
    ("handle.add.options(priority='high')", T, "priority='high' must be"),
    ("handle.up_to.options(stream_window=0)", V, "stream_window=0 must be"),
    ("handle.up_to.options(num_returns=2)", T, "Counter.up_to is a generator"),
    ("handle.add.options(num_returns=0)", V, "num_returns=0 must be"),
    ("handle.add.options(num_returns='2')", T, "num_returns='2' must be"),
    ("group.call('add')", T, "function='add' must be a method"),
    ("group.call(Counter)", T, "function=<class"),
    ("group.tell(3)", T, "function=3 must be a method"),
    ("group.call_each(Counter.add, 3)", T, "arguments=3 must be a list"),
    ("group.call_each(Counter.add, [1, 2])", T, "arguments[0]=1 must be a tuple"),
    ("moo.Group(3)", T, "handles=3 must be a list of handles"),
    ("moo.Group([3])", T, "handles[0]=3 must be a handle"),
    ("moo.actor(max_concurrency=1.5)", T, "max_concurrency=1.5 must be"),
    ("moo.actor(max_concurrency=0)", V, "max_concurrency=0 must be"),
    ("moo.actor(max_pending='x')", T, "max_pending='x' must be"),
    ("moo.actor(overflow='drop')", V, "overflow='drop' must be 'wait' or 'raise'"),
    ("moo.method(timeout=-1)", V, "timeout=-1 must be"),
    ("moo.method(priority=200)", V, "priority=200 must be"),
    ("moo.method(stream_window=0)", V, "stream_window=0 must be"),
    ("moo.method(read_only='x')", T, "read_only='x' must be True or False"),
    ("moo.method(3)", T, "function=3 must be a function"),
    ("moo.init(memory=1000)", V, "memory=1000 must be a whole number of bytes, at"),
    ("moo.init(memory=1e3)", V, "memory=1000 must be a whole number of bytes, at"),
    ("moo.init(memory=8e9 + 0.5)", V, "memory=8000000000.5 must be a whole number of"),
    ("moo.init(memory=math.inf)", V, "memory=inf must be a whole number of bytes"),
    ("moo.init(memory=-math.inf)", V, "memory=-inf must be a whole number of bytes"),
    ("moo.init(memory=math.nan)", V, "memory=nan must be a whole number of bytes"),
    ("moo.init(memory=True)", T, "memory=True must be a whole number of bytes"),
    ("moo.init(memory='1 GB')", T, "memory='1 GB' must be a whole number of bytes"),
    ("moo.init(debug=1)", T, "debug=1 must be True or False"),
    ("moo.init(logs='no')", T, "logs='no' must be True or False"),
    ("moo.init(preload='numpy')", T, "preload='numpy' must be a list of names"),
    ("moo.init(preload=[np])", T, "preload[0]=<module 'numpy'"),
    ("moo.init(transport=3)", T, "transport=3"),
    ("moo.init(3)", T, "address=3 must be the address of a broker"),
    ("moo.empty('x')", T, "shape='x' must be a whole number"),
    ("moo.empty((2, -1))", V, "shape=(2, -1) must not have a negative size"),
    ("moo.empty(3, 'x')", T, "dtype='x' must be a dtype"),
    ("moo.empty(3, like='jax')", V, "like='jax' must be"),
    ("moo.LearnerGroup(3)", T, "name=3 must be a name, a string"),
    ("moo.LearnerGroup('x', min_size='y')", T, "min_size='y' must be"),
    ("moo.LearnerGroup('x', min_size=65)", V, "min_size=65 must be"),
    ("moo.LearnerGroup('x', timeout=math.inf)", V, "timeout=inf must be"),
    ("moo.ddp_hook(group)", T, "group=<Group of 2"),
    ("learners.allreduce(np.ones(3), op='maen')", V, "op='maen' must be"),
    ("learners.reduce_scatter(np.ones((1, 3)), op='avg')", V, "op='avg' must be"),
    ("learners.broadcast(np.ones(3), root='first')", T, "root='first' must be"),
    ("learners.barrier_work.wait('x')", T, "timeout='x' must be"),
]
WITHOUT_ARGUMENTS = {"current", "hosts", "shutdown", "stats"}
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


@pytest.mark.parametrize(("code", "kind", "begins"), CASES, ids=[c[0] for c in CASES])
def test_a_wrong_argument_is_named(
    names: dict[str, Any], code: str, kind: type[Exception], begins: str
) -> None:
    with pytest.raises(kind) as caught:
        eval(code, names)
    message = str(caught.value)
    assert message.startswith(begins), message
    assert "\n" not in message and len(message) < 240


def test_every_public_function_has_its_row() -> None:
    tried = {found for code, *_ in CASES for found in re.findall(r"^moo\.(\w+)", code)}
    functions = {n for n in moo.__all__ if inspect.isfunction(getattr(moo, n))}
    owned = {"actors", "lookup", "on"}  # tested with the placement of actors
    assert functions - tried - WITHOUT_ARGUMENTS - ANY_VALUE - owned == set()


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
