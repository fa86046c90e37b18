# SPDX-License-Identifier: MIT
"""The agent's requests for processes: each has one end, whoever dies in between."""

from __future__ import annotations

import gc
import os
import random
import signal
import socket
import subprocess
import time
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import Any, cast

from mooactor.control.lifeline import Lifeline, LifelineClosed
from mooactor.control.messages import Message
from mooactor.host import protocol
from mooactor.host.eventloop import EventLoop
from mooactor.host.output import LineReader, Printer
from mooactor.host.site import LocalProcess, Site
from mooactor.host.zygote import ORDERS, Birth, Born, Prepare, Spare
from mooactor.process.protocol import Life
from mooactor.tensors.network import Network
from tests.conftest import leaked, resources

SEED = int(os.environ.get("MOOACTOR_TEST_SEED", "8"))
NOBODY = 1 << 30  # from there on, no process has such a pid


def life_of(actor: int) -> Life:
    return Life(actor, 0, "Busy", {}, 1, b"", b"", 1, Network())


class Asked:
    """A zygote or a spare process, as the site sees it: the other end of a line."""

    def __init__(self, world: World, theirs: socket.socket) -> None:
        self.world = world
        self.line = Lifeline(theirs)

    def become(self) -> None:
        """Let the processes that were asked for be born."""
        with suppress(LifelineClosed):  # it was dropped
            for data, fds in self.line.receive_nowait():
                for fd in fds:
                    os.close(fd)
                message = ORDERS.decode(data)
                if isinstance(message, Birth):
                    self.world.living.append(message.life.actor_id)
                    number = message.number
                    self.line.send(Born(number, NOBODY + number))
                elif isinstance(message, Prepare):
                    self.world.prepared = message.number


class Silent:
    """A reaper and an output in one, for a site that has neither."""

    def add(self, site: Site) -> None: ...
    def remove(self, site: Site) -> None: ...
    def begin(self, number: int, fd: int, printer: Printer) -> LineReader:
        return LineReader(fd, lambda lines: None)

    def end(self, reader: LineReader) -> None:
        reader.finish()


class World(Site):
    """A site, its family, and in the place of processes this one."""

    def __init__(self, loop: EventLoop, rng: random.Random) -> None:
        self.rng = rng
        silent = cast(Any, Silent())
        super().__init__("here", loop, silent, silent)
        self.family = cast(Any, self)
        self.requests = 0
        self.living: list[int] = []  # the requests for which a process was born
        self.known: list[int] = []  # those of which the agent was told that
        self.refused: list[int] = []
        self.spares: list[Asked] = []
        self.exec_zygote()

    def exec_zygote(self) -> None:
        self.prepared = 0
        ours, theirs = socket.socketpair()
        self.zygote = Asked(self, theirs)
        self.adopt_zygote((NOBODY, ours))
        self.reaped(NOBODY, 9)

    def happened(self, process: LocalProcess, message: Message) -> None:
        if isinstance(message, protocol.Born):
            self.known.append(process.life.actor_id)
        else:
            assert isinstance(message, protocol.Failed)
            if message.again and self.rng.random() < 0.9:
                self.start(process.life, [])
            else:
                self.refused.append(process.life.actor_id)

    def offer(self) -> None:
        """The zygote has forked a spare process."""
        ours, theirs = socket.socketpair()
        self.spares.append(Asked(self, theirs))
        with ours, suppress(LifelineClosed):
            self.zygote.line.send(Spare(self.prepared), [ours.fileno()])

    def step(self) -> None:
        """Anything that may happen next."""
        rng = self.rng
        acts = ["ask", "offer", "fork", "spare", "die", "import"]
        match rng.choices(acts, [3, 3, 2, 3, 1, 1])[0]:
            case "ask":
                self.requests += 1
                self.start(life_of(self.requests), [])
            case "offer" if self.zygote.line.fileno() >= 0:  # it lives
                self.offer()
            case "fork":
                self.zygote.become()
            case "spare" if self.spares:
                spare = self.spares.pop(rng.randrange(len(self.spares)))
                if rng.random() < 0.7:
                    spare.become()
                spare.line.close()
            case "die":
                self.zygote.line.close()
            case "import":
                self.preload([f"module{self.requests}"])

    def settle(self, loop: EventLoop) -> None:
        """All that is still alive does what it was asked for."""
        while len(self.known) + len(self.refused) < self.requests:
            self.zygote.become()
            for spare in self.spares:
                spare.become()
            loop.serve(time.monotonic())

    def end(self) -> None:
        self.close()
        for asked in (self.zygote, *self.spares):
            asked.line.close()


def test_each_request_ends_as_one_process_whoever_dies() -> None:
    before = resources()
    for seed in range(SEED, SEED + 100):
        rng, loop = random.Random(seed), EventLoop()
        world = World(loop, rng)
        for _ in range(60):
            world.step()
            while rng.random() < 0.5:
                loop.serve(time.monotonic())
        world.settle(loop)
        assert sorted(world.known) == sorted(world.living), f"seed {seed}"
        ends = sorted(world.known + world.refused)
        assert ends == list(range(1, world.requests + 1)), f"seed {seed}"
        world.end()
    del world, loop
    gc.collect()
    assert not leaked(before)


def test_the_end_of_a_site_kills_what_was_born_and_nobody_knows_it_yet() -> None:
    """The agent is told of a birth, and before it has read that the session ends. The
    actor may already hold the GIL in C: it sees no end of its lifeline."""
    before = resources()
    loop = EventLoop()
    silent = cast(Any, Silent())
    site = Site("here", loop, silent, silent)
    site.family = cast(Any, SimpleNamespace(line_closed=lambda line: None))
    ours, theirs = socket.socketpair()
    with closing(Lifeline(theirs)) as zygote:
        site.adopt_zygote((NOBODY, ours))
        site.reaped(NOBODY, 9)
        site.start(life_of(1), [])
        ((data, fds),) = zygote.receive_nowait()
        request = ORDERS.decode(data)
        assert isinstance(request, Birth)
        actor = subprocess.Popen(["sleep", "600"], start_new_session=True)
        zygote.send(Born(request.number, actor.pid))
        try:
            site.close()
            assert actor.wait(30) == -signal.SIGKILL
        finally:
            actor.kill()
            actor.wait()
            for fd in fds:
                os.close(fd)
    assert not len(site)
    del site, loop
    gc.collect()
    assert not leaked(before)
