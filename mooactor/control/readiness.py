# SPDX-License-Identifier: MIT
"""One descriptor that stands for many: readable when any of them is, or when something
is to be done soon.

A ZeroMQ descriptor tells of news once, to a reader that has found the socket empty. So
read it at the start, and whoever stops reading before it is empty has to call `soon`.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

Action: TypeAlias = "Callable[[], object]"

TURN_S = 0.003  # of an action that has much to do; the others have their turn then


class Readiness:
    """Threads: one, except for `soon`, which any thread may call."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._actions: dict[int, Action] = {}
        self._soon: deque[Action] = deque()
        self._lock = threading.Lock()  # held while the eventfd must not be closed

    def fileno(self) -> int:
        return self._epoll.fileno()

    def watch(self, fd: int, action: Action, events: int = select.EPOLLIN) -> None:
        """Call `action` whenever `fd` is ready for one of `events`, or has failed."""
        self._epoll.register(fd, events)
        self._actions[fd] = action

    def unwatch(self, fd: int) -> None:
        """Before `fd` is closed."""
        if self._actions.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def soon(self, action: Action) -> None:
        """Have `action` called in the next `run`."""
        self._soon.append(action)
        with self._lock:
            if not self._epoll.closed:
                os.eventfd_write(self._wake, 1)

    def run(self) -> None:
        """Call the actions that are due, and wait for nothing."""
        ready = [(fd, self._actions.get(fd)) for fd, _ in self._epoll.poll(0)]
        try:
            for fd, action in ready:
                if fd == self._wake:
                    os.eventfd_read(self._wake)
                elif action is not None and self._actions.get(fd) is action:
                    action()
            for _ in range(len(self._soon)):
                self._soon.popleft()()
        finally:
            # An action has asked for more, or has raised.
            if self._soon and not self._epoll.closed:
                os.eventfd_write(self._wake, 1)

    def wait(self, timeout_s: float | None) -> None:
        """Wait until something is due, at most so long."""
        self._epoll.poll(timeout_s)

    def close(self) -> None:
        with self._lock:
            self._epoll.close()
            os.close(self._wake)
