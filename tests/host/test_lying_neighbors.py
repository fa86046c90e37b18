# SPDX-License-Identifier: MIT
"""A member of the cluster that says anything to the home of a session with a namespace.

It has the cluster's key, so it may run code as it likes; but what it says by mistake
must end no session. What is chosen at random is in tests/fuzz/neighbors.py.
"""

from __future__ import annotations

import threading

import pytest

import mooactor as moo
from mooactor.control import secret
from mooactor.control.node import Node
from mooactor.host.eventloop import EventLoop
from mooactor.host.membership import Membership
from mooactor.host.versions import versions
from tests.conftest import eventually

pytestmark = pytest.mark.slow


class Counter:
    def add(self, amount):
        return amount + 1


class Liar(threading.Thread):
    """The home of a session that is none, and says these things, one each time.

    `row`: what it announces beside the truth.
    """

    def __init__(self, made, messages=(), **row):
        super().__init__(name="liar")
        self._made, self._left, self._row = made, list(messages), row
        self.asked = 0  # how often for names
        self.said, self._over = threading.Event(), False
        self.joined = False
        self.start()

    def run(self):
        key = secret.read(str(self._made.key_file)).secret
        with self._made.network.inside("d"):
            loop, node = EventLoop(), Node(key, bind=self._made.network.address("d"))
        row = {
            "name": "liar",
            "id": node.id.hex(),
            "address": node.address,
            "kind": "home",
            "cpus": 0,
            "gpus": 0,
            "memory": 0,
            "labels": {},
            "free": {"cpus": 0, "gpus": 0, "memory": 0},
            "actors": 0,
            "versions": versions(),
            "sessions": ["ab"],
            "namespace": "shared",
            **self._row,
        }
        membership = Membership(
            node,
            [self._made.address],
            lambda: row,
            loop.later,
            watch=False,
            on_joined=self._joined,
        )
        node.accept = lambda channel: self
        loop.watch(node.fileno(), node.serve)
        while not self._over:
            loop.serve(node.due())
            node.serve()
        membership.close()
        node.close()

    def _joined(self, address, notes):
        self.joined = True

    def handle(self, channel, message):
        if message["op"] != "names":
            return
        self.asked += 1
        channel.post({"ev": "told"})
        if self._left:
            channel.post(self._left.pop(0))
        else:
            self.said.set()

    def channel_closed(self, channel, why):
        pass

    def close(self):
        self._over = True
        self.join(20)
        assert not self.is_alive()


def test_no_news_of_a_neighbor_ends_the_session(here):
    liar = Liar(
        here,
        [
            {"ev": "said", "line": []},
            {"ev": "named", "name": "x"},
            {"ev": "named", "name": 1, "id": 1, "label": "y", "handle": b"z"},
            {"ev": "named", "name": "x", "id": 1, "label": 2, "handle": b"z"},
            {"ev": "named", "name": "x", "id": "1", "label": "y", "handle": b"z"},
            {"ev": "named", "name": "x", "id": 1, "label": "y", "handle": 1 << 40},
            {"ev": "answer", "number": {}, "value": 1},
            {"ev": "over", "program": "p"},
            {"ev": "over", "program": "p", "how": "x" * (1 << 20)},
            {"no": "ev"},
        ],
    )
    try:
        with moo.init(namespace="shared", local=False):
            mine = moo.on(Counter).spawn()
            assert liar.said.wait(60)  # each of them has ended a channel
            assert mine.add(5) == 6
    finally:
        liar.close()


def test_a_home_that_is_not_where_the_broker_says_ends_no_session(here):
    liar = Liar(here, id="ab" * 8)
    try:
        assert eventually(lambda: liar.joined)
        with moo.init(namespace="shared", local=False):
            mine = moo.on(Counter, name="mine").spawn()
            # it is found, and given up, again and again
            assert eventually(lambda: liar.asked > 1)
            assert mine.add(5) == 6
            assert moo.lookup("mine").add(6) == 7
    finally:
        liar.close()
