# SPDX-License-Identifier: MIT
"""The link between two hosts: what crosses it, how slow it may be, and when it breaks.

It is made slow, so that data is under way for long enough. A call whose data is under
way when the link breaks goes on if the link is mended soon; if not, it ends within five
seconds with an error that says so, and the next one finds its way.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest

import mooactor as moo
from tests.actors.networks.hosts.conftest import Place
from tests.actors.networks.peers import (
    AT_MOST_S,
    PATIENCE_S,
    SOME,
    Peer,
    arriving,
    nothing_left,
    stopped,
)
from tests.conftest import eventually
from tests.marks import soak
from tests.networks import Cable

#: What the link is slowed down to: a megabyte takes 50 ms then.
MBIT = 160
SIZE = 24 * SOME
#: In seconds: after the longest the connections are lost, and made anew.
BLINKS_S = (0.4, 1.0, 2.5)


class Peers(NamedTuple):
    """One on this process's host, and two on the other."""

    near: Any
    far: Any
    farther: Any


@pytest.fixture
def peers(at: Place) -> Peers:
    found = Peers(at(Peer, "a"), at(Peer, "b"), at(Peer, "b"))
    # All connections stand, those too that are made when another's has broken.
    second = found._replace(far=found.farther, farther=found.far)
    for way in WAYS.values():
        for ref in [*way(found, SOME), *way(second, SOME)]:
            assert ref.get(PATIENCE_S) is not None
    return found


def data(nbytes: int) -> Any:
    return np.ones(nbytes, np.uint8)


