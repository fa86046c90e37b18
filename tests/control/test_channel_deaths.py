# SPDX-License-Identifier: MIT
"""Channels to processes that are killed, stopped, busy or replaced."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Iterator

import pytest
import zmq

from mooactor.control.channel import PATIENCE_S, Channel
from mooactor.control.node import BEAT_S, Node
from mooactor.control.sockets import unnoticed_s
from tests.conftest import eventually
from tests.control.nodes import Recorder, Remote, introduced, node, together
from tests.processes import stop


@pytest.fixture
def here() -> Iterator[Node]:
    with node() as made:
        yield made


@pytest.fixture
def remote() -> Iterator[Remote]:
    made = Remote("127.0.0.1")
    yield made
    made.close()


class Talk:
    """Numbered messages to a node that sends each back."""

    def __init__(self, here: Node, channel: Channel, mine: Recorder) -> None:
        self.here, self.channel, self.mine = here, channel, mine
        self.sent = 0

    def go_on(self, seconds: float) -> None:
        """Say something every few milliseconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.channel.post({"n": self.sent})
            self.sent += 1
            self.here.run_until(lambda: False, 0.005)

    def finish(self) -> None:
        """Everything has come back, once and in order."""
        self.here.run_until(lambda: len(self.mine.messages) >= self.sent, 30)
        assert self.mine.closed == []
        assert self.mine.numbers == list(range(self.sent))


def test_the_end_of_a_silent_side_is_known_within_three_seconds() -> None:
    # As docs/hosts.md promises. A quarter of a second more than TCP_MAXRT is what the
    # kernel may take where one direction only is dead: it looks when it sends again,
    # after ever longer pauses.
    assert max(PATIENCE_S, unnoticed_s(BEAT_S)) + 0.25 < 3.0


def test_a_killed_process_is_known_at_once(
    here: Node, remote: Remote, joined: tuple[Channel, Recorder]
) -> None:
    _, mine = joined
    os.kill(remote.pid, signal.SIGKILL)
    start = time.monotonic()
    assert here.run_until(lambda: mine.closed, 20)
    assert mine.closed == [f"the process that listened at {remote.address} has ended"]
    assert mine.closed_at - start < PATIENCE_S / 2  # it takes some milliseconds


def test_a_killed_process_is_known_at_once_though_it_came_from_another_address(
    here: Node,
) -> None:
    mine = Recorder()
    here.accept = mine.accept
    remote = Remote("127.0.0.5")  # its connections come from 127.0.0.1
    try:
        remote.write(connect=here.address)
        assert here.run_until(lambda: mine.channels, 20)
        (channel,) = mine.channels
        introduced(here, channel, mine)
        assert here.run_until(lambda: channel._asking_helps, 20)
        os.kill(remote.pid, signal.SIGKILL)
        assert here.run_until(lambda: mine.closed, 20)
    finally:
        remote.close()
    assert mine.closed == [f"the process that listened at {remote.address} has ended"]


def test_a_process_that_ends_properly_says_so(
    here: Node, remote: Remote, joined: tuple[Channel, Recorder]
) -> None:
    _, mine = joined
    remote.write(exit=True)
    assert here.run_until(lambda: mine.closed, 20)
    assert mine.closed == ["the other side has closed it"]


@pytest.mark.slow
def test_a_process_that_is_stopped_for_two_seconds_is_not_dead(
    here: Node, remote: Remote, joined: tuple[Channel, Recorder]
) -> None:
    talk = Talk(here, *joined)
    talk.go_on(0.1)
    stop(remote.pid)
    try:
        talk.go_on(2.0)
    finally:
        os.kill(remote.pid, signal.SIGCONT)
    talk.go_on(0.5)
    talk.finish()


@pytest.mark.slow
def test_a_process_whose_python_is_busy_is_not_dead(
    here: Node, remote: Remote, joined: tuple[Channel, Recorder]
) -> None:
    talk = Talk(here, *joined)
    talk.go_on(0.1)
    remote.write(sleep=PATIENCE_S + 1)
    talk.go_on(PATIENCE_S + 1)
    talk.finish()


@pytest.mark.slow
def test_a_process_that_is_stopped_for_longer_is_told_that_it_was_given_up(
    here: Node, remote: Remote, joined: tuple[Channel, Recorder]
) -> None:
    channel, mine = joined
    stop(remote.pid)
    try:
        start = time.monotonic()
        assert here.run_until(lambda: mine.closed, 20)
        assert mine.closed_at - start > PATIENCE_S - 1
        assert mine.closed == [channel.why]
        assert "nothing was heard" in mine.closed[0]
    finally:
        os.kill(remote.pid, signal.SIGCONT)
    events: list[dict[str, object]] = []
    while not events or events[-1]["event"] != "closed":
        here.run_until(lambda: False, 0.2)  # it may come back, and is told
        if remote.has_more():
            events.append(remote.read())
    assert "nothing was heard" in str(events[-1]["why"])
    assert here.channels() == []


def test_another_process_at_the_same_address_is_not_taken_for_the_first(
    here: Node,
) -> None:
    mine = Recorder()
    with node() as first:
        first.accept = Recorder().accept
        channel = here.connect(first.address, mine)
        assert together((here, first), lambda: channel.connected)
        port = first.port
        for theirs in first.channels():  # it ends without a word, as if it was killed
            theirs._say_farewell = lambda why: None  # type: ignore[method-assign]
        first.close(linger_s=0.0)
    with node(port=port) as second:
        second.accept = Recorder().accept
        assert together((here, second), lambda: mine.closed)
        assert second.channels() == []
    assert "has ended" in mine.closed[0]


def test_a_process_without_free_descriptors_connects_when_it_has_some_again(
    here: Node, remote: Remote
) -> None:
    mine = Recorder()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    spare = [os.dup(0) for _ in range(highest)]  # no number below is free
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare) + 1, hard))
    try:
        channel = here.connect(remote.address, mine)
        assert "Too many open files" in channel._obstacle
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in spare:
            os.close(fd)
    channel.post({"n": 1})
    assert here.run_until(lambda: mine.numbers == [1], 20)


def test_a_descriptor_stands_for_the_connection_that_has_it_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its number is used again before the HELLO of the one that has ended is read."""
    theirs = Recorder()
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(node())
        other.accept = theirs.accept
        remotes = [Remote("127.0.0.1"), Remote("127.0.0.1")]
        for remote in remotes:
            stack.callback(remote.close)
        router, held = other._acceptor._router, []
        receive = router.receive

        def hellos() -> int:
            """While its node is busy otherwise."""
            other._sockets.gate.serve()
            with contextlib.suppress(zmq.Again):
                held.append(receive())
            return len(held)

        def descriptor() -> int:
            return int(held[-1][1][0].get(zmq.SRCFD))

        remotes[0].write(connect=other.address)
        assert eventually(lambda: hellos() == 1)
        number = descriptor()
        remotes[0].close()
        assert eventually(lambda: not os.path.exists(f"/proc/self/fd/{number}"))
        remotes[1].write(connect=other.address)
        assert eventually(lambda: hellos() == 2) and descriptor() == number

        monkeypatch.setattr(
            router, "receive", lambda: held.pop(0) if held else receive()
        )
        assert together([other], lambda: theirs.closed)
        assert "has ended" in theirs.closed[0]
        ended, channel = theirs.channels
        assert not ended.is_open and channel.connected
        assert not remotes[1].has_more()  # which would tell that it is closed
