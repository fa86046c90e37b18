# SPDX-License-Identifier: MIT
"""pdb at the other end of a connection; see `breakpoints`.

Imported when a breakpoint is reached: pdb takes a while to import.
"""

from __future__ import annotations

import io
import pdb
import socket
from typing import Any


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


class Debugger(pdb.Pdb):
    """pdb at the other end of a connection, until the method goes on freely."""

    def __init__(self, terminal: RemoteTerminal) -> None:
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