# In how many ways data gets to another process. Each returns the calls that it is for.
WAYS: dict[str, Callable[[Peers, int], list[Any]]] = {
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


def future(ref: Any) -> str:
    """How a call ends: "well", or in an error that is allowed. It must end."""
    try:
        value = ref.get(PATIENCE_S)
    except moo.ActorUnavailable as error:
        return str(error)
    assert np.all(np.asarray(value).ravel()[:: 1 << 16])
    return "well"


@contextlib.contextmanager
def under_way(cable: Cable, start: Callable[[], list[Any]]) -> Iterator[list[Any]]:
    """The calls of `start`, within it on a slow link that has begun to carry them."""
    before = cable.sent("a") + cable.sent("b")

    def has_begun() -> bool:
        arriving()  # what is not waited for is only read if somebody looks
        return cable.sent("a") + cable.sent("b") > before + SOME

    with cable.slow(MBIT):
        calls = start()
        assert eventually(has_begun, 20)
        yield calls


def works_again(peers: Peers) -> bool:
    """Whether all ways lead there, soon."""

    def all_well() -> bool:
        calls = [ref for way in WAYS.values() for ref in _begin(way, peers)]
        return bool(calls) and all(future(ref) == "well" for ref in calls)

    return eventually(all_well, 15)


def _begin(way: Callable[[Peers, int], list[Any]], peers: Peers) -> list[Any]:
    try:
        return way(peers, SOME)
    except moo.ActorUnavailable as error:
        return [_Failed(error)]


class _Failed:
    """A call that could not be made, as one that has failed."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def get(self, timeout: float) -> Any:
        raise self._error


# -- a link that works -----------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_data_crosses_the_cable(peers: Peers, cable: Cable, way: str) -> None:
    before = cable.sent("a"), cable.sent("b")
    for ref in WAYS[way](peers, 4 * SOME):
        assert future(ref) == "well"
    sent = [cable.sent(host) - had for host, had in zip("ab", before, strict=True)]
    assert max(sent) > 4 * SOME
    assert eventually(nothing_left)


@pytest.mark.slow
def test_small_calls_do_not_wait_for_a_slow_link(peers: Peers, cable: Cable) -> None:
    with under_way(cable, lambda: WAYS["result"](peers, SIZE)) as (ref,):
        took = []
        for i in range(20):
            began = time.perf_counter()
            assert peers.far.echo(i) == i
            took.append(time.perf_counter() - began)
        assert not ref.done()
        assert min(took) < 0.1
        assert future(ref) == "well"


# -- one that breaks -------------------------------------------------------

SLOW, SOAK = pytest.mark.slow, pytest.mark.soak
QUICK = ("result", "argument")
CUTS = [
    *(pytest.param("pulled", w, marks=() if w == "argument" else SLOW) for w in WAYS),
    *(pytest.param("swallowing", w, marks=SLOW if w in QUICK else SOAK) for w in WAYS),
]


@pytest.mark.parametrize(("how", "way"), CUTS)
def test_a_cut_ends_the_call_with_an_error_and_the_next_ones_work(
    peers: Peers, cable: Cable, way: str, how: str
) -> None:
    with under_way(cable, lambda: WAYS[way](peers, SIZE)) as calls:
        with getattr(cable, how)():
            cut = time.monotonic()
            ends = [future(ref) for ref in calls]
            assert time.monotonic() - cut < AT_MOST_S
    assert any(end != "well" for end in ends), ends
    assert works_again(peers)
    assert eventually(nothing_left)


@SLOW
@pytest.mark.parametrize("times", [soak(1), 4])
@pytest.mark.parametrize("how", ["pulled", "swallowing"])
def test_a_cut_ends_all_that_is_under_way(
    peers: Peers, cable: Cable, how: str, times: int
) -> None:
    """Some of it begins only when what was sent before has ended, and that again has
    to wait for others: it does not add up."""

    def start() -> list[Any]:
        ways = [way for _ in range(times) for way in WAYS.values()]
        return [ref for way in ways for ref in way(peers, SIZE)]

    with under_way(cable, start) as calls, getattr(cable, how)():
        cut = time.monotonic()
        ends = [future(ref) for ref in calls]
        assert time.monotonic() - cut < AT_MOST_S
    assert len([end for end in ends if end != "well"]) >= len(WAYS)
    assert works_again(peers)
    assert eventually(nothing_left)


def _blink(way: str, seconds: float) -> Any:
    """All ways with the shortest one, and one in each direction with the longest."""
    often = seconds == min(BLINKS_S) or (seconds == max(BLINKS_S) and way in QUICK)
    return pytest.param(way, seconds, marks=SLOW if often else SOAK)


@pytest.mark.parametrize(
    ("way", "seconds"), [_blink(way, seconds) for seconds in BLINKS_S for way in WAYS]
)
def test_a_link_that_is_mended_soon_goes_on(
    peers: Peers, cable: Cable, way: str, seconds: float
) -> None:
    with under_way(cable, lambda: WAYS[way](peers, 8 * SOME)) as calls:
        with cable.pulled():
            time.sleep(seconds)
        assert [future(ref) for ref in calls] == ["well"] * len(calls)
    assert eventually(nothing_left)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["argument", "result", "passed on here"])
def test_a_first_contact_waits_for_a_link_that_is_mended_soon(
    at: Place, cable: Cable, way: str
) -> None:
    peers = Peers(at(Peer, "a"), at(Peer, "b"), at(Peer, "b"))
    with ThreadPoolExecutor(1) as pool:  # a program's own call waits for the contact
        with cable.pulled():
            begun = pool.submit(WAYS[way], peers, SOME)
            time.sleep(1.5)
        assert [future(ref) for ref in begun.result()] == ["well"]
    assert eventually(nothing_left)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["argument", "result"])
def test_so_it_does_for_one_that_is_stopped_then(
    at: Place, cable: Cable, way: str
) -> None:
    peers = Peers(at(Peer, "a"), at(Peer, "b"), at(Peer, "b"))
    pid = peers.far.pid()
    with ThreadPoolExecutor(1) as pool:
        with cable.pulled():
            begun = pool.submit(WAYS[way], peers, SOME)
            time.sleep(1.5)  # the far one has begun to call, too
            if way == "result":
                begun.result()
        with stopped(pid):
            time.sleep(3.0)
        assert [future(ref) for ref in begun.result()] == ["well"]
    assert eventually(nothing_left)


@pytest.mark.slow
def test_a_cut_while_nothing_moves_shows_with_the_next_call(
    peers: Peers, cable: Cable
) -> None:
    with cable.pulled():
        for way in ("argument", "result"):
            began = time.monotonic()
            ends = [future(ref) for ref in _begin(WAYS[way], peers)]
            assert "well" not in ends
            assert time.monotonic() - began < AT_MOST_S
        assert peers.far.echo("calls without data") == "calls without data"
    assert works_again(peers)
    assert eventually(nothing_left)


@pytest.mark.slow
def test_a_result_that_was_lost_says_that_the_call_has_run(
    peers: Peers, cable: Cable
) -> None:
    with under_way(cable, lambda: WAYS["result"](peers, SIZE)) as (ref,):
        with cable.pulled(), pytest.raises(moo.ActorUnavailable) as caught:
            ref.get(PATIENCE_S)
    assert caught.value.delivered is True


@pytest.mark.slow
def test_arguments_that_were_lost_say_that_it_has_not(
    peers: Peers, cable: Cable
) -> None:
    seen = len(peers.far.sizes())
    with under_way(cable, lambda: WAYS["argument"](peers, SIZE)) as (ref,):
        with cable.pulled(), pytest.raises(moo.ActorUnavailable) as caught:
            ref.get(PATIENCE_S)
    assert caught.value.delivered is False
    assert len(peers.far.sizes()) == seen


# -- processes that are stopped --------------------------------------------

#: In seconds: longer than any patience with a machine that does not answer.
LONG_S = 8.0


def linked() -> set[str]:
    """The processes to which this one has a connection for its data."""
    return {row["process"] for row in moo.stats()["peers"] if row["transport"]}


def many_small(peers: Peers, nbytes: int) -> list[Any]:
    return [peers.far.take.remote(data(60_000)) for _ in range(300)]


@SLOW
@pytest.mark.parametrize(
    "start",
    [WAYS["argument"], WAYS["result"], soak(many_small)],
    ids=["large argument", "large result", "small arguments"],
)
def test_one_that_is_stopped_is_left_alone_until_it_is_cut_off(
    peers: Peers, cable: Cable, transport: str, start: Callable[..., list[Any]]
) -> None:
    """Its kernel answers for it, as long as it likes, and only as long as that can."""
    pid, far, is_result = peers.far.pid(), peers.far.process(), start is WAYS["result"]
    if is_result and transport == "ofi":
        pytest.skip("who reads by a fabric has a patience of its own")
    with under_way(cable, lambda: start(peers, 3 * SIZE)) as calls, stopped(pid):
        time.sleep(LONG_S)
        arriving()
        assert far in linked()
        assert not calls[-1].done()
        with cable.swallowing():
            cut = time.monotonic()
            assert eventually(lambda: far not in linked(), 20)
            assert time.monotonic() - cut < AT_MOST_S
            if is_result:
                assert future(calls[0]) != "well"
                assert time.monotonic() - cut < AT_MOST_S
    assert works_again(peers)
    assert eventually(nothing_left, 20)


# -- processes that die ----------------------------------------------------


@pytest.mark.parametrize("way", ["result", "argument", "passed on here"])
def test_a_killed_process_fails_the_call_with_its_cause(
    peers: Peers, cable: Cable, way: str
) -> None:
    pid = peers.far.pid()
    with under_way(cable, lambda: WAYS[way](peers, SIZE)) as (ref,):
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(moo.ActorDied) as caught:
            ref.get(PATIENCE_S)
    assert caught.value.cause is not None and caught.value.cause.signal == 9
    assert peers.near.echo(1) == peers.farther.echo(1) == 1
    assert future(peers.near.hand.remote(peers.farther, SOME)) == "well"
    assert eventually(nothing_left)


@pytest.mark.slow
def test_who_got_a_value_from_one_that_died_gets_it_from_its_owner(
    peers: Peers, cable: Cable
) -> None:
    pid = peers.far.pid()
    with under_way(cable, lambda: _put(peers, SIZE)) as (first, *others):
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(moo.ActorDied):
            first.get(PATIENCE_S)
        assert [future(ref) for ref in others] == ["well"] * 2
    assert eventually(nothing_left)
