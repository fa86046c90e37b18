# SPDX-License-Identifier: MIT
"""The place of a process: its host, its working directory, its path of imports.

Invariant: an actor starts where its spawner is when it spawns it, and starts there
again after each death. That costs nothing while the spawner is where the zygote is,
from which the actor is forked: then no place is sent.
"""

from __future__ import annotations

import os
import socket
import sys

import msgspec

from mooactor import errors
from mooactor.control.messages import Path, Paths

HOST_VARIABLE = "MOOACTOR_HOST_NAME"
MOST_OF_A_HOST_NAME = 255


def host_name() -> str:
    """The name of this host, as sessions know it: the kernel's, or what
    MOOACTOR_HOST_NAME says.

    Raises:
      ValueError: it says what is no name.
    """
    said = os.environ.get(HOST_VARIABLE)
    return check_host_name(HOST_VARIABLE, said) if said else socket.gethostname()


def check_host_name(what: str, name: str) -> str:
    """`name`, if it can be that of a host; `what` says it.

    Raises:
      ValueError: it cannot.
    """
    if not is_host_name(name):
        raise ValueError(
            f"{what}={name!r:.80} is no name of a host: write 1 to "
            f"{MOST_OF_A_HOST_NAME} printable characters"
        )
    return name


def is_host_name(name: str) -> bool:
    return 0 < len(name) <= MOST_OF_A_HOST_NAME and name.isprintable()


class Place(msgspec.Struct, frozen=True):
    """A working directory and a `sys.path`, without the empty entry that stands for
    the former. Both are as `os.fsencode` makes them: they may be no UTF-8."""

    cwd: Path
    path: Paths

    def __post_init__(self) -> None:
        if any(b"\0" in name for name in (self.cwd, *self.path)):
            raise ValueError("a path has a zero byte")

    @classmethod
    def here(cls) -> Place:
        """The present place of this process.

        Raises:
          PlacementError: its working directory is gone.
        """
        try:
            cwd = os.getcwdb()
        except OSError as error:
            raise errors.PlacementError(
                "the working directory of this process, in which actors would "
                f"start, cannot be read ({error.strerror}): call os.chdir with a "
                "directory that exists"
            ) from None
        return cls(cwd, [os.fsencode(str(entry)) or cwd for entry in sys.path])

    def enter(self) -> None:
        """Make it this process's.

        Raises:
          PlacementError: the directory cannot be entered.
        """
        try:
            os.chdir(self.cwd)
        except OSError as error:
            cwd = os.fsdecode(self.cwd)
            raise errors.PlacementError(
                f"the actor's working directory {cwd!r}, in which its spawner "
                f"was, cannot be entered ({error.strerror}): spawn it from a "
                "directory that is not removed"
            ) from None
        sys.path[:] = map(os.fsdecode, self.path)
        _forget_relative()


def _forget_relative() -> None:
    # The due part of `importlib.invalidate_caches`: finders of relative entries look in
    # the old working directory, and a path that was no directory may be one here.
    for entry, finder in list(sys.path_importer_cache.items()):
        if finder is None or not os.path.isabs(entry):
            del sys.path_importer_cache[entry]
