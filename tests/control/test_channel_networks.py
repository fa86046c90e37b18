# SPDX-License-Identifier: MIT
"""Channels between two hosts whose cable is pulled, swallows packets or loses some."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from mooactor.control.channel import Channel
from mooactor.control.node import Node
from mooactor.times import CHANNEL_SILENCE_S
from tests.conftest import at_best
from tests.control.nodes import Recorder, Remote, introduced, node
from tests.control.test_channel_deaths import Talk
from tests.networks import Cable, inside, why_not

pytestmark = pytest.mark.slow

MiB = 1 << 20


@pytest.fixture(scope="module")
def cable() -> Iterator[Cable]:
    if why := why_not():
        pytest.skip(why)
    made = Cable()
    yield made
    made.close()


@pytest.fixture
def here(cable: Cable) -> Iterator[Node]:
    """A node on "a". The test runs there, too."""
    with inside(cable.namespace["a"]), node(bind="10.99.1.1") as made:
        yield made


@pytest.fixture
def remote(cable: Cable) -> Iterator[Remote]:
    made = Remote("10.99.1.2", words=cable.on("b"))
    yield made
    made.close()


def closed_there(remote: Remote) -> float:
    """When the other side has closed its channel, by the clock of both."""
    while (event := remote.read())["event"] != "closed":
        pass
    assert "nothing was heard" in event["why"]
    return float(event["at"])


def test_a_cut_that_heals_within_the_patience_loses_nothing(
    cable: Cable, here: Node, joined: tuple[Channel, Recorder]
) -> None:
    talk = Talk(here, *joined)
    talk.go_on(0.2)
    with cable.pulled():
        talk.go_on(2.0)
    talk.go_on(0.5)
    talk.finish()


@pytest.mark.quiet
@pytest.mark.parametrize("fault", ["pulled", "swallowing"])
def test_both_sides_of_a_cut_close_after_the_patience_and_the_channel_stays_closed(
    cable: Cable,
    here: Node,
    remote: Remote,
    joined: tuple[Channel, Recorder],
    fault: str,
) -> None:
    channel, mine = joined
    with getattr(cable, fault)():  # swallowing: one direction only is dead
        start = time.monotonic()
        channel.post({"n": 0})
        assert here.run_until(lambda: mine.closed, 20)
        there = closed_there(remote)
    assert mine.closed == [
        f"nothing was heard of {channel.address} for {CHANNEL_SILENCE_S:g} s"
    ]
    for when in (mine.closed_at, there):
        assert CHANNEL_SILENCE_S - 0.7 < when - start < 2 * CHANNEL_SILENCE_S
    fresh = Recorder()
    here.connect(remote.address, fresh).post({"n": 1})
    assert here.run_until(lambda: fresh.messages, 20)
    assert fresh.numbers == [1] and mine.messages == [] and not channel.connected


@pytest.mark.quiet
def test_a_side_that_is_not_heard_may_hear_the_other_to_the_end(
    cable: Cable, here: Node, remote: Remote
) -> None:
    """It notices by what its kernel misses, and not later for what it hears."""

    def seconds() -> float:
        mine = Recorder()
        channel = here.connect(remote.address, mine)
        talk = Talk(here, *introduced(here, channel, mine))
        talk.go_on(0.2)
        with cable.swallowing():
            start = time.monotonic()
            while not mine.closed:
                channel.post({"n": 0})
                here.run_until(lambda: mine.closed, 0.05)
            return closed_there(remote) - start

    assert at_best(seconds, 2.9, tries=3)


def test_heartbeats_get_past_a_large_message_on_a_slow_link(
    cable: Cable, here: Node, remote: Remote
) -> None:
    mine = Recorder()
    channel, _ = introduced(here, here.connect(remote.address, mine), mine)
    with cable.slow(mbit=100):
        channel.post({"n": 0, "data": bytes(20 * MiB)})
        while not mine.messages:  # there and back: some seconds
            assert channel.connected, "a heartbeat timed out behind it"
            here.run_until(lambda: mine.messages or not channel.connected, 60)
    assert len(mine.messages[0]["data"]) == 20 * MiB
