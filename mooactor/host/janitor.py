# SPDX-License-Identifier: MIT
"""A process beside each agent that waits for nothing but the agent's end.

An agent that is asked to end tidies up itself, and its janitor with the rest. If it is
killed, the kernel ends its actors, for they hold its lifelines, but not what these had
started by other means, and no directory goes. The janitor kills the former, by their
mark (see `leftovers`), and removes the latter.
"""

from __future__ import annotations

import os
import signal
import time

from mooactor.host import leftovers
from mooactor.process import files
from mooactor.process.system import close_all_but, name_process

_NOT_FOR_IT = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,  # all of a name may be asked for a report
    signal.SIGUSR2,
)
_DYING_S, _LOOKS = 0.1, 6  # processes that were killed may start others, hold files


def start(mark: str) -> int:
    """Fork the janitor; the descriptor whose end it waits for. To be called before this
    process has threads. `mark` begins those of the sessions here."""
    read, write = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid:
        os.close(read)
        return write
    code = 1
    try:
        _tidy_up_after(read, mark)
        code = 0
    finally:
        os._exit(code)


def _tidy_up_after(read: int, mark: str) -> None:
    os.setsid()  # a Ctrl-C, or a kill of the agent's group, is not meant for it
    for number in _NOT_FOR_IT:
        signal.signal(number, signal.SIG_IGN)
    name_process("moo-janitor")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    close_all_but({0, 1, 2, read})
    os.read(read, 1)  # the agent's end
    for _ in range(_LOOKS):
        leftovers.kill_all(mark)
        files.remove_abandoned_directories()
        time.sleep(_DYING_S)
