# SPDX-License-Identifier: MIT
"""The end of an actor's process, as Python ends a program.

The process is a fork, and ends by `os._exit`: a real teardown would take down what the
zygote has imported, which is slow and of no use. So what a program counts on is done
here, in Python's order: the actor's object is dropped, threads that are no daemons are
waited for, `atexit` handlers and finalizers run, files are flushed. That has the grace
of the end. A step that takes longer is named, and cut.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from mooactor.control.complaints import complain

FILES = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


#: Those that were open before the fork, in modules that were imported then.
_earlier: list[Any] = []


def find_files(objects: Iterable[Any]) -> None:
    """Note the files among these, for processes that are forked from this one."""
    # Not `isinstance`, which may run code of theirs.
    _earlier[:] = [file for file in objects if issubclass(type(file), FILES)]


def finalize(
    label: str, drop: Callable[[], Any], grace_s: float, *, wait: bool
) -> None:
    """Do all that; `drop` drops the object. An error is printed, and the rest is
    done. Not `wait`: threads are not waited for."""
    doing = ["the end of its object"]

    def cut() -> None:
        text = f"mooactor: {label} did not end within {grace_s:g} s: {doing[0]}"
        print(f"{text} took longer, and is cut", file=sys.stderr, flush=True)
        _flush_files()
        os._exit(0)

    # Just before the agent kills this process, so that it can still say why.
    seconds = max(0.75 * grace_s, grace_s - 0.2)
    limit = threading.Timer(min(seconds, threading.TIMEOUT_MAX), cut)
    limit.daemon = True
    with contextlib.suppress(RuntimeError):  # no room for a thread: the agent cuts it
        limit.start()
    steps: tuple[tuple[str, Callable[[], Any]], ...] = (
        (doing[0], lambda: (drop(), gc.collect())),
        ("a thread", lambda: _join_threads(doing) if wait else None),
        ("an atexit handler", atexit._run_exitfuncs),
        ("flushing its files", _flush_files),
    )
    for what, step in steps:
        doing[0] = what
        try:
            step()
        except BaseException as error:
            complain(f"{label}, {what}:", error)
    limit.cancel()


def _join_threads(doing: list[str]) -> None:
    """Those that are no daemons, as Python does."""
    known = (threading.main_thread(), threading.current_thread())
    threads = [t for t in threading.enumerate() if not t.daemon and t not in known]
    for thread in threads:
        doing[0] = f"its thread {thread.name!r}, which is no daemon,"
        thread.join()


def _flush_files() -> None:
    """Those that nobody has closed: in globals, for instance."""
    for file in (*gc.get_objects(), *_earlier):
        if issubclass(type(file), FILES):
            try:
                if not file.closed:
                    file.flush()
            except (OSError, ValueError) as error:
                print(f"mooactor: a file is not flushed: {error}", file=sys.stderr)
