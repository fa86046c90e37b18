# SPDX-License-Identifier: MIT
"""Channels to processes that are killed, stopped, busy or replaced."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Iterator

import pytest

from mooactor.control.channel import Channel
from mooactor.control.node import Node
from mooactor.errors import MooError
from tests.control.nodes import (
    SECRET,
    Recorder,
    Remote,
    introduced,
    node,
    together,
)


@pytest.fixture
def here() -> Iterator[Node]:
    with node() as made:
        yield made


@pytest.fixture
def remote() -> Iterator[Remote]:
    made = Remote("127.0.0.1")
    yield made
    made.close()


def test_a_killed_process_is_known_at_once_and_one_that_ends_says_so(
    here: Node, remote: Remote, joined: tuple[Channel, Recorder]
) -> None:
    _, mine = joined
    with contextlib.closing(Remote("127.0.0.1")) as other:
        theirs = Recorder()
        introduced(here, here.connect(other.address, theirs), theirs)
        other.write(exit=True)
        assert here.run_until(lambda: theirs.closed, 20)
        assert theirs.closed == ["the other side has closed it"]
    os.kill(remote.pid, signal.SIGKILL)
    assert here.run_until(lambda: mine.closed, 20)
    assert mine.closed == [f"the process that listened at {remote.address} has ended"]


def test_a_killed_process_is_known_at_once_though_it_came_from_another_address(
    here: Node,
) -> None:
    mine = Recorder()
    here.accept = mine.accept
    with contextlib.closing(Remote("127.0.0.5")) as remote:  # it comes from 127.0.0.1
        remote.write(connect=here.address)
        assert here.run_until(lambda: mine.channels, 20)
        (channel,) = mine.channels
        introduced(here, channel, mine)
        assert here.run_until(lambda: channel._asking_helps, 20)
        os.kill(remote.pid, signal.SIGKILL)
        assert here.run_until(lambda: mine.closed, 20)
    assert mine.closed == [f"the process that listened at {remote.address} has ended"]


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
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare) + 4, hard))
        with pytest.raises(MooError, match="can open 3 more.*ulimit"):
            Node(SECRET)  # libzmq would abort the process
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare) + 1, hard))
        channel = here.connect(remote.address, mine)
        assert "Too many open files" in channel._obstacle
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in spare:
            os.close(fd)
    channel.post({"n": 1})
    assert here.run_until(lambda: mine.numbers == [1], 20)
