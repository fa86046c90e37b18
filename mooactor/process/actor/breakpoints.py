# SPDX-License-Identifier: MIT
"""``breakpoint()`` in an actor, whose process has no terminal.

With ``MOOACTOR_DEBUG=1`` (which `moo.init(debug=True)` sets) the thread that comes to a
breakpoint listens on a socket in the session's private directory, says so on stderr,
and waits. ``mooactor attach`` connects a terminal to pdb there. Without it the
breakpoint is passed over, and a line says once how to get a debugger.

Invariant: a debugger never ends a call. Quitting it, and the end of its connection,
let the method go on, where pdb would raise `BdbQuit` in it.

While a method is stopped its thread runs nothing else; deadlines go on.
"""

from __future__ import annotations

import glob
import os
import socket
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

from mooactor.process import directories

if TYPE_CHECKING:
    from mooactor.process.actor.debugger import RemoteTerminal

VARIABLE = "MOOACTOR_DEBUG"
_one_at_a_time = threading.Lock()


def wanted() -> bool:
    """Whether breakpoints of this process stop it."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def install(directory: str, label: str) -> None:
    """From here on `breakpoint` works in this actor's process. `directory`: the
    session's.

    Somebody who has set ``PYTHONBREAKPOINT`` has a debugger of one's own.
    """
    if "PYTHONBREAKPOINT" in os.environ:
        return
    name = f"{label} (process {os.getpid()})"
    passed: set[tuple[str, int]] = set()

    def hook(*args: Any, **kwargs: Any) -> None:
        frame = sys._getframe(1)
        if wanted():
            _stop(frame, directory, name)  # nothing may follow in this frame
        elif (place := _place(frame)) not in passed:
            passed.add(place)
            _say(
                f"breakpoint() at {_shown(place)} was skipped: {name} has no "
                f"terminal; moo.init(debug=True) or {VARIABLE}=1 gives it one"
            )

    sys.breakpointhook = hook


def _place(frame: FrameType) -> tuple[str, int]:
    return frame.f_code.co_filename, frame.f_lineno


def _shown(place: tuple[str, int]) -> str:
    return f"{place[0]}:{place[1]}"


def _say(text: str) -> None:
    print(f"mooactor: {text}", file=sys.stderr, flush=True)


def _stop(frame: FrameType, directory: str, name: str) -> None:
    from mooactor.process.actor.debugger import Debugger  # pdb takes 10 ms to import

    with _one_at_a_time:
        terminal = _wait_for_terminal(frame, directory, name)
    Debugger(terminal).set_trace(frame)


def _wait_for_terminal(frame: FrameType, directory: str, name: str) -> RemoteTerminal:
    path = f"{directory}/debug-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{path}.new")
        listener.listen(1)
        os.rename(f"{path}.new", path)  # a process that sees the name can connect
        try:
            _say(
                f"{name} is stopped at {_shown(_place(frame))}; in a terminal: "
                f"mooactor attach {os.getpid()}"
            )
            connection, _ = listener.accept()
        finally:
            os.unlink(path)
    from mooactor.process.actor.debugger import RemoteTerminal

    terminal = RemoteTerminal(connection)
    terminal.write(f"{name}\n")
    return terminal


def stopped() -> dict[int, str]:
    """The sockets of this machine's stopped actors, by process id."""
    found = {}
    for base in directories.bases():
        for path in glob.glob(f"{base}/{directories.PREFIX}*/debug-*"):
            number = path.rpartition("-")[2]
            lives = number.isdecimal() and os.path.exists(f"/proc/{number}")
            if lives and os.access(path, os.W_OK):
                found[int(number)] = path
    return found
