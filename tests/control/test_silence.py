# SPDX-License-Identifier: MIT
"""Silence, patience and back-off of channels and ways, in virtual time."""

from __future__ import annotations

import pytest

from mooactor.control import frames
from mooactor.control.channel import LINGER_S, Channel, Terms
from mooactor.control.sockets import unnoticed_s
from mooactor.testing import VirtualClock
from mooactor.times import CHANNEL_BEAT_S, CHANNEL_SILENCE_S
from tests.control.nodes import Recorder, free_port, node, router, together

ADDRESS = "tcp://10.0.0.7:4431"


class Wire:
    """A connection that keeps what is sent."""

    def __init__(self) -> None:
        self.kinds: list[int] = []

    def send(self, frame: bytes) -> bool:
        self.kinds.append(frames.unpack(frame).kind)
        return True

    def sent(self) -> None: ...


class Bare(Channel):
    """One whose connections are made by the test."""

    def _recover(self, now: float) -> None: ...
    def _release(self) -> None: ...


class World:
    """The node of one channel."""

    def __init__(self, beat_s: float = CHANNEL_BEAT_S) -> None:
        self.clock, self.mine, self.wire = VirtualClock(1000.0), Recorder(), Wire()
        self.channel = Bare(self, b"a key...", ADDRESS, Terms(beat_s))
        self.channel._listener = self.mine
        tick = self.channel.tick
        self.clock.drive(self.channel.due, lambda: tick(self.clock.now()))

    def touch(self, channel: Channel) -> None: ...
    def watch(self, channel: Channel) -> None: ...

    def tell(self, channel: Channel) -> None:
        while channel.has_news:
            channel.deliver()

    def connect(self) -> None:
        self.channel.attach(self.wire, 0)

    def hear(self) -> None:
        self.channel.receive(frames.Frame(frames.ACK, b"", 0, 0, b""))

    def ends_in(self, seconds: float) -> bool:
        """Whether its listener is told then, and not before."""
        self.clock.advance(seconds - 0.001)
        if self.mine.closed:
            return False
        self.clock.advance(0.002)
        return self.mine.closed == [f"nothing was heard of {ADDRESS} for 2.7 s"]


def test_the_end_of_a_silent_side_is_known_within_three_seconds() -> None:
    # As docs/hosts.md promises. A quarter of a second more than TCP_MAXRT is what the
    # kernel may take where one direction only is dead: it looks when it sends again,
    # after ever longer pauses.
    assert max(CHANNEL_SILENCE_S, unnoticed_s(CHANNEL_BEAT_S)) + 0.25 < 3.0


def test_a_side_that_never_answers_is_given_up_after_the_patience() -> None:
    world = World()
    assert world.ends_in(CHANNEL_SILENCE_S)
    assert world.channel.due() is None


def test_a_side_whose_connection_stands_is_waited_for() -> None:
    world = World()
    world.connect()
    world.clock.advance(100_000.0)
    assert world.channel.is_open and world.channel.silent_s == 0.0


def test_the_patience_begins_when_the_lost_connection_last_stood_for_certain() -> None:
    world = World()
    world.connect()
    world.clock.advance(50.0)
    world.channel.lost()
    assert world.channel.silent_s == pytest.approx(unnoticed_s(CHANNEL_BEAT_S))
    assert world.ends_in(CHANNEL_SILENCE_S - unnoticed_s(CHANNEL_BEAT_S))


def test_without_heartbeats_the_patience_begins_with_what_was_heard_last() -> None:
    world = World(beat_s=0.0)
    world.connect()
    world.clock.advance(50.0)
    world.hear()
    world.clock.advance(1.0)
    assert world.channel.silent_s == pytest.approx(1.0)
    world.channel.lost()
    assert world.ends_in(CHANNEL_SILENCE_S - 1.0)


