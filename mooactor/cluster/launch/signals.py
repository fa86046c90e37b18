# SPDX-License-Identifier: MIT
"""Signals to a launcher, as events of its loop.

They are blocked and taken from a descriptor, because a handler in Python does not learn
who sent a signal. Invariant: nothing that a launcher starts has them blocked; each
`Popen` has `unblock` as its `preexec_fn`.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterable

from mooactor.host.eventloop import EventLoop

# They end the launch, and ask the program to end.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# They are for the program alone, which goes on: the notice of a batch system, such as
# Slurm's --signal=USR1@90.
NOTICES = (signal.SIGUSR1, signal.SIGUSR2)
_SI_KERNEL = 0x80  # of <asm-generic/siginfo.h>
_SIGSET_BYTES = 128


class Signals:
    """While entered, the loop calls `action` for each of these signals, with its number
    and with whether it was typed: Ctrl-C, which the terminal sends to its whole
    foreground process group.

    A signal that was ignored before, as under nohup, stays so. No other thread may take
    signals; those of ZeroMQ have all of them blocked.
    """

    def __init__(self, loop: EventLoop, action: Callable[[int, bool], None]) -> None:
        self._loop, self._action = loop, action

    def __enter__(self) -> Signals:
        numbers = [*ENDING, *NOTICES]
        self._taken = [n for n in numbers if signal.getsignal(n) != signal.SIG_IGN]
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._taken)
        self._fd = _descriptor(self._taken)
        self._loop.watch(self._fd, self._read)
        return self

    def _read(self) -> None:
        while found := signal.sigtimedwait(self._taken, 0):
            number = found.si_signo
            typed = number == signal.SIGINT and found.si_code == _SI_KERNEL
            self._action(number, typed)

    def __exit__(self, *_: object) -> None:
        self._loop.unwatch(self._fd)
        os.close(self._fd)
        while signal.sigtimedwait(self._taken, 0):
            pass  # it came too late, and would raise KeyboardInterrupt now
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


def unblock() -> None:
    """In a child of the launcher, before its program: it takes signals as usual. One
    that waits already ends it. The launcher's handlers must not see it: their exception
    would be one of the `Popen`."""
    for number in (*ENDING, *NOTICES):
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [*ENDING, *NOTICES])


def _descriptor(numbers: Iterable[int]) -> int:
    """A signalfd(2): it is readable while one of these signals waits."""
    libc = ctypes.CDLL(None, use_errno=True)
    mask = ctypes.create_string_buffer(_SIGSET_BYTES)
    libc.sigemptyset(mask)
    for number in numbers:
        libc.sigaddset(mask, int(number))
    fd: int = libc.signalfd(-1, mask, os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd
