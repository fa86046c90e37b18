# SPDX-License-Identifier: MIT
"""The output of actors, line by line, on its way to the driver.

Each line gets the actor's name in front. It goes to the driver's own stdout or stderr
(a `Terminal`), or over the lifeline to a driver that shows lines itself, as in a
notebook.
Invariants, with and without a reader:

* The agent waits for no reader: spawns and deaths go on.
* While a terminal is full, the pipes of the actors that print to it are left unread, so
  they slow down, and a slow reader misses no line.
* No actor hangs for a reader that has stopped. Once a terminal is stalled, the pipes
  are read now and then, in a small part of the time, and the oldest lines are dropped.
* Dropped lines are counted, and the count appears in their place.

The reader at the other end of a terminal may stop for hours: a pager, Ctrl-S, a stopped
program. Invariants of `Terminal`:

* Writing never blocks. A pipe or terminal is opened once more, for a non-blocking
  description of the agent's own: the flag on the driver's would be the driver's, too.
* The bytes that wait to be written are bounded. Past half of the bound the terminal is
  full, and further lines should wait. Lines that are added all the same (the last
  words of an actor) displace the oldest lines in the end.
* Lines are written whole or dropped whole, in order.
* That a file takes no more, such as one on a full disk, is told once. A reader that has
  gone is no error.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import select
import socket
import stat
import struct
import termios
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec
from msgspec import Meta

from mooactor.control.lifeline import Lifeline
from mooactor.control.messages import Incarnation, Name, Text
from mooactor.host.eventloop import EventLoop
from mooactor.process.protocol import Configure, Log

if TYPE_CHECKING:
    from mooactor.host.guest import OutputRelay

TAIL_LINES = 20
_MOST_OF_A_TAIL = 1 << 11  # bytes of each of them: its end
_SHOWN_S = 1.0  # between two looks at a line that is not complete
_PIECE = 1 << 14  # bytes that are read at once
_MOST_OPEN = 1 << 16  # bytes of a line that is not complete
MOST_OF_A_LINE = 1 << 17  # bytes
MOST_LINES = 256  # that are handed on at once
MOST_OF_LINES = MOST_OF_A_LINE  # bytes of these

_LAST_PID = 1 << 22  # PID_MAX_LIMIT
Pid = Annotated[int, Meta(ge=1, le=_LAST_PID)]

Emit: TypeAlias = "Callable[[list[bytes]], None]"
#: Where the output of a site's processes goes.
Output: TypeAlias = "Logs | OutputRelay"


class Printer(msgspec.Struct, frozen=True):
    """A process that prints: the label of its actor, its pid, the id of its actor as in
    ``mooactor status``, and its host, if that is not the home's own."""

    label: Text
    pid: Pid
    id: Name = ""
    incarnation: Incarnation = 0
    host: Name = ""


