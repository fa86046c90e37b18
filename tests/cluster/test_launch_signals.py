# SPDX-License-Identifier: MIT
"""Signals that reach a child of the launcher before its program does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial

import pytest

from mooactor.cluster.launch import signals


def interrupted(number: int) -> None:
    """As a `preexec_fn`: the signal waits when it is unblocked."""
    os.kill(os.getpid(), number)
    signals.unblock()


def raises(number: int, frame: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("number", [*signals.ENDING, *signals.NOTICES])
def test_one_that_waits_there_ends_the_child_and_is_no_error_of_popen(
    number: int,
) -> None:
    before = signal.signal(number, raises)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    try:
        command = [sys.executable, "-c", "pass"]
        done = subprocess.run(command, preexec_fn=partial(interrupted, number))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(number, before)
    assert done.returncode == -number


def test_one_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        code = "import signal as s; print(s.getsignal(s.SIGHUP) == s.SIG_IGN)"
        command = [sys.executable, "-c", code]
        waits = partial(interrupted, signal.SIGHUP)
        said = subprocess.check_output(command, preexec_fn=waits, text=True)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert said == "True\n"
