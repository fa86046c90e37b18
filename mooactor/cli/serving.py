# SPDX-License-Identifier: MIT
"""The common part of long-running commands: a loop, signals, and a log on stderr.

One thread. SIGTERM and SIGINT end `run`, and the command returns 0 then. A reader of
stderr that has stopped does not hold it up.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

from mooactor.cli.command import discard
from mooactor.control.node import Node
from mooactor.control.secret import Key
from mooactor.host.eventloop import EventLoop
from mooactor.host.output import Terminal

_LOG_BYTES = 1 << 18  # that wait for a reader of stderr
_DRAIN_S = 0.5
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def about(key: Key) -> str:
    """The line on the key."""
    if not key.local:
        return f"uses the {key}"
    return (
        f"{'made' if key.made else 'uses the'} {key}, which serves on this host alone; "
        "`mooactor keygen` makes one for several hosts"
    )


class Serving:
    """In the main thread; `name` begins each line of its log."""

    def __init__(self, name: str) -> None:
        self.loop = EventLoop()
        self._name = name
        self._terminal = Terminal(2, self.loop, _LOG_BYTES)
        self._stopping = False
        self._end_waking = self.loop.wake_on_signals()
        self._before = [signal.signal(s, lambda *_: self.stop()) for s in _SIGNALS]

    def stop(self) -> None:
        """Have `run` return as soon as the present round is over."""
        self._stopping = True

    def ready(self, line: str) -> None:
        """The line on stdout that says so. Its reader may be gone: others need this
        command."""
        try:
            print(line, flush=True)
        except OSError as error:
            discard(1)
            self.log(f"{line} (standard output is lost: {error.strerror})")

    def log(self, line: str) -> None:
        """One line on stderr. It never blocks; what nobody reads is dropped."""
        if not line.isprintable():
            line = "".join(c if c.isprintable() else "�" for c in line)
        self._terminal.add(f"{self._name}: {line}\n".encode(errors="replace"))

    def describe(self, name: str, parts: Callable[[], Iterable[str]]) -> None:
        """Have SIGUSR1 report these lines, beside what this process is doing."""
        self.loop.report_on_sigusr1(name, parts, self._write)

    def _write(self, text: str) -> None:
        self._terminal.add(text.encode(errors="replace"))

    def run(
        self, node: Node, look: Callable[[], Any], due: Callable[[], float | None]
    ) -> None:
        """Serve the node until a signal comes or `stop` is called; call `look` in each
        round, and at `due()` (monotonic) at the latest."""
        self.loop.serve_node(node)
        while not self._stopping:
            self.loop.serve(due())
            look()
        self.loop.unwatch(node.fileno())

    def close(self) -> None:
        """Give the signals back, and write the rest of the log, if somebody reads."""
        self._end_waking()
        for number, handler in zip(_SIGNALS, self._before, strict=True):
            signal.signal(number, handler)
        self._terminal.drain(_DRAIN_S, time.monotonic() + _DRAIN_S)