class LineReader:
    """One output pipe of one actor. Whole lines go to `emit` as soon as they arrive, at
    most `MOST_LINES` and `MOST_OF_LINES` bytes at once.

    A line that is not complete, such as a progress bar, is shown as it is about once a
    second while it changes. One that was drawn again and again, with carriage returns,
    is what it was in the end.
    """

    def __init__(
        self,
        fd: int,
        emit: Emit,
        later: Callable[[float, Callable[[], None]], None] | None = None,
    ) -> None:
        """`later`: calls an action after some seconds; None: whole lines only, as they
        are."""
        self.fd = fd
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._emit = emit
        self._partial = b""
        self._later = later
        self._shown = b""  # of the line that is not complete
        self._due = self._over = False

    def read(self) -> bool:
        """Read some of the bytes that are there; False at the end of the pipe."""
        try:
            data = os.read(self.fd, _PIECE)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        for lines in self._lines(data):
            self._emit(lines)
        return bool(data)

    def finish(self) -> None:
        """Hand on the rest, without waiting, and close."""
        self._over = True
        data = _whole(self.fd)
        os.close(self.fd)
        pieces = [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)]
        for piece in (*pieces, b""):
            for lines in self._lines(piece):
                self._emit(lines)

    def _lines(self, data: bytes) -> Iterator[list[bytes]]:
        """The lines that are complete with `data`, or without any more."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        if self._later is not None:
            lines = [_latest(line) for line in lines]
            drawn = b"\r" if self._partial.endswith(b"\r") else b""
            self._partial = _latest(self._partial) + drawn
            self._show_later()
        if self._partial and (not data or len(self._partial) > _MOST_OPEN):
            lines.append(
                self._partial if self._later is None else _latest(self._partial)
            )
            self._partial = b""
        self._keep(lines[-TAIL_LINES:])
        if lines:
            if self._shown and lines[0] == self._shown:
                del lines[0]  # it is there already
            self._shown = b""
        for at in range(0, len(lines), MOST_LINES):
            yield lines[at : at + MOST_LINES]

    def _show_later(self) -> None:
        if self._partial and not self._due and self._later is not None:
            self._due = True
            self._later(_SHOWN_S, self._show)

    def _show(self) -> None:
        """Show the line that is not complete, if it has changed."""
        self._due = False
        now = _latest(self._partial)
        if now and now != self._shown and not self._over and not _unread(self.fd):
            self._shown = now
            self._emit([now])

    def _keep(self, lines: Sequence[bytes]) -> None:
        """The last lines go to all who watch the actor, and stay with its record."""
        for line in lines:
            cut = "…" if len(line) > _MOST_OF_A_TAIL else ""
            self.tail.append(cut + line[-_MOST_OF_A_TAIL:].decode(errors="replace"))


_AT_ONCE = 32  # pipes that are looked at again, in turn
_RETRY_S = 0.01


class Pipes:
    """Those whose lines go to one place. While there is no room, one that has something
    is left unread, so its writer is slowed down. While nobody makes room, such as the
    reader of a terminal that is stopped, they are read a little all the same."""

    def __init__(
        self,
        loop: EventLoop,
        has_room: Callable[[], bool],
        is_stalled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._loop = loop
        self._has_room = has_room
        self._is_stalled = is_stalled
        self._held_up: dict[LineReader, None] = {}  # in that order
        self._due = False  # `look` is

    def watch(self, reader: LineReader) -> None:
        """Read it from here on."""
        self._loop.watch(reader.fd, partial(self._read, reader))

    def unwatch(self, reader: LineReader) -> None:
        """Not any more; nothing happens if it is none of these."""
        self._held_up.pop(reader, None)
        self._loop.unwatch(reader.fd)

    def _read(self, reader: LineReader) -> None:
        if not self._has_room():
            self._loop.unwatch(reader.fd)
            self._held_up[reader] = None
            self._look_again()
        elif not reader.read():
            self._loop.unwatch(reader.fd)

    def _look_again(self) -> None:
        if self._held_up and not self._due:
            self._due = True
            self._loop.later(_RETRY_S, self._look)

    def _look(self) -> None:
        self._due = False
        for reader in list(islice(self._held_up, _AT_ONCE)):
            if self._has_room():
                del self._held_up[reader]
                self.watch(reader)
            elif self._is_stalled():
                del self._held_up[reader]
                if reader.read():
                    self._held_up[reader] = None  # the last one now
        self._look_again()


def _unread(pipe: int) -> int:
    """The bytes in it. While there are some, a line that is not complete is only one
    that is not read yet."""
    found: int = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]
    return found


def _latest(line: bytes) -> bytes:
    """The visible part of a line after its carriage returns."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def one_by_one(emit: Callable[[bytes], None]) -> Emit:
    """Hands each line to `emit`."""

    def hand_on(lines: list[bytes]) -> None:
        for line in lines:
            emit(line)

    return hand_on


def _whole(pipe: int) -> bytes:
    """All that is in it now. Those who can still write may go on and on."""
    try:
        size = _unread(pipe)
        return os.read(pipe, size) if size else b""
    except OSError:
        return b""


# -- to a terminal -----------------------------------------------------------------

_PIPE_BUF = 4096  # bytes that a pipe takes as a whole or not at all
_BOUND = 1 << 21
_STALLED_S = 1.0
_WRITE_AGAIN_S = 0.05


