# SPDX-License-Identifier: MIT
"""The agent's event loop: descriptors, lines and timers, all in one thread.

A line leads to a process: a lifeline to one of this host, or a `remote.RemoteLine`,
which has no descriptor, to one of another host.

Invariant: a listener is called by the loop (`serve`, `read_line`) and by code that
closes a line, never from within `post`. So code may post between two changes that
belong together, and messages that a process sent before it died are read before its end
is news.
"""

from __future__ import annotations

import abc
import contextlib
import os
import selectors
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from mooactor.control.clock import REAL, Clock
from mooactor.control.lifeline import Lifeline, LifelineClosed
from mooactor.control.messages import Message
from mooactor.process import signals
from mooactor.process.protocol import Reply

_LONGEST_S = 3600.0  # epoll takes no infinite or very large timeout


class FarLine(abc.ABC):
    """The way to a process of another host or session, over a channel: others bring
    its messages, by `EventLoop.arrived`. ``number`` names it at the other end."""

    def __init__(self, number: int) -> None:
        self.number = number

    @abc.abstractmethod
    def hand_on(self, message: Message, fds: Sequence[int]) -> None:
        """Send it at once: the channel has the bound."""

    def close(self) -> None:  # noqa: B027
        """The other end hears of it otherwise, if at all."""


#: A way to one process.
Line: TypeAlias = "Lifeline | FarLine"


class Listener(Protocol):
    """The receiver of a lifeline's news."""

    def handle(self, line: Line, data: bytes, fds: list[int]) -> None:
        """Act on a message: these are its bytes. The descriptors stay the loop's, which
        closes them."""

    def line_closed(self, line: Line) -> None:
        """The line has ended; called once."""


class Node(Protocol):
    """See `control.node.Node`: it has a descriptor, and times of its own."""

    def fileno(self) -> int: ...
    def due(self) -> float | None: ...
    def serve(self) -> None: ...


