# SPDX-License-Identifier: MIT
"""A supervised actor that leaves traces; importable, so pickled by reference."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from mooactor import actor


@actor
class Member:
    """Notes its starts (``+name``) and stops (``-name``) in a file."""

    def __init__(self, name: str, log: Path) -> None:
        self.name, self.log = name, log
        self.note("+")

    def note(self, what: str) -> None:
        with self.log.open("a") as file:
            file.write(f"{what}{self.name}\n")

    def pid(self) -> int:
        return os.getpid()

    def ping(self) -> str:
        return self.name

    def stay(self) -> None:
        """Until its process dies."""
        threading.Event().wait()

    def hang(self) -> None:
        self.note("~")
        self.stay()

    def die(self, number: int = signal.SIGKILL) -> None:
        os.kill(os.getpid(), number)

    def leave(self, code: int) -> None:
        sys.exit(code)

    def on_stop(self) -> None:
        self.note("-")


def notes(log: Path) -> list[str]:
    return log.read_text().split() if log.exists() else []
