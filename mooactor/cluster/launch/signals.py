# SPDX-License-Identifier: MIT
"""Signals that end a launch, as events of its loop."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from typing import Any

from mooactor.host.eventloop import EventLoop

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """While entered, `action` is called by the loop with the number of each of them.

    A signal that was ignored before, as under nohup, stays so.
    """

    def __init__(self, loop: EventLoop, action: Callable[[int], None]) -> None:
        self._loop, self._action = loop, action
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)
        self._wakeup = signal.set_wakeup_fd(self._writer.fileno())
        for number in _ENDING:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, lambda *_: None)
        self._loop.watch(self._reader.fileno(), self._read)
        return self

    def _read(self) -> None:
        for number in self._reader.recv(64):
            if number in _ENDING:
                self._action(number)

    def __exit__(self, *_: object) -> None:
        self._loop.unwatch(self._reader.fileno())
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        self._reader.close()
        self._writer.close()
