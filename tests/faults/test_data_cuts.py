# SPDX-License-Identifier: MIT
"""Data under way between two hosts, over a link that is slow, is cut, or heals.

A call whose data is under way when the link breaks goes on if the link is mended soon;
if not, it ends within some seconds with an error that says so, and the next one finds
its way. The hosts are network namespaces with one cable between them. Calls themselves
go by unix sockets, which both hosts share: what is cut is the way of the data alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.actors.networks.conftest import transport, warm_up  # noqa: F401
from tests.actors.networks.peers import (
    PATIENCE_S,
    SOME,
    Peer,
    arriving,
    nothing_left,
    stopped,
)
from tests.conftest import eventually, running_session
from tests.marks import slow
from tests.networks import Cable, inside, why_not

#: What the link is slowed down to: a megabyte takes 50 ms then.
MBIT = 160
SIZE = 24 * SOME
SLOW = pytest.mark.slow
Start = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def cable() -> Iterator[Cable]:
    if why := why_not():
        pytest.skip(why)
    made = Cable()
    yield made
    made.close()


@pytest.fixture(scope="module")
def session(cable: Cable, transport: str) -> Iterator[Any]:  # noqa: F811
    with pytest.MonkeyPatch.context() as patch, inside(cable.namespace["a"]):
        patch.setenv("MOOACTOR_BIND", "*")
        patch.setenv("MOOACTOR_NETNS", cable.namespace["b"])
        with running_session(transport=transport) as running:
            warm_up(moo.on(Counter, env={"MOOACTOR_HOST_ID": "b"}))
            yield running


class Peers(NamedTuple):
    """One on this process's host, and two on the other."""

    near: Any
    far: Any
    farther: Any


@pytest.fixture
def peers(cable: Cable, spawn: Callable[..., Any]) -> Peers:
    def at(host: str) -> Any:
        env = {"MOOACTOR_NETNS": cable.namespace[host], "MOOACTOR_HOST_ID": host}
        actor = spawn(moo.on(Peer, env=env))
        actor.pid()  # it is there, and so is what it says of its host
        return actor

    found = Peers(at("a"), at("b"), at("b"))
    # All connections stand, those too that are made when another's has broken.
    second = found._replace(far=found.farther, farther=found.far)
    for ref in [*all_ways(found, SOME), *all_ways(second, SOME)]:
        assert ref.get(PATIENCE_S) is not None
    return found


def data(nbytes: int) -> Any:
    return np.ones(nbytes, np.uint8)


# In how many ways data gets to another process. Each returns the calls that it is for.
WAYS: dict[str, Start] = {
    "result": lambda p, n: [p.far.make.remote(n)],
    "argument": lambda p, n: [p.far.take.remote(data(n))],
    "stream": lambda p, n: [p.near.read.remote(p.far, 8, n // 8)],
    "put": lambda p, n: _put(p, n),
    "group": lambda p, n: [moo.Group([p.far, p.farther]).call(Peer.take, data(n))],
    "passed on there": lambda p, n: [p.far.take.remote(p.near.make.remote(n))],
    "passed on here": lambda p, n: [p.near.take.remote(p.far.make.remote(n))],
    "between actors": lambda p, n: [p.near.hand.remote(p.far, n)],
}


def _put(peers: Peers, nbytes: int) -> list[Any]:
    ref = moo.put(data(nbytes))
    return [peer.take.remote(ref) for peer in (peers.far, peers.farther, peers.near)]


def all_ways(peers: Peers, nbytes: int) -> list[Any]:
    return [ref for way in WAYS.values() for ref in way(peers, nbytes)]


def future(ref: Any) -> str:
    """How a call ends: "well", or in an error that is allowed. It must end."""
    try:
        value = ref.get(PATIENCE_S)
    except moo.ActorUnavailable as error:
        return f"delivered={error.delivered}"
    assert np.all(np.asarray(value).ravel()[:: 1 << 16])
    return "well"


@contextlib.contextmanager
def under_way(cable: Cable, start: Start, peers: Peers, n: int) -> Iterator[list[Any]]:
    """The calls of `start`, within it on a slow link that has begun to carry them."""
    before = cable.sent("a") + cable.sent("b")

    def has_begun() -> bool:
        arriving()  # what is not waited for is only read if somebody looks
        return cable.sent("a") + cable.sent("b") > before + SOME

    with cable.slow(MBIT):
        calls = start(peers, n)
        assert eventually(has_begun, 20)
        yield calls


def works_again(peers: Peers) -> bool:
    """Whether all ways lead there, soon, and nothing is left of what was cut."""

    def all_well() -> bool:
        return all(future(ref) == "well" for ref in all_ways(peers, SOME))

    return eventually(all_well, 15) and eventually(nothing_left)


def test_data_crosses_the_cable_each_way(peers: Peers, cable: Cable) -> None:
    for name, way in WAYS.items():
        before = [cable.sent(host) for host in "ab"]
        assert {future(ref) for ref in way(peers, 4 * SOME)} == {"well"}, name
        sent = [cable.sent(host) - had for host, had in zip("ab", before, strict=True)]
        assert max(sent) > 4 * SOME, name
    assert eventually(nothing_left)


@pytest.mark.parametrize("how", ["pulled", slow("swallowing")])
def test_a_cut_ends_all_that_is_under_way_and_the_next_calls_work(
    peers: Peers, cable: Cable, how: str
) -> None:
    with under_way(cable, all_ways, peers, SIZE) as calls, getattr(cable, how)():
        ends = [future(ref) for ref in calls]
    assert len([end for end in ends if end != "well"]) >= len(WAYS)
    # A result that was lost says that the call ran, and an argument that it did not.
    assert ends[:2] == ["delivered=True", "delivered=False"]
    assert works_again(peers)


@SLOW
@pytest.mark.parametrize("seconds", [0.4, 2.5])
def test_a_link_that_is_mended_soon_goes_on(
    peers: Peers, cable: Cable, seconds: float
) -> None:
    """After the longer one the connections are lost, and made anew."""
    with under_way(cable, all_ways, peers, 8 * SOME) as calls:
        with cable.pulled():
            time.sleep(seconds)  # which is the fault
        assert {future(ref) for ref in calls} == {"well"}
    assert eventually(nothing_left)


def linked() -> set[str]:
    """The processes to which this one has a connection for its data."""
    return {row["process"] for row in moo.stats()["peers"] if row["transport"]}


@SLOW
def test_one_that_is_stopped_is_left_alone_until_it_is_cut_off(
    peers: Peers, cable: Cable
) -> None:
    """Its kernel answers for it, as long as it likes, and only as long as that can."""
    pid, far = peers.far.pid(), peers.far.process()
    with under_way(cable, WAYS["argument"], peers, 3 * SIZE) as calls, stopped(pid):
        time.sleep(8.0)  # longer than any patience with a machine that does not answer
        arriving()
        assert far in linked()
        assert not calls[-1].done()
        with cable.swallowing():
            assert eventually(lambda: far not in linked(), 20)
    assert works_again(peers)


@pytest.mark.parametrize("way", ["result", "argument"])
def test_a_killed_process_fails_the_call_with_its_cause(
    peers: Peers, cable: Cable, way: str
) -> None:
    pid = peers.far.pid()
    with under_way(cable, WAYS[way], peers, SIZE) as (ref,):
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(moo.ActorDied) as caught:
            ref.get(PATIENCE_S)
    assert caught.value.cause is not None and caught.value.cause.signal == 9
    assert peers.near.echo(1) == peers.farther.echo(1) == 1
    assert future(peers.near.hand.remote(peers.farther, SOME)) == "well"
    assert eventually(nothing_left)
