# SPDX-License-Identifier: MIT
"""Forking: how a warm process becomes an actor's.

The agent has imported what actors need and runs no thread but its own, so a fork of
it is safe and costs a few milliseconds. The child keeps three descriptors: its two
output pipes and its lifeline.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15


@dataclass
class Child:
    """What the agent holds of a process that it forked."""

    pid: int
    pidfd: int
    lifeline: socket.socket
    stdout: int
    stderr: int


def prepare(modules: list[str]) -> None:
    """Import what actors will use, once, so that their forks share it."""
    import importlib

    for name in modules:
        if name not in sys.modules:
            try:
                importlib.import_module(name)
            except ImportError as error:
                print(f"mooactor: cannot preload {name}: {error}", file=sys.stderr)
    gc.collect()
    # Collections in the children must not touch, and so copy, the shared pages.
    gc.freeze()


def fork(title: str, live: Callable[[socket.socket], None]) -> Child:
    """Fork a process that runs `live` with its end of the lifeline, then exits.

    Raises:
      OSError: no process, descriptor or memory is to be had.
    """
    ours, theirs = socket.socketpair()
    out_r, out_w = os.pipe()
    err_r, err_w = os.pipe()
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        for fd in (out_r, out_w, err_r, err_w):
            os.close(fd)
        ours.close()
        theirs.close()
        raise
    if pid == 0:
        _become(title, parent, theirs, out_w, err_w, live)  # does not return
    theirs.close()
    os.close(out_w)
    os.close(err_w)
    try:
        os.setpgid(pid, pid)  # the child does it, too: whoever comes first
    except OSError:
        pass
    for fd in (out_r, err_r):
        os.set_blocking(fd, False)
    return Child(pid, os.pidfd_open(pid), ours, out_r, err_r)


def _become(
    title: str,
    parent: int,
    lifeline: socket.socket,
    stdout: int,
    stderr: int,
    live: Callable[[socket.socket], None],
) -> None:
    code = 1
    try:
        os.setpgid(0, 0)
        _die_with(parent)
        lifeline = _keep_only(lifeline, stdout, stderr)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        _name_process(title)
        _reseed()
        live(lifeline)
        code = 0
    except SystemExit as error:
        code = _exit_code(error)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            # No interpreter teardown: it would run the agent's exit handlers.
            os._exit(code)


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies."""
    libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def _keep_only(lifeline: socket.socket, stdout: int, stderr: int) -> socket.socket:
    """Close every descriptor of the agent but these, which become 1, 2 and 3."""
    line = os.dup(lifeline.detach())
    null = os.open(os.devnull, os.O_RDONLY)
    high = max(line, stdout, stderr, null, 8) + 1
    os.dup2(line, high)
    os.dup2(null, 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.dup2(high, 3, inheritable=False)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 3:
            try:
                os.close(fd)
            except OSError:
                pass  # the one that listed them
    sys.stdin = open(0)
    sys.stdout = open(1, "w", buffering=1, closefd=False)
    sys.stderr = open(2, "w", buffering=1, closefd=False)
    return socket.socket(fileno=3)


def _name_process(title: str) -> None:
    libc().prctl(_PR_SET_NAME, title.encode()[:15] + b"\0", 0, 0, 0)


def _reseed() -> None:
    """A fresh process draws fresh random numbers; so must a forked one."""
    random.seed()
    # Not by way of numpy itself, whose attribute would import it: 10 ms in each child.
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


_libc: Any = None


def libc() -> Any:
    """The C library; loaded before the first fork, so that children share it."""
    global _libc
    if _libc is None:
        import ctypes

        _libc = ctypes.CDLL(None, use_errno=True)
    return _libc
