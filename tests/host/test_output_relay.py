# SPDX-License-Identifier: MIT
"""Output of processes on a host, to a home that handles it slowly."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator

import pytest

from mooactor.host import guest, output
from mooactor.host.eventloop import EventLoop
from mooactor.host.guest import OutputRelay
from mooactor.host.output import MOST_LINES, MOST_OF_LINES, Printer
from tests.host.test_relays import Slow

_KIB = 1 << 10


class Process:
    """A process that prints, and all that it has printed."""

    def __init__(self, name: int, output: OutputRelay) -> None:
        self.about = Printer(str(name), 1)
        read, self.pipe = os.pipe()
        for fd in (read, self.pipe):
            os.set_blocking(fd, False)
        self.reader = output.begin(1, read, self.about)
        self.printed = b""
        self.alive = True

    def print(self, data: bytes) -> bool:
        """Whether there was room for some of it."""
        try:
            written = os.write(self.pipe, data)
        except BlockingIOError:
            return False
        self.printed += data[:written]
        return True

    def fill(self, data: bytes = b"step 1234 loss 0.123\n") -> None:
        """Print until the pipe is full."""
        while self.print(data * (4096 // len(data))):
            pass

    def lines(self) -> list[bytes]:
        """Those that are to reach the home, once it is dead."""
        *lines, last = self.printed.split(b"\n")
        return [*lines, last] if last else lines


class Host:
    """An event loop with printers, and their channel."""

    def __init__(self) -> None:
        self.loop, self.channel = EventLoop(), Slow()
        self.output = OutputRelay(self.loop, self.channel)  # type: ignore[arg-type]
        self.printers: list[Process] = []

    def printer(self) -> Process:
        self.printers.append(Process(len(self.printers), self.output))
        return self.printers[-1]

    def end(self, printer: Process) -> None:
        """It dies, with one more writer to its pipe that lives on."""
        printer.alive = False
        self.output.end(printer.reader)
        assert self.of(printer) == printer.lines()

    def of(self, printer: Process) -> list[bytes]:
        """Its lines that went to the channel."""
        mine = [one for one in self.channel.messages if one.printer == printer.about]
        return [line for one in mine for line in one.lines.split(b"\n")]

    def round(self) -> None:
        self.loop.serve(time.monotonic())

    def serve(self, condition: Callable[[], object]) -> None:
        until = time.monotonic() + 20.0
        while not condition():
            assert time.monotonic() < until
            self.round()

    def settle(self) -> None:
        """Have everything handled, of those too that live."""

        def quiet() -> bool:
            self.channel.send()
            return not self.output._pipes._held_up and all(
                len(self.of(one)) >= one.printed.count(b"\n") for one in self.printers
            )

        self.serve(quiet)

    def close(self) -> None:
        for one in self.printers:
            if one.alive:
                self.end(one)
            os.close(one.pipe)
        self.channel.close()
        self.loop._selector.close()


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(output, "_RETRY_S", 1e-6)
    made = Host()
    yield made
    made.close()


@pytest.mark.parametrize("line", [b"\n", b"step 1234\n", b"x" * 4000 + b"\n"])
def test_a_printer_is_slowed_down_to_what_the_home_handles(
    host: Host, line: bytes
) -> None:
    talker, other = host.printer(), host.printer()
    for _ in range(100):
        talker.fill(line)
        host.round()
    assert talker.reader in host.output._pipes._held_up
    assert not talker.print(line)
    assert host.channel.queued < 2 * guest._MOST_PRINTED
    at_once, in_pipe = output._PIECE // len(line), 64 * _KIB // len(line)
    most = guest._MOST_PRINTED // (len(line) + guest._PER_LINE)
    assert talker.printed.count(b"\n") < most + at_once + in_pipe

    other.print(b"a word\n")
    host.settle()
    assert host.of(talker) == talker.lines()
    assert host.of(other) == [b"a word"]
    assert talker.print(line)


def test_every_message_is_one_that_the_home_takes(host: Host) -> None:
    one = host.printer()
    for data in (b"\n" * 60_000, b"x" * 65_000, b"y" * 65_000 + b"\n\n", b"z" * 9):
        for at in range(0, len(data), 4 * _KIB):
            assert one.print(data[at : at + 4 * _KIB])
            host.round()
            host.channel.send()
    one.alive = False
    host.output.end(one.reader)  # an open line is cut after 64 KiB
    for message in host.channel.messages:
        assert message.lines.count(b"\n") < MOST_LINES
        assert len(message.lines) <= MOST_OF_LINES
    assert b"".join(host.of(one)) == one.printed.replace(b"\n", b"")


def test_the_last_words_of_a_dead_printer_do_not_wait_for_room(host: Host) -> None:
    living, dead = host.printer(), host.printer()
    for _ in range(100):
        living.fill()
        host.round()
    dead.print(b"the reason\nin two lines")
    host.end(dead)
    assert list(dead.reader.tail) == ["the reason", "in two lines"]


@pytest.mark.parametrize("seed", range(6))
def test_every_schedule_keeps_each_line_in_its_place_and_the_bounds(
    host: Host, seed: int
) -> None:
    rng = random.Random(seed)
    for _ in range(4):
        host.printer()
    for _ in range(600):
        living = [one for one in host.printers if one.alive] or [host.printer()]
        match rng.choice("ppppfrrrrcc" + "d" * (rng.random() < 0.1)):
            case "p":
                words = [rng.randbytes(rng.choice((0, 0, 5, 300))) for _ in range(9)]
                words = [word.replace(b"\r", b"") for word in words]
                rng.choice(living).print(b"\n".join(words))
            case "f":
                rng.choice(living).fill(rng.choice((b"\n", b"word\n")))
            case "r":
                host.round()
            case "c":
                host.channel.send(rng.randrange(1, 100))
            case "d":
                host.end(rng.choice(living))
        dead = sum(not one.alive for one in host.printers)
        most = 2 * guest._MOST_PRINTED + dead * 100 * _KIB
        assert host.channel.queued < most
    host.settle()
    for one in host.printers:
        if one.alive:
            host.end(one)
    host.settle()
    for one in host.printers:
        assert host.of(one) == one.lines()
