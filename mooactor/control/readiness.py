# SPDX-License-Identifier: MIT
"""One descriptor that stands for many: readable when any of them is, or when something
is to be done soon.

A ZeroMQ descriptor tells of news once, to a reader that has found the socket empty. So
read it at the start, and whoever stops reading before it is empty has to call `soon`.
"""

from __future__ import annotations

import io
import os
import select
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

Action: TypeAlias = "Callable[[], object]"

_ONE = (1).to_bytes(8, "little")  # to an eventfd
TURN_S = 0.003  # of an action that has much to do; the others have their turn then


class Readiness:
    """Threads: one, except for `soon` and `wake`, which any thread may call, and any
    finalizer."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        # A file, not a bare descriptor: one that is closed refuses, and its number may
        # be another file's by then.
        eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._waker = io.FileIO(eventfd, "r+")
        self._actions: dict[int, Action] = {}
        self._soon: deque[Action] = deque()
        self.watch(eventfd, lambda: self._waker.read(len(_ONE)))

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
        self.wake()

    def wake(self) -> None:
        """End a `wait`. Never blocks; does nothing once it is closed."""
        try:
            self._waker.write(_ONE)
        except (OSError, ValueError):
            pass

    def run(self) -> None:
        """Call the actions that are due, and wait for nothing."""
        ready = [(fd, self._actions.get(fd)) for fd, _ in self._epoll.poll(0)]
        try:
            for fd, action in ready:
                if action is not None and self._actions.get(fd) is action:
                    action()
            for _ in range(len(self._soon)):
                self._soon.popleft()()
        finally:
            # An action has asked for more, or has raised.
            if self._soon:
                self.wake()

    def wait(self, timeout_s: float | None) -> None:
        """Wait until something is due, at most so long."""
        self._epoll.poll(timeout_s)

    def close(self) -> None:
        self._epoll.close()
        self._waker.close()