def test_of_a_long_silence_the_end_is_told_with_the_break() -> None:
    world = World(beat_s=0.0)
    world.connect()
    world.clock.advance(50.0)
    world.channel.lost()
    assert world.channel.due() == world.clock.now()


def test_a_connection_that_comes_in_time_ends_the_patience() -> None:
    world = World()
    for _ in range(5):
        world.connect()
        world.clock.advance(10.0)
        world.channel.lost()
        world.clock.advance(CHANNEL_SILENCE_S - unnoticed_s(CHANNEL_BEAT_S) - 0.01)
    world.connect()
    world.clock.advance(10.0)
    assert world.channel.is_open and world.mine.closed == []


def test_what_comes_late_over_a_lost_connection_is_no_sign_of_being_heard() -> None:
    world = World()
    world.connect()
    world.channel.lost()
    world.clock.advance(1.0)
    world.hear()
    assert world.ends_in(CHANNEL_SILENCE_S - unnoticed_s(CHANNEL_BEAT_S) - 1.0)


def test_what_was_posted_before_a_close_has_a_second_to_leave() -> None:
    world = World()
    world.channel.post({"n": 1})
    world.channel.close("enough")
    world.clock.advance(LINGER_S - 0.01)
    assert world.channel.why is None
    world.clock.advance(0.02)
    assert world.channel.why is not None and world.mine.closed == []


# -- with sockets ----------------------------------------------------------------


def test_where_nobody_listens_that_is_said_when_the_patience_is_over() -> None:
    clock, mine = VirtualClock(), Recorder()
    with node(clock=clock) as one:
        clock.drive(one.due, one.serve)
        address = f"tcp://127.0.0.1:{free_port()}"
        channel = one.connect(address, mine)
        assert one.run_until(lambda: channel.refused, 20)
        clock.advance(CHANNEL_SILENCE_S - 0.01)
        assert mine.closed == []
        clock.advance(0.02)
    patience = f"within {CHANNEL_SILENCE_S:g} s"
    assert mine.closed == [
        f"no answer from {address} {patience}: nothing listens there"
    ]


def test_another_key_gets_nowhere() -> None:
    clock, mine, theirs = VirtualClock(), Recorder(), Recorder()
    with node(b"\1" * 32, clock=clock) as one, node() as other:
        other.accept = theirs.accept
        channel = one.connect(other.address, mine)
        channel.post({"n": 1})
        assert together((one, other), lambda: "another key" in channel._obstacle)
        clock.drive(one.due, one.serve)
        clock.advance(CHANNEL_SILENCE_S)
        assert other.statistics()["handshakes_admitted"] == 0
    assert "holds another key" in mine.closed[0]
    assert theirs.channels == []


def test_of_a_channel_that_never_stands_nothing_was_sent() -> None:
    """Others count on it: an actor that was to begin there may begin elsewhere."""
    clock, mine = VirtualClock(), Recorder()
    with router() as there, node(clock=clock) as one:
        clock.drive(one.due, one.serve)
        channel = one.connect(there.address, mine)
        channel.post({"n": 1})
        assert together([one], lambda: there.kinds() == [frames.HELLO])
        clock.advance(CHANNEL_SILENCE_S)
        assert mine.closed
        assert together([one], lambda: not one.channels())
        assert set(there.kinds()) == {frames.HELLO} and not channel.peer


def test_attempts_where_nobody_listens_come_ever_later() -> None:
    clock, delays = VirtualClock(), list[float]()
    with node(clock=clock) as one:
        channel = one.connect(f"tcp://127.0.0.1:{free_port()}", Recorder())
        for _ in range(6):
            assert one.run_until(lambda: channel._dial_at is not None, 20)
            delays.append(channel._dial_at - clock.now())  # type: ignore[operator]
            clock.advance(delays[-1] + 1e-6)
            one.serve()
    assert delays == pytest.approx([0.01, 0.02, 0.04, 0.08, 0.1, 0.1], abs=1e-4)
