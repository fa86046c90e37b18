# SPDX-License-Identifier: MIT
"""What a launch starts, where and how."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mooactor.cluster.launch.targets import LaunchError, Target
from mooactor.host.addresses import ports_text

MODULE = "mooactor"  # is run as the command of that name


GRACE_S = 1.2  # so that all has ended three seconds after a signal


@dataclass
class Plan:
    """A launch.

    Args:
      program: what the interpreter is given: ``script.py ARGS``, or ``-m MODULE ARGS``.
      targets: the hosts; the program runs on the first.
      key: the cluster's key, 64 hexadecimal digits; another one in a job whose first
        process has made it.
      version: of mooactor; the hosts say so if they have another one.
      wire: the version of the wire, which the hosts must have; see `starter.wire_of`.
      python: the interpreter on the hosts; None: this one.
      path: what goes before the interpreter's own import path.
      own_path: the same on this machine, whose broker has this interpreter.
      variables: for the environment of the hosts and of the program.
      offers: options for every ``mooactor host``: ``--num-cpus 4``.
      address: where the hosts reach this machine; None: where ssh comes from.
      min_hosts: so many must join, those of other ranks included; None: all.
      patience_s: the time that the hosts have to start.
      grace_s: the time that the program has after a signal that ends the launch.
    """

    program: list[str]
    targets: list[Target]
    key: str
    version: str
    wire: str
    cwd: str
    python: str | None = None
    path: list[str] = field(default_factory=list)
    own_path: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict, repr=False)
    offers: list[str] = field(default_factory=list)
    ports: range | None = None
    address: str | None = None
    sync: bool = False
    min_hosts: int | None = None
    patience_s: float = 60.0
    grace_s: float = GRACE_S

    @property
    def port_words(self) -> list[str]:
        """The option of a broker or a host."""
        return [] if self.ports is None else ["--ports", ports_text(self.ports)]

    @property
    def interpreter(self) -> str:
        return self.python or sys.executable

    @property
    def script(self) -> str | None:
        """The file that must be there."""
        return None if self.program[0] == "-m" else self.program[0]

    def order(
        self,
        words: list[str],
        address: str | None,
        arguments: Sequence[str] = (),
        **environment: str,
    ) -> dict[str, Any]:
        """For the `starter` of a program. ``{ADDRESS}`` in words and environment stands
        for `address`, or for where ssh came from, and ``{PYTHON}`` for its interpreter.
        The arguments are the user's: nothing is filled in."""
        return {
            "words": words,
            "arguments": list(arguments),
            "environment": environment,
            "variables": self.variables,
            "address": address,
            "key": self.key,
            "cwd": self.cwd,
            "path": self.path,
            "version": self.version,
            "wire": self.wire,
        }


def check_script(script: str, cwd: str) -> None:
    """Raises LaunchError: there is none in that directory."""
    if not os.path.isfile(os.path.join(cwd, script)):
        raise LaunchError(
            f"there is no script {script} in {cwd}: check its path, or name its "
            "directory with --cwd"
        )


def command(*words: str) -> list[str]:
    """``mooactor WORDS`` for the starter's host; what lies in the working directory
    does not take the place of modules."""
    return ["{PYTHON}", "-P", "-m", MODULE, *words]


def path_of_driver(source: str, python: str | None) -> list[str]:
    """What goes before the import path of the hosts' interpreter: PYTHONPATH, and the
    folder `source` of mooactor if that is not installed, unless they have another
    interpreter."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = [os.path.abspath(entry) for entry in given if entry]
    installed = os.path.basename(source) in ("site-packages", "dist-packages")
    if python is None and not installed and source not in path:
        path.append(source)
    return path
