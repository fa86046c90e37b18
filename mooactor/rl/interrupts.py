# SPDX-License-Identifier: MIT
"""Ctrl-C as a request to finish, not as an exception in the middle of something."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Ctrl-C sets the event that is yielded; a second one interrupts as usual.

    Main thread only, as signal handlers are.
    """
    interrupted = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        print("\nstopping: the checkpoint is being saved", file=sys.stderr, flush=True)
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
