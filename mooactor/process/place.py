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
from typing import Any, NamedTuple

from mooactor import errors

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


class Place(NamedTuple):
    """A working directory and a `sys.path`, without the empty entry that stands for
    the former."""

    cwd: str
    path: list[str]

    @classmethod
    def here(cls) -> Place:
        """The present place of this process.

        Raises:
          PlacementError: its working directory is gone.
        """
        try:
            cwd = os.getcwd()
        except OSError as error:
            raise errors.PlacementError(
                "the working directory of this process, in which actors would "
                f"start, cannot be read ({error.strerror}): call os.chdir with a "
                "directory that exists"
            ) from None
        return cls(cwd, [str(entry) or cwd for entry in sys.path])

    def plain(self) -> dict[str, Any]:
        """For a frame; `of_plain` is its inverse."""
        return self._asdict()

    @classmethod
    def of_plain(cls, plain: dict[str, Any]) -> Place:
        """The place that `plain` stands for.

        Raises:
          TypeError: it stands for none.
        """
        cwd, path = plain.get("cwd"), plain.get("path")
        if type(cwd) is not str or type(path) is not list:
            raise TypeError("a place has a directory and a path")
        if plain.keys() - cls._fields or any(type(entry) is not str for entry in path):
            raise TypeError("a place has something that does not belong there")
        return cls(cwd, path)

    def enter(self) -> None:
        """Make it this process's.

        Raises:
          PlacementError: the directory cannot be entered.
        """
        try:
            os.chdir(self.cwd)
        except OSError as error:
            raise errors.PlacementError(
                f"the actor's working directory {self.cwd!r}, in which its spawner "
                f"was, cannot be entered ({error.strerror}): spawn it from a "
                "directory that is not removed"
            ) from None
        sys.path[:] = self.path
        _forget_relative()


def _forget_relative() -> None:
    # The due part of `importlib.invalidate_caches`: finders of relative entries look in
    # the old working directory, and a path that was no directory may be one here.
    for entry, finder in list(sys.path_importer_cache.items()):
        if finder is None or not os.path.isabs(entry):
            del sys.path_importer_cache[entry]
