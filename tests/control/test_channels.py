# SPDX-License-Identifier: MIT
"""Channels between nodes of one process: messages, ends, refusals and bounds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from mooactor.control import reliable
from mooactor.control.node import Node
from mooactor.errors import MooError
from mooactor.testing import VirtualClock
from tests.control.nodes import (
    SECRET,
    Echo,
    Recorder,
    free_port,
    node,
    together,
)
from tests.networks import need_ipv6

MiB = 1 << 20


@pytest.fixture
def pair() -> Iterator[tuple[Node, Node]]:
    with node() as one, node() as other:
        yield one, other


def test_messages_go_both_ways_in_order(pair: tuple[Node, Node]) -> None:
    one, other = pair
    echo, mine = Echo(), Recorder()
    other.accept = echo.accept
    channel = one.connect(other.address, mine)
    for number in range(2000):
        channel.post({"n": number, "data": bytes(number)})
    assert together(pair, lambda: len(mine.messages) == 2000)
    assert mine.numbers == echo.numbers == list(range(2000))
    assert mine.messages[-1]["data"] == bytes(1999)
    (theirs,) = echo.channels
    assert channel.peer == other.id and theirs.peer == one.id
    assert theirs.address == one.address and channel.address == other.address
    assert channel.is_open and channel.connected and channel.silent_s == 0.0


def test_a_channel_is_open_before_the_other_side_has_answered() -> None:
    port = free_port()
    mine, echo = Recorder(), Echo()
    with node() as one:
        channel = one.connect(f"tcp://127.0.0.1:{port}", mine)
        channel.post({"n": 1})
        assert one.run_until(lambda: channel._obstacle == "nothing listens there", 20)
        assert channel.is_open and not channel.connected and channel.peer == b""
        with node(port=port) as other:
            other.accept = echo.accept
            assert together((one, other), lambda: mine.numbers == [1])


def test_a_large_message_arrives_whole(pair: tuple[Node, Node]) -> None:
    one, other = pair
    theirs = Recorder()
    other.accept = theirs.accept
    data = bytes(range(256)) * (40 * MiB // 256)
    channel = one.connect(other.address, Recorder())
    channel.post({"n": 0, "data": data})
    channel.post({"n": 1})
    assert together(pair, lambda: len(theirs.messages) == 2, 120)
    assert theirs.numbers == [0, 1] and theirs.messages[0]["data"] == data


def test_what_was_posted_before_a_close_arrives_first(pair: tuple[Node, Node]) -> None:
    one, other = pair
    mine, theirs = Recorder(), Recorder()
    other.accept = theirs.accept
    channel = one.connect(other.address, mine)
    for number in range(100):
        channel.post({"n": number, "data": bytes(100_000)})
    channel.close("all is said")
    channel.post({"n": "dropped"})
    assert not channel.is_open
    assert together(pair, lambda: theirs.closed)
    assert theirs.numbers == list(range(100)) and theirs.closed == ["all is said"]
    assert together(pair, lambda: not one.channels() and not other.channels())
    assert mine.closed == []  # it has closed the channel itself


def test_the_end_of_a_node_is_told_at_once(pair: tuple[Node, Node]) -> None:
    one, other = pair
    accepted, opened = Recorder(), Recorder()
    one.accept = other.accept = accepted.accept
    here = one.connect(other.address, Recorder())
    there = other.connect(one.address, opened)
    assert together(pair, lambda: here.connected and there.connected)
    one.close()
    assert other.run_until(lambda: opened.closed and accepted.closed, 20)
    assert opened.closed == accepted.closed == ["the other side has closed it"]
    assert other.channels() == []


def test_without_an_accept_channels_are_refused(pair: tuple[Node, Node]) -> None:
    one, other = pair
    mine = Recorder()
    channel = one.connect(other.address, mine)
    assert together(pair, lambda: mine.closed)
    assert mine.closed == [channel.why] == ["it accepts no channel"]


def test_a_listener_that_raises_loses_nothing(pair: tuple[Node, Node]) -> None:
    one, other = pair

    class Picky(Recorder):
        def handle(self, channel, message):  # type: ignore[no-untyped-def]
            super().handle(channel, message)
            if self.numbers[-1] % 3 == 0:
                raise RuntimeError(self.numbers[-1])

    picky = Picky()
    other.accept = picky.accept
    channel = one.connect(other.address, Recorder())
    for number in range(10):
        channel.post({"n": number})
    raised = []
    while len(picky.messages) < 10:
        try:
            together(pair, lambda: len(picky.messages) == 10)
        except RuntimeError as error:
            raised.append(error.args[0])
    assert picky.numbers == list(range(10)) and raised == [0, 3, 6, 9]


def test_a_reader_that_lags_behind_ends_the_channel_at_the_bound(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[Node, Node]
) -> None:
    monkeypatch.setattr(reliable, "MAX_QUEUED", MiB)
    mine, theirs = Recorder(), Recorder()
    with node(clock=VirtualClock()) as one:  # whose patience does not end
        pair[1].accept = theirs.accept
        channel = one.connect(pair[1].address, mine)
        both = one, pair[1]
        assert together(both, lambda: channel.connected)
        while channel.is_open:  # the other is not served meanwhile
            channel.post({"data": bytes(65_000)})
            one.serve()
        assert together(both, lambda: mine.closed and theirs.closed)
    assert "does not read what it is sent" in mine.closed[0]
    # The last frame has a fifth of a second to leave, behind all that is under way.
    told, silent = "does not read what it is sent", "nothing was heard of"
    assert told in theirs.closed[0] or silent in theirs.closed[0]


# -- listening -----------------------------------------------------------------------


def test_a_port_of_the_range_is_taken_until_none_is_left() -> None:
    first = free_port()
    ports = range(first, first + 1)
    with node(ports=ports) as one:
        assert one.port == first
        with pytest.raises(MooError, match="are taken: .*--ports"):
            Node(SECRET, ports=ports)
        with pytest.raises(MooError, match="another program"):
            Node(SECRET, port=first)


def test_a_node_listens_on_ipv6() -> None:
    need_ipv6()
    mine, echo = Recorder(), Echo()
    with node(bind="::1") as one, node(bind="::1") as other:
        assert one.address == f"tcp://[::1]:{one.port}"
        one.accept = echo.accept
        other.connect(one.address, mine).post({"n": 1})
        assert together((one, other), lambda: mine.numbers == [1])
        assert echo.channels[0].address == other.address


# -- a listener that takes its time --------------------------------------------------


@contextlib.contextmanager
def held_back(reader: Node) -> Iterator[None]:
    """Messages meanwhile are read and not handled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_hand_on", lambda: None)
        yield


