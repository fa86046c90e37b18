# SPDX-License-Identifier: MIT
"""Connections to other hosts that come and go at any moment."""

import select
import time

import pytest
import zmq

from mooactor.control import curve
from mooactor.control.clock import REAL
from mooactor.control.curve import Gate
from mooactor.control.ways import Ways
from mooactor.testing import VirtualClock
from tests.control.nodes import free_port

KEY = bytes(range(16))


class Loop:
    """The housekeeper's work for ways, in the thread of the test."""

    def __init__(self, clock=REAL):
        self.poller, self.actions = select.poll(), {}
        self.clock, self.timers = clock, clock.timers()

    def watch(self, fd, action):
        self.actions[fd] = action
        self.poller.register(fd, select.POLLIN)

    def unwatch(self, fd):
        if self.actions.pop(fd, None):
            self.poller.unregister(fd)

    def after(self, seconds, action):
        self.timers.after(seconds, action)

    def turn(self):
        for fd, _ in self.poller.poll(10):
            if fd in self.actions:
                self.actions[fd]()
        self.timers.run_due()


class Target:
    """A process that takes what is sent to it."""

    def __init__(self, process_id):
        self.process_id = process_id

    def connect(self, socket, head, part_bytes):
        return True

    def hold(self):
        pass

    def drop(self):
        pass


@pytest.fixture
def context():
    with zmq.Context() as made:
        yield made


@pytest.fixture
def listener(context):
    """A process of another host: its address, and its gate."""
    gate = Gate(context, KEY)
    with context.socket(zmq.ROUTER) as router:
        router.linger = 0
        curve.make_server(router, KEY)
        port = router.bind_to_random_port("tcp://127.0.0.1")
        yield f"tcp://127.0.0.1:{port}", gate
    gate.close()


def test_ways_that_end_at_any_moment_hold_up_no_other(context, listener):
    address, gate = listener
    loop, standing = Loop(), []
    loop.watch(gate.fileno(), gate.serve)
    ways = Ways(context, 1, KEY, loop, lambda *_: None, standing.append)
    nobody = f"tcp://127.0.0.1:{free_port()}"
    for number in range(2, 500):
        ways.open(Target(number), "b", nobody)
        time.sleep(number % 10 * 2e-5)  # its events come before, meanwhile, or later
        ways.forget(number)

    ways.open(Target(500), "b", address)
    end = time.monotonic() + 15
    while not standing and time.monotonic() < end:
        loop.turn()

    assert standing == [500]
    ways.close(0)


def test_the_way_to_another_process_is_tried_for_ten_seconds_ever_later(context):
    clock, broken, pauses = VirtualClock(), list[tuple[float, str]](), list[float]()
    loop, begun = Loop(clock), clock.now()

    def end(_: object, why: str, __: object) -> None:
        broken.append((clock.now() - begun, why))

    ways = Ways(context, 1, KEY, loop, end, print)
    ways.open(Target(2), "b", f"tcp://127.0.0.1:{free_port()}")
    while not broken:
        while not (len(loop.timers) or broken):
            loop.turn()
        if not broken:
            pauses.append((loop.timers.due() or 0.0) - clock.now())
            clock.advance(pauses[-1] + 1e-6)
    ways.close(0)
    assert pauses[:8] == pytest.approx(
        [0.01 * 2**n for n in range(7)] + [1.0], abs=1e-4
    )
    ((after_s, why),) = broken
    assert 10.0 < after_s <= 11.0 and "in 1" in why
    assert "nobody takes the connection" in why
