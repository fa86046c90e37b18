# SPDX-License-Identifier: MIT
"""The output of actors, on its way to the driver.

Each line gets the actor's name in front. It goes to the driver's own stdout or stderr
(see `terminal`), or over the lifeline to a driver that shows lines itself, as in a
notebook. Invariants, with and without a reader:

* The agent waits for no reader: spawns and deaths go on.
* While a terminal is full, the pipes of the actors that print to it are left unread, so
  they slow down, and a slow reader misses no line.
* No actor hangs for a reader that has stopped. Once a terminal is stalled, the pipes
  are read now and then, in a small part of the time, and the oldest lines are dropped.
* Dropped lines are counted, and the count appears in their place.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from mooactor.host.eventloop import EventLoop, Line
from mooactor.host.output import LineReader, Pipes
from mooactor.host.protocol import Printer
from mooactor.host.terminal import Terminal, lost
from mooactor.process.protocol import Configure, Log

if TYPE_CHECKING:
    from mooactor.host.relays import OutputRelay

_MOST_LOGS = 1 << 24  # bytes for a driver that shows them itself
_RETRY_S = 0.05
_DRAIN_S = 0.5  # without any progress
_DRAIN_MOST_S = 1.5


def prefix_of(label: str, pid: int, host: str = "") -> bytes:
    """The beginning of each line of an actor's; `host`: if it is another one than the
    driver's."""
    where = f" host={host}" if host else ""
    return f"({label} pid={pid}{where}) ".encode(errors="replace")


#: Where the output of a site's processes goes.
Output: TypeAlias = "Logs | OutputRelay"


class Logs:
    """The home's part in it."""

    def __init__(self, loop: EventLoop, driver: Line) -> None:
        self._loop = loop
        self._driver = driver
        self._config: Configure | None = None
        stdout = Terminal(1, on_failure=self._stdout_failed)
        self._streams = {1: _Stream(loop, stdout), 2: _Stream(loop, Terminal(2))}
        self._dropped = 0  # lines for the lifeline
        #: Hears of all lines, before they are shown.
        self.history: Callable[[int, Printer, list[bytes]], None] | None = None

    def configure(self, config: Configure) -> None:
        """Set whether the driver wants lines, and by which way."""
        self._config = config

    def begin(self, number: int, fd: int, printer: Printer) -> LineReader:
        """Relay the output of `fd` from here on, a process's stdout (1) or stderr
        (2)."""
        emit = partial(self.emit, number, printer)
        reader = LineReader(fd, emit, self._loop.later)
        self._streams[number].pipes.watch(reader)
        return reader

    def end(self, reader: LineReader) -> None:
        """Its writer is dead: read the rest, and close."""
        for stream in self._streams.values():
            stream.pipes.unwatch(reader)
        reader.finish()

    def emit(self, number: int, printer: Printer, lines: list[bytes]) -> None:
        """Show lines of an actor's."""
        if self.history is not None:
            self.history(number, printer, lines)
        assert self._config is not None
        if not self._config.forward_logs:
            return
        prefix = prefix_of(printer.label, printer.pid, printer.host)
        if self._config.logs_by_lifeline:
            for line in lines:
                self._send(number, (prefix + line).decode(errors="replace"))
        else:
            self._streams[number].add([prefix + line + b"\n" for line in lines])

    # -- by the lifeline ---------------------------------------------------

    def _send(self, number: int, line: str) -> None:
        # A driver that is stopped, or holds the GIL for minutes, must not be given up
        # for lines that it has not read.
        if self._driver.kept > _MOST_LOGS:
            self._dropped += 1
            return
        self._loop.post(self._driver, Log(number, line))

    def after_round(self) -> None:
        """Once there is room: tell the driver the number of lines that it has
        missed."""
        if self._dropped and self._driver.kept <= _MOST_LOGS:
            count, self._dropped = self._dropped, 0
            self._send(2, lost(count).decode().rstrip())

    def _stdout_failed(self, why: str) -> None:
        text = f"mooactor: standard output cannot be written ({why}): lines of actors"
        self._streams[2].add([f"{text} are lost\n".encode()])

    # -- the agent's own words ---------------------------------------------

    def stderr(self) -> io.TextIOBase:
        """A file for the agent's own messages, which must not block it either."""
        return _Words(lambda line: self._streams[2].add([line]))

    # -- the end -----------------------------------------------------------

    def close(self) -> None:
        """Write as much as the terminals still take; the rest is lost."""
        until, count = time.monotonic() + _DRAIN_MOST_S, 0
        for stream in self._streams.values():
            stream.terminal.drain(_DRAIN_S, until)
            count += stream.terminal.give_up()
        if count:
            # The other one may be read.
            for stream in self._streams.values():
                stream.terminal.add(lost(count))


class _Stream:
    """One terminal, and the pipes whose lines go there."""

    def __init__(self, loop: EventLoop, terminal: Terminal) -> None:
        self.terminal = terminal
        self._loop = loop
        self.pipes = Pipes(
            loop, lambda: not terminal.full, lambda: not terminal.stalls_in()
        )
        self._expecting = False  # to be told, or to try again, when it takes more

    def add(self, lines: list[bytes]) -> None:
        self.terminal.add(*lines)
        self._expect()

    def _expect(self) -> None:
        if self.terminal.waiting and not self._expecting:
            self._expecting = True
            self._loop.watch_room(self.terminal.fd, self._on_room)

    def _on_room(self) -> None:
        self._loop.unwatch(self.terminal.fd)
        self._expecting = False
        some = self.terminal.flush()
        if some:
            self._expect()
        elif self.terminal.waiting:
            # The room that was reported is gone: do not try again at once.
            self._expecting = True
            self._loop.later(_RETRY_S, self._on_room)


class _Words(io.TextIOBase):
    """A text file of which every line goes to a function."""

    def __init__(self, add: Callable[[bytes], None]) -> None:
        self._add = add
        self._begun = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._add((line + "\n").encode(errors="replace"))
        return len(text)
