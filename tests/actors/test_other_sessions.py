# SPDX-License-Identifier: MIT
"""A part of another session fails at once in this one, and says so."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Counter


@moo.actor
class Maker:
    def stored(self) -> list[Any]:
        return [moo.put(5)]

    def take(self, value: Any) -> Any:
        return value


class Earlier:
    """Some of everything that a session gives, never looked at while it ran."""

    def __init__(self) -> None:
        with moo.init(logs=False):
            maker = moo.spawn(Maker)
            self.used = moo.spawn(Counter)
            self.used.add()
            self.handle = moo.spawn(Counter)
            self.group = moo.on(Counter).group(2)
            self.group.add.call().get()
            self.pickled = pickle.dumps(self.handle)
            self.refs = [maker.stored()[0] for _ in range(7)]
            self.put = moo.put(1)
            self.pickled_ref = pickle.dumps(self.put)
        # Where no session runs, such a Ref is done.
        without = self.refs.pop()
        assert moo.wait([without], timeout=30) == ([without], [])


@pytest.fixture(scope="module")
def earlier() -> Earlier:
    return Earlier()


@pytest.fixture(scope="module")
def later(earlier: Earlier) -> Iterator[Any]:
    with moo.init(logs=False):
        maker = moo.spawn(Maker)
        maker.take(0)
        yield maker


CALLS: dict[str, Callable[[Earlier], Any]] = {
    "handle": lambda e: e.handle.add.remote(),
    "used handle": lambda e: e.used.add.remote(),
    "unpickled handle": lambda e: pickle.loads(e.pickled).add.remote(),
    "member": lambda e: e.group[1].add.remote(),
    "group": lambda e: e.group.add.call().parts[1],
}


def test_a_call_to_an_actor_of_an_earlier_session_has_failed_when_it_is_made(
    earlier: Earlier, later: Any
) -> None:
    for what, call in CALLS.items():
        ref = call(earlier)
        assert ref.state, what  # nobody had to be asked
        error = ref.exception()
        assert isinstance(error, moo.ActorUnavailable), error
        assert error.delivered is False
        assert "earlier session" in str(error)


def test_a_ref_of_an_earlier_session_is_done(earlier: Earlier, later: Any) -> None:
    one, other, cancelled, awaited, called, passed = earlier.refs
    ended = pytest.raises(moo.ActorUnavailable, match="session has ended")
    done, rest = moo.wait([one, other], num_returns=2, timeout=30)
    assert (done, rest) == ([one, other], [])
    with ended:
        one.get()
    assert not cancelled.cancel() and cancelled.done()

    async def wait_for(ref: Any) -> Any:
        return await ref

    with ended:
        asyncio.run(wait_for(awaited))
    heard: list[Any] = []
    called.add_done_callback(heard.append)
    assert heard == [called]
    with ended:
        later.take(passed)
    uses: list[Callable[[], object]] = [
        lambda: pickle.dumps(earlier.put),
        lambda: pickle.loads(earlier.pickled_ref).get(timeout=20),
        lambda: later.take([earlier.put]),
        lambda: moo.put([earlier.put]),
    ]
    for use in uses:
        with pytest.raises(moo.ActorUnavailable, match="session"):
            use()
