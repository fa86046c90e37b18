# SPDX-License-Identifier: MIT
"""Large arguments of constructors, on their way to another host."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mooactor.control.node import Node
from mooactor.host.eventloop import EventLoop
from mooactor.host.protocol import Open
from mooactor.host.remote import RemoteSite
from mooactor.process.environment import Place
from mooactor.process.needs import Amount
from mooactor.process.parcel import sealed
from mooactor.process.protocol import Life
from mooactor.tensors.network import Network
from tests.control.nodes import Recorder, node

_MIB = 1 << 20


class News:
    """In the place of a home."""

    def __init__(self) -> None:
        self.lost: list[str] = []

    def line_closed(self, line: Any) -> None:
        pass

    def host_lost(self, process: Any, why: str, begun: bool = True) -> None:
        self.lost.append(why)

    def site_closed(self, site: Any, why: str) -> None:
        pass


class Two:
    """The home's node and its loop, and the node of another host."""

    def __init__(self, home: Node, host: Node) -> None:
        self.home, self.host = home, host
        self.loop, self.heard = EventLoop(), Recorder()
        host.accept = self.heard.accept

    def serve(self, condition: Callable[[], object], *, both: bool = True) -> bool:
        """Until it holds; whether it does in time."""
        until = time.monotonic() + 30.0
        while not condition():
            if time.monotonic() > until:
                return False
            self.loop.serve(time.monotonic())
            for one in (self.home, self.host)[: 1 + both]:
                one.run_until(lambda: False, 0.001)
        return True

    def site(self, news: Any) -> RemoteSite:
        site = RemoteSite("b", self.loop, news)
        opens = Open("s", Place(b"/", []), b"python", [], [])
        site.open(self.home.connect(self.host.address, site), opens)
        assert self.serve(lambda: self.heard.messages)
        self.heard.messages.clear()
        return site


@pytest.fixture
def two() -> Iterator[Two]:
    with node() as home, node() as host:
        made = Two(home, host)
        yield made
        made.loop._selector.close()


def test_starts_with_large_arguments_arrive_however_many_are_posted_at_once(
    two: Two,
) -> None:
    news = News()
    site, large = two.site(news), [10, 10, 10, 40, 10, 10, 10, 10, 10, 10]
    for number, mib in enumerate(large):
        parcel = sealed([bytes(mib * _MIB)])
        life = Life(1 << 16, 0, f"{number}", {}, 1, b"", b"", 1, Network())
        process = site.start(life, [parcel], Amount())
        os.close(parcel)
        site.kill(process)
    assert two.serve(lambda: len(two.heard.messages) == 2 * len(large) or news.lost)
    assert not news.lost
    told = [(one["type"], one["number"]) for one in two.heard.messages]
    assert told == [
        (what, number + 1) for number in range(len(large)) for what in ("Start", "Kill")
    ]
    sizes = [len(one["parcels"][0]) for one in two.heard.messages[::2]]
    assert sizes == [mib * _MIB for mib in large]
    site.close()