class EventLoop:
    """Waits on everything at once; never blocks on any one of them."""

    def __init__(self, clock: Clock = REAL) -> None:
        self.clock = clock
        self._timers = clock.timers()
        self._selector = selectors.DefaultSelector()
        self._listeners: dict[Line, Listener] = {}
        self._paused: set[Lifeline] = set()  # that are left unread
        self._held: set[Lifeline] | None = None  # lines with messages for `together`
        self._node: Node | None = None
        self._reports: deque[str] = deque()
        self._report: Callable[[str], object] = self._reports.append

    def serve(self, latest: float | None = None) -> None:
        """Wait for events, at most until `latest` (monotonic), and act on them."""
        for key, _ in self._selector.select(self._timeout(latest)):
            # One served earlier in this round may have ended this one, and the number
            # may belong to another by now.
            if self._selector.get_map().get(key.fd) == key:
                key.data()
        self._timers.run_due()
        due = None if self._node is None else self._node.due()
        if self._node is not None and due is not None and due <= self.clock.now():
            self._node.serve()
        while self._reports:
            self._report(self._reports.popleft())

    def _timeout(self, latest: float | None) -> float | None:
        node = None if self._node is None else self._node.due()
        times = [at for at in (self._timers.due(), latest, node) if at is not None]
        if not times:
            return None
        return min(_LONGEST_S, max(0.0, min(times) - self.clock.now()))

    def later(self, delay: float, action: Callable[[], None]) -> None:
        """Call `action` after `delay` seconds; at once if there is none."""
        if delay <= 0:
            action()
        else:
            self._timers.after(delay, action)

    # -- descriptors -------------------------------------------------------

    def watch(self, fd: int, action: Callable[[], None]) -> None:
        """Call `action` whenever `fd` is readable."""
        self._selector.register(fd, selectors.EVENT_READ, action)

    def watch_room(self, fd: int, action: Callable[[], None]) -> None:
        """Call `action` whenever `fd` can be written to, or nobody will read there."""
        self._selector.register(fd, selectors.EVENT_WRITE, action)

    def unwatch(self, fd: int) -> None:
        """Stop watching `fd`. Does nothing if it is not watched."""
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def wake_on_signals(
        self, action: Callable[[], None] = lambda: None
    ) -> Callable[[], None]:
        """Have each signal wake the loop, which calls `action`. Call the result to end
        that."""
        # The signal's number is written to the pipe.
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)

        def woken() -> None:
            with contextlib.suppress(BlockingIOError):
                while len(os.read(read, 4096)) == 4096:
                    pass
            action()

        def end() -> None:
            signal.set_wakeup_fd(-1)
            self.unwatch(read)
            os.close(read)
            os.close(write)

        self.watch(read, woken)
        return end

    def serve_node(self, node: Node) -> None:
        """Serve the node, the only one here."""
        self._node = node
        self.watch(node.fileno(), node.serve)

    def leave_node(self) -> None:
        """Serve none any more; to be called before it is closed."""
        if self._node is not None:
            self.unwatch(self._node.fileno())
            self._node = None

    def report_on_sigusr1(
        self,
        name: str,
        parts: Callable[[], Iterable[str]],
        write: Callable[[str], object],
    ) -> None:
        """Have `write` called with the report of this process, beside these lines: by
        the loop, which the signal wakes, for a handler must not write."""
        self._report = write
        signals.report_on_sigusr1(name, parts, write=self._reports.append)

    # -- lifelines ---------------------------------------------------------

    def watch_line(self, line: Line, listener: Listener) -> None:
        """Hand its messages to the listener, until it is closed."""
        self._listeners[line] = listener
        if isinstance(line, Lifeline):
            self._expect(line, selectors.EVENT_READ)

    def is_open(self, line: Line) -> bool:
        return line in self._listeners

    def pause_reading(self, line: Lifeline) -> None:
        """Leave what it says from here on in its socket, and its end unknown, until
        `resume_reading`. Messages that were read together with the present one come
        still, and all of them to the one who reads the line himself."""
        if self.is_open(line):
            self._paused.add(line)
            self._expect(line, selectors.EVENT_WRITE if line.kept else 0)

    def resume_reading(self, line: Lifeline) -> None:
        """The opposite of `pause_reading`."""
        if line in self._paused:
            self._paused.discard(line)
            more = selectors.EVENT_WRITE if line.kept else 0
            self._expect(line, selectors.EVENT_READ | more)

    def _serve_line(self, line: Lifeline) -> None:
        if line in self._paused:
            self._send_kept(line)
        else:
            self.read_line(line)

    def read_line(self, line: Lifeline) -> bool:
        """Hand on its arrived messages, send the waiting ones; False if there were
        none."""
        listener = self._listeners.get(line)
        if listener is None:
            return False
        try:
            received = line.receive_nowait()
        except LifelineClosed:
            self.close_line(line)
            return False
        for data, fds in received:
            self._hand_on(listener, line, data, fds)
        if self.is_open(line):
            self._send_kept(line)
        return bool(received)

    def _send_kept(self, line: Lifeline) -> None:
        try:
            more = selectors.EVENT_WRITE if line.flush() else 0
            self._expect(line, selectors.EVENT_READ | more)
        except LifelineClosed:
            self._give_up(line)

    def _give_up(self, line: Lifeline) -> None:
        """Nobody will read there: the end is known once all that came is read."""
        line.give_up()
        self._expect(line, selectors.EVENT_READ)

    def arrived(self, line: FarLine, data: bytes, fds: list[int]) -> None:
        """Hand on a message that has come over a channel, and close `fds`."""
        listener = self._listeners.get(line)
        if listener is not None:
            self._hand_on(listener, line, data, fds)

    def _hand_on(
        self, listener: Listener, line: Line, data: bytes, fds: list[int]
    ) -> None:
        try:
            listener.handle(line, data, fds)
        finally:
            for fd in fds:
                os.close(fd)

    def read_to_the_end(self, line: Lifeline) -> None:
        """Hand on all that a process has sent before it died."""
        while self.read_line(line):
            pass

    def close_line(self, line: Line) -> None:
        """It has ended: the listener is told, once. To be called before the line itself
        is closed."""
        listener = self._listeners.pop(line, None)
        if listener is not None:
            if isinstance(line, Lifeline):
                self._paused.discard(line)
                self._expect(line, 0)
            listener.line_closed(line)

    def post(
        self, line: Line, message: Message | bytes, fds: Sequence[int] = ()
    ) -> None:
        """Send without ever blocking; the rest goes out later.

        An end of the other side is not reported here: its listener hears of it from the
        loop, after all earlier messages.
        """
        if not self.is_open(line):
            return
        if isinstance(line, FarLine):
            assert not isinstance(message, bytes)  # only agents hand on such
            line.hand_on(message, fds)
            return
        try:
            if self._held is not None:
                line.post(message, fds, hold=True)
                self._held.add(line)
            elif line.post(message, fds):
                self._expect(line, selectors.EVENT_READ | selectors.EVENT_WRITE)
        except LifelineClosed:
            self._give_up(line)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Messages posted within leave in the end, in one piece for each line: news of
        many deaths wake each reader once."""
        self._held = set()
        try:
            yield
        finally:
            held, self._held = self._held, None
            for line in filter(self.is_open, held):
                self._send_kept(line)

    def reply(self, line: Line, rid: int | None, value: Any, **more: Any) -> None:
        """Answer request `rid`; None: no answer was asked for."""
        if rid is not None:
            self.post(line, Reply(rid, value, **more))

    def _expect(self, line: Lifeline, events: int) -> None:
        """Serve it when one of these happens, but for its being readable while it is
        paused."""
        if line in self._paused:
            events &= ~selectors.EVENT_READ
        action = partial(self._serve_line, line)
        if line not in self._selector.get_map():
            if events:
                self._selector.register(line, events, action)
        elif events:
            self._selector.modify(line, events, action)
        else:
            self._selector.unregister(line)
