# SPDX-License-Identifier: MIT
"""``mooactor attach``: this terminal becomes that of a stopped actor's debugger."""

from __future__ import annotations

import argparse
import os
import select
import socket
import sys

from mooactor.cli.command import Failure
from mooactor.process.actor.debugger import stopped

_NEXT_STEP = (
    "the process may have ended: `mooactor attach` alone finds the one that is "
    "stopped, or lists them"
)


def run(options: argparse.Namespace) -> int:
    """Attach to a process by its id, or to the only one that is stopped.

    Raises:
      Failure: it is not there, or not stopped.
    """
    path = _find(options.process)
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except OSError as error:
            raise Failure(f"cannot attach at {path}: {error}; {_NEXT_STEP}") from None
        _converse(connection)
    return 0


def _find(where: str | None) -> str:
    if where is not None and "/" in where:
        return where
    found = stopped()
    if where is None and len(found) == 1:
        return next(iter(found.values()))
    if where is not None and where.isdecimal() and int(where) in found:
        return found[int(where)]
    what = "no process is stopped" if where is None else f"{where} is not stopped"
    if found:
        what = "name one" if where is None else what
        rest = f"stopped at a breakpoint: {', '.join(map(str, sorted(found)))}"
    else:
        rest = "breakpoint() stops actors with moo.init(debug=True) or MOOACTOR_DEBUG=1"
    raise Failure(f"{what}; {rest}")


def _converse(connection: socket.socket) -> None:
    """Pass lines on, both ways, until the debugger hangs up."""
    keyboard = sys.stdin.fileno()
    sources: list[int] = [connection.fileno(), keyboard]
    while True:
        ready, _, _ = select.select(sources, [], [])
        if connection.fileno() in ready:
            data = _received(connection)
            if not data:
                return
            sys.stdout.write(data.decode(errors="replace"))
            sys.stdout.flush()
        if keyboard in ready:
            line = os.read(keyboard, 4096)
            if line:
                connection.sendall(line)
            else:  # its last output is shown
                connection.shutdown(socket.SHUT_WR)
                sources.remove(keyboard)


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except ConnectionResetError:
        return b""
