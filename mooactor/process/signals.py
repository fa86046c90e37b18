# SPDX-License-Identifier: MIT
"""Signals that are meant for the program, and reach all processes of its job.

A terminal sends Ctrl-C, and Slurm, systemd and Kubernetes SIGTERM or SIGHUP, to each of
them. What to do about it is the program's matter: it may save a checkpoint first, with
its actors. So a session's agent, zygotes and actors outlive these signals. They end
with the program.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

JOB_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def outlive_the_job() -> None:
    """In a process of ours: ignore them, and let others through, whatever the program
    has blocked."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in JOB_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def pass_over() -> None:
    """In an actor's process. Not by ignoring them, which a program that it starts would
    do, too."""
    for number in JOB_SIGNALS:
        signal.signal(number, _nothing)
    os.register_at_fork(
        before=_hold, after_in_parent=_release, after_in_child=_as_usual
    )


class _Held(threading.local):
    mask: Any = ()


_held = _Held()


def _hold() -> None:
    """One that comes before the child has its usual handlers waits for them."""
    _held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, JOB_SIGNALS)


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _held.mask)


def _nothing(number: int, frame: Any) -> None:
    pass


def _as_usual() -> None:
    """In a child that a method forked, of multiprocessing for instance."""
    for number in JOB_SIGNALS:
        if signal.getsignal(number) is _nothing:
            usual = signal.default_int_handler if number == signal.SIGINT else None
            signal.signal(number, usual or signal.SIG_DFL)
    _release()