def arrived(reader: Node) -> list[int]:
    """Messages that wait there to be handled, of each channel."""
    return sorted(len(channel._in) for channel in reader.channels())


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each `Node.serve` hands on one message."""
    monkeypatch.setattr("mooactor.control.node.TURN_S", 0.0)


@pytest.mark.usefixtures("one_at_a_time")
def test_a_slow_listener_slows_the_sender_down(pair: tuple[Node, Node]) -> None:
    one, other = pair
    theirs, count = Recorder(), 5 * reliable.WINDOW
    other.accept = theirs.accept
    channel = one.connect(other.address, Recorder())
    for number in range(count):
        channel.post({"n": number, "data": bytes(reliable.PIECE_BYTES - 100)})
    with held_back(other):
        assert together(pair, lambda: arrived(other) >= [reliable.WINDOW - 1])
        for _ in range(20):  # more would come now
            for served in pair:
                served.run_until(lambda: False, 0.001)
        assert arrived(other) <= [reliable.WINDOW]
        assert channel.handled < reliable.PIECE_BYTES

    while len(theirs.messages) < count:
        for served in pair:
            served.run_until(lambda: False, 0.001)
        assert arrived(other) <= [reliable.WINDOW]
        assert channel.handled <= (len(theirs.messages) + 1) * reliable.PIECE_BYTES
    assert theirs.numbers == list(range(count))
    assert together(pair, lambda: channel.handled == channel.posted)


@pytest.mark.usefixtures("one_at_a_time")
def test_no_channel_waits_for_what_has_come_over_another(
    pair: tuple[Node, Node],
) -> None:
    one, other = pair
    theirs = Recorder()
    other.accept = theirs.accept
    talker, quiet = (one.connect(other.address, Recorder()) for _ in range(2))
    for number in range(1000):
        talker.post({"n": number})
    with held_back(other):
        assert together(pair, lambda: arrived(other) == [0, 1000])
        quiet.post({"n": "quiet"})
        assert together(pair, lambda: arrived(other) == [1, 1000])
    assert together(pair, lambda: len(theirs.messages) == 1001)
    assert theirs.numbers.index("quiet") < 3  # type: ignore[arg-type]
    theirs.messages.remove({"n": "quiet"})
    assert theirs.numbers == list(range(1000))