class Terminal:
    """One of the two. The loop writes what it does not take at once."""

    def __init__(
        self,
        fd: int,
        loop: EventLoop,
        bound: int = _BOUND,
        on_failure: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._loop = loop
        self._expecting = False  # to be told, or to try again, when it takes more
        self._bound = bound
        self._on_failure = on_failure
        self._failed = False
        self.fd, self._write = writer(fd)
        self._lines: deque[bytes] = deque()
        self._piece = b""  # is being written
        self._size = 0
        self._dropped = 0
        self._moved = 0.0  # when it last took bytes, or had none to take

    @property
    def waiting(self) -> bool:
        """Whether it has not taken all lines yet."""
        return bool(self._piece or self._lines or self._dropped)

    def has_room(self) -> bool:
        """Whether less than half of the bound waits to be written."""
        return self._size <= self._bound // 2

    def is_stalled(self) -> bool:
        """Whether it is full and has taken nothing for so long that nobody should wait
        for it."""
        quiet_s = time.monotonic() - self._moved
        return not self.has_room() and quiet_s >= _STALLED_S

    def add(self, *lines: bytes) -> None:
        """Write lines, each of which ends with a newline, as soon as that is
        possible."""
        if not self.waiting:
            self._moved = time.monotonic()
        for line in lines:
            if self._size + len(line) > self._bound:
                self.flush()
            self._add(line)
        self.flush()
        self._expect()

    def _expect(self) -> None:
        if self.waiting and not self._expecting:
            self._expecting = True
            self._loop.watch_room(self.fd, self._on_room)

    def _on_room(self) -> None:
        self._loop.unwatch(self.fd)
        self._expecting = False
        if self.flush():
            self._expect()
        elif self.waiting:
            # The room that was reported is gone: do not try again at once.
            self._expecting = True
            self._loop.later(_WRITE_AGAIN_S, self._on_room)

    def _add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        while self._size > self._bound and len(self._lines) > 1:
            self._size -= len(self._lines.popleft())
            self._dropped += 1

    def flush(self) -> bool:
        """Write as much as it takes; whether that was anything."""
        some = False
        while self._piece or self._take_piece():
            try:
                written = self._write(self._piece)
            except BlockingIOError:
                return some
            except OSError as error:
                self._forget()
                self._tell(error)
                return some
            self._piece = self._piece[written:]
            self._size -= written
            self._moved, some = time.monotonic(), True
        return some

    def _take_piece(self) -> bool:
        """The next whole lines, as many as leave together."""
        piece = bytearray()
        if self._dropped:
            piece += lost(self._dropped)
            self._size += len(piece)
            self._dropped = 0
        while self._lines and (
            not piece or len(piece) + len(self._lines[0]) <= _PIPE_BUF
        ):
            piece += self._lines.popleft()
        self._piece = bytes(piece)
        return bool(piece)

    def _tell(self, error: OSError) -> None:
        if not self._failed and not isinstance(error, BrokenPipeError):
            self._failed = True
            self._on_failure(error.strerror or str(error))

    def _forget(self) -> None:
        self._lines.clear()
        self._piece = b""
        self._size = self._dropped = 0

    def drain(self, patience_s: float, until: float) -> None:
        """Write the waiting lines, until so much time passes without any progress, and
        at the latest until `until` (monotonic)."""
        poller = select.poll()
        poller.register(self.fd, select.POLLOUT)
        while self.waiting:
            if not self.flush():
                left = min(patience_s, until - time.monotonic())
                if left <= 0 or not poller.poll(left * 1000):
                    return
                if not self.flush():
                    time.sleep(0.001)  # it was reported writable, and is not

    def give_up(self) -> int:
        """Drop the lines that it has not taken; return their number."""
        number = self._dropped + len(self._lines) + bool(self._piece)
        self._forget()
        return number


def lost(count: int) -> bytes:
    """The line that stands for those that were dropped."""
    lines = "1 line of actors is" if count == 1 else f"{count} lines of actors are"
    return f"mooactor: {lines} lost, because nobody read them in time\n".encode()


def writer(fd: int) -> tuple[int, Callable[[bytes], int]]:
    """A writer to the file of `fd` that does not block."""
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        mode = 0  # it is closed, and writing will say so
    if stat.S_ISSOCK(mode):
        sock = socket.socket(fileno=os.dup(fd))
        return sock.fileno(), lambda data: sock.send(data, socket.MSG_DONTWAIT)
    if stat.S_ISFIFO(mode) or os.isatty(fd):
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            own = os.open(f"/proc/self/fd/{fd}", flags)
            return own, lambda data: os.write(own, data)
    # A file takes everything. A pipe or terminal of another user, left to this one,
    # cannot be opened anew: then look first, and write little.
    poller = select.poll()
    poller.register(fd, select.POLLOUT)

    def write(data: bytes) -> int:
        if not poller.poll(0):
            raise BlockingIOError
        return os.write(fd, data[:_PIPE_BUF])

    return fd, write


# -- to the driver -----------------------------------------------------------------

_MOST_LOGS = 1 << 24  # bytes for a driver that shows them itself
_DRAIN_S = 0.5  # without any progress
_DRAIN_MOST_S = 1.5


def prefix_of(label: str, pid: int, host: str = "") -> bytes:
    """The beginning of each line of an actor's; `host`: if it is another one than the
    driver's."""
    where = f" host={host}" if host else ""
    return f"({label} pid={pid}{where}) ".encode(errors="replace")


class Logs:
    """The home's part in it."""

    def __init__(self, loop: EventLoop, driver: Lifeline) -> None:
        self._loop = loop
        self._driver = driver
        self._config: Configure | None = None
        stdout = Terminal(1, loop, on_failure=self._stdout_failed)
        self._terminals = {1: stdout, 2: Terminal(2, loop)}
        self._pipes = {
            number: Pipes(loop, one.has_room, one.is_stalled)
            for number, one in self._terminals.items()
        }
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
        self._pipes[number].watch(reader)
        return reader

    def end(self, reader: LineReader) -> None:
        """Its writer is dead: read the rest, and close."""
        for pipes in self._pipes.values():
            pipes.unwatch(reader)
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
            self._terminals[number].add(*(prefix + line + b"\n" for line in lines))

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
        self._terminals[2].add(f"{text} are lost\n".encode())

    # -- the agent's own words ---------------------------------------------

    def stderr(self) -> io.TextIOBase:
        """A file for the agent's own messages, which must not block it either."""
        return _Words(self._terminals[2].add)

    # -- the end -----------------------------------------------------------

    def close(self) -> None:
        """Write as much as the terminals still take; the rest is lost."""
        until, count = time.monotonic() + _DRAIN_MOST_S, 0
        for terminal in self._terminals.values():
            terminal.drain(_DRAIN_S, until)
            count += terminal.give_up()
        if count:
            # The other one may be read.
            for terminal in self._terminals.values():
                terminal.add(lost(count))


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
