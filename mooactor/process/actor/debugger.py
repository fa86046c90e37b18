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
import io
import os
import socket
import sys
import threading
from types import FrameType
from typing import Any

from mooactor.process import files

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
    with _one_at_a_time:
        terminal = _wait_for_terminal(frame, directory, name)
    _debugger(terminal).set_trace(frame)


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
    terminal = RemoteTerminal(connection)
    terminal.write(f"{name}\n")
    return terminal


def stopped() -> dict[int, str]:
    """The sockets of this machine's stopped actors, by process id."""
    found = {}
    for base in files.directory_bases():
        for path in glob.glob(f"{base}/{files.PREFIX}*/debug-*"):
            number = path.rpartition("-")[2]
            lives = number.isdecimal() and os.path.exists(f"/proc/{number}")
            if lives and os.access(path, os.W_OK):
                found[int(number)] = path
    return found


class RemoteTerminal(io.TextIOBase):
    """Both directions of a connection, as files for pdb. After a loss it reads as ended
    and drops writes, because pdb runs inside the user's code."""

    encoding = "utf-8"

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("r", encoding="utf-8", errors="replace")

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        try:
            return self._lines.readline(size)
        except OSError:
            return ""

    def write(self, text: str, /) -> int:
        try:
            self._connection.sendall(text.encode(errors="replace"))
        except OSError:
            pass
        return len(text)

    def close(self) -> None:
        self._lines.close()
        self._connection.close()


def _debugger(terminal: RemoteTerminal) -> Any:
    """pdb at the other end of a connection, until the method goes on freely."""
    import pdb  # which takes 10 ms to import

    class Debugger(pdb.Pdb):
        def __init__(self) -> None:
            files: Any = terminal  # the part of a file that pdb uses
            super().__init__(stdin=files, stdout=files, nosigint=True)
            self._terminal = terminal
            self._goes_on = False

        def interaction(self, *args: Any, **kwargs: Any) -> None:
            self._goes_on = False
            super().interaction(*args, **kwargs)
            if self._goes_on and not self.breaks:
                self._terminal.close()

        def set_continue(self) -> None:
            self._goes_on = True
            super().set_continue()

        def do_quit(self, arg: str) -> bool:
            """q(uit)
            Detach; the method goes on. moo.kill ends an actor.
            """
            self.clear_all_breaks()
            self.set_continue()
            return True

        do_q = do_exit = do_quit

        def do_EOF(self, arg: str) -> bool:
            """EOF
            As quit: the terminal is gone.
            """
            return self.do_quit(arg)

    return Debugger()
