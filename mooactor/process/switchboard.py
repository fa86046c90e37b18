# SPDX-License-Identifier: MIT
"""The agent's event loop: descriptors, lifelines and timers, all in one thread."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from mooactor.process.lifeline import Lifeline, LifelineClosed, Message


class Listener(Protocol):
    """Whom a lifeline's news are for."""

    def handle(self, line: Lifeline, messages: list[Message]) -> None: ...
    def line_closed(self, line: Lifeline) -> None: ...


class Switchboard:
    """Waits on everything at once; never blocks on any one of them."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def serve(self, latest: float | None = None) -> None:
        """Wait for what comes, at most until `latest` (monotonic), and act on it."""
        for key, _ in self._selector.select(self._timeout(latest)):
            if key.fileobj in self._selector.get_map():
                key.data()
        now = time.monotonic()
        due = [action for when, action in self._timers if when <= now]
        self._timers = [entry for entry in self._timers if entry[0] > now]
        for action in due:
            action()

    def _timeout(self, latest: float | None) -> float | None:
        due = [when for when, _ in self._timers]
        if latest is not None:
            due.append(latest)
        return max(0.0, min(due) - time.monotonic()) if due else None

    def later(self, delay: float, action: Callable[[], None]) -> None:
        """Call `action` after `delay` seconds; at once if there is none."""
        if delay <= 0:
            action()
        else:
            self._timers.append((time.monotonic() + delay, action))

    # -- descriptors -------------------------------------------------------

    def watch(self, fd: int, action: Callable[[], None]) -> None:
        """Call `action` whenever `fd` is readable."""
        self._selector.register(fd, selectors.EVENT_READ, action)

    def unwatch(self, fd: int) -> None:
        """No more of it. One that is not watched is left alone."""
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    # -- lifelines ---------------------------------------------------------

    def watch_line(self, line: Lifeline) -> None:
        """Hand what comes over it to the listener, until it is closed."""
        self._selector.register(
            line, selectors.EVENT_READ, partial(self.read_line, line)
        )

    def is_open(self, line: Lifeline) -> bool:
        return line in self._selector.get_map()

    def read_line(self, line: Lifeline) -> None:
        """Hand on what has come over it; send what had to wait."""
        try:
            messages = [message for message, _ in line.receive_nowait()]
            self._listener.handle(line, messages)
            if self.is_open(line) and not line.flush():
                self._expect(line, selectors.EVENT_READ)
        except LifelineClosed:
            self.close_line(line)

    def close_line(self, line: Lifeline) -> None:
        """It has ended: the listener is told, once."""
        if self.is_open(line):
            self._selector.unregister(line)
            self._listener.line_closed(line)

    def post(self, line: Lifeline, message: Message, fd: int | None = None) -> None:
        """Send without ever blocking; what does not fit goes out later."""
        if not self.is_open(line):
            return
        try:
            if line.post(message, fd):
                self._expect(line, selectors.EVENT_READ | selectors.EVENT_WRITE)
        except LifelineClosed:
            self.close_line(line)

    def reply(self, line: Lifeline, rid: int | None, value: Any, **more: Any) -> None:
        """Answer request `rid`; None: no answer was asked for."""
        if rid is not None:
            self.post(line, {"ev": "reply", "rid": rid, "value": value, **more})

    def _expect(self, line: Lifeline, events: int) -> None:
        self._selector.modify(line, events, partial(self.read_line, line))
