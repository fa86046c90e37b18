# SPDX-License-Identifier: MIT
"""`DirectoryLock`: a directory belongs to one program at a time."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path

from mooactor.rl.settings import SettingsError

LOCK = ".lock"


class DirectoryLock:
    """The lock of a directory that exists, held until `close` or the program's end.

    It is of the open file ``.lock``, so it is free again if the program is killed, and
    the file stays. No program that this one starts gets the descriptor, nor do actors:
    they are forks of a process that is not a fork of this one.

    Raises:
      SettingsError: another program holds it, or this one does already.
    """

    def __init__(self, directory: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(directory / LOCK, flags, 0o666)
        self._close = weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise SettingsError(
                f"{directory} is in use by another program: wait for its end, or "
                "choose another --run-dir"
            ) from None
        except OSError:
            pass  # a network file system without locks: go on without

    def close(self) -> None:
        """Let others have the directory. Safe to call twice."""
        self._close()
