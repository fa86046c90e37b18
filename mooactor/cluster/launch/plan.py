# SPDX-License-Identifier: MIT
"""The plan of a launch: hosts that the user names, their variables, and the rest."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mooactor.host import addresses
from mooactor.host.addresses import ports_text

GRACE_S = 1.2  # so that all has ended three seconds after a signal


class LaunchError(Exception):
    """The launch cannot go on. The message is one sentence that names the host and the
    next step."""


# -- hosts -------------------------------------------------------------------------

_HERE = ("localhost", "127.0.0.1", "::1")
_SSHS_OWN = -1  # the port that ssh takes if none is named
_NOBODY = "no host is named; write --hosts a,b or a line for each host"
_NUMBERS = {"slots": "--num-cpus", "num_cpus": "--num-cpus", "num_gpus": "--num-gpus"}


class Target(NamedTuple):
    """One host, as the user wrote it; `offers`: options of its ``mooactor host``."""

    name: str
    address: str  # what ssh is given
    user: str | None = None
    port: int | None = None
    offers: tuple[str, ...] = ()

    @property
    def is_here(self) -> bool:
        """Whether it is this machine, so that it needs no ssh."""
        if self.user is not None or self.port is not None:
            return False
        return self.address in (*_HERE, socket.gethostname())


HERE = Target("localhost", "localhost")


def of_list(text: str) -> list[Target]:
    """The targets of ``--hosts a,user@b,[fd00::1]:2222``.

    Raises:
      LaunchError: a name is none, or there twice.
    """
    words = [word.strip() for word in text.split(",")]
    return _distinct([_target(word, "--hosts") for word in words if word])


def of_file(path: str) -> list[Target]:
    """The targets of a hostfile, one on each line: a name, then perhaps ``slots=4`` (or
    ``num_cpus=4``) and ``num_gpus=1``. ``#`` begins a comment.

    Raises:
      LaunchError: the file cannot be read, or a line is wrong.
    """
    if not path:
        raise LaunchError(_NOBODY)
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = [line.partition("#")[0].split() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(
            f"the hostfile {path} cannot be read ({error}): check --hostfile, or name "
            "the hosts with --hosts"
        ) from None
    numbered = enumerate(lines, 1)
    return _distinct([_line(ws, f"{path}, line {n}") for n, ws in numbered if ws])


def _line(words: list[str], where: str) -> Target:
    offers: list[str] = []
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key not in _NUMBERS or not value.isdecimal():
            raise LaunchError(
                f"{where}: {word!r} is unknown; write slots=N, num_cpus=N or num_gpus=N"
            )
        offers += [_NUMBERS[key], value]
    return _target(words[0], where)._replace(offers=tuple(offers))


def _target(word: str, where: str) -> Target:
    user, _, rest = word.rpartition("@")
    try:
        host, port = addresses.parse(rest, default_port=_SSHS_OWN)
        # ssh would take a name that starts with a dash for an option.
        if host == "*" or not port or word[0] in "-@" or host.startswith("-"):
            raise ValueError
    except ValueError:
        raise LaunchError(
            f"{where}: {word!r} is no host; write NAME, USER@NAME, NAME:PORT or "
            "[IPv6]:PORT"
        ) from None
    return Target(host, host, user or None, None if port == _SSHS_OWN else port)


def _distinct(targets: list[Target]) -> list[Target]:
    """Those of one address and different ports are different hosts."""
    if not targets:
        raise LaunchError(_NOBODY)
    names = [target.name for target in targets]
    for at, target in enumerate(targets):
        if names.count(target.name) > 1 and target.port:
            targets[at] = target._replace(name=f"{target.name}:{target.port}")
    names = [target.name for target in targets]
    here = [target.name for target in targets if target.is_here]
    if len(here) > 1 or len({*names}) < len(names):
        raise LaunchError(f"a host is named twice in {', '.join(names)}; name it once")
    return targets


# -- variables ---------------------------------------------------------------------


def _ours(names: str) -> frozenset[str]:
    return frozenset(f"MOOACTOR_{name}" for name in names.split())


#: The launch itself says these on each host: keys, and where things are.
_OF_THE_LAUNCH = _ours("KEY KEY_FILE ADDRESS HOST_NAME PORTS HOSTS FIRST JOB")
_OF_A_HOST = _ours("BIND HOST_ID NETNS SESSION_MARK")


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """mooactor's own variables that hold for all hosts of a session: they go along
    without being named."""
    return {
        name: value
        for name, value in environ.items()
        if name.startswith("MOOACTOR_") and name not in _OF_THE_LAUNCH | _OF_A_HOST
    }


def named(options: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Those of ``--env NAME`` and ``--env NAME=VALUE``; the last of a name counts.

    Raises:
      LaunchError: one is no variable, is not set here, or is the launch's own.
    """
    return dict(_variable(option, environ) for option in options)


def _variable(option: str, environ: Mapping[str, str]) -> tuple[str, str]:
    name, equals, value = option.partition("=")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or "\0" in value:
        raise LaunchError(f"--env {name!r} is no variable: write NAME or NAME=VALUE")
    if name in _OF_THE_LAUNCH:
        raise LaunchError(
            f"--env {name} cannot be given: the launch sets it on each host itself "
            "(see --key-file, --ports and --address)"
        )
    if not equals and name not in environ:
        raise LaunchError(f"--env {name}: it is not set here; write --env {name}=VALUE")
    return name, value if equals else environ[name]


def python_path(source: str, python: str | None, *more: str) -> str:
    """PYTHONPATH of the hosts' interpreter: this process's own, `more`, and the folder
    `source` of mooactor if that is not installed, unless they have another one."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = [os.path.abspath(entry) for entry in given if entry]
    installed = os.path.basename(source) in ("site-packages", "dist-packages")
    if python is None and not installed and source not in path:
        path.append(source)
    return os.pathsep.join([*path, *filter(None, more)])


# -- all of it ---------------------------------------------------------------------


@dataclass
class Plan:
    """A launch.

    Args:
      program: what the interpreter is given: ``script.py ARGS``, or ``-m MODULE ARGS``.
      targets: the hosts; the program runs on the first.
      key: the cluster's key, 64 hexadecimal digits; another one in a job whose first
        process has made it.
      python: the interpreter on the hosts.
      variables: for the environment of the hosts and of the program.
      offers: options for every ``mooactor host``: ``--num-cpus 4``.
      address: where the hosts reach this machine; None: where ssh comes from.
      own_address, port: where this machine reaches the broker, once it is up.
      min_hosts: so many must join, those of other ranks included; None: all.
      patience_s: the time that the hosts have to start.
      grace_s: the time that the program has after a signal that ends the launch.
    """

    program: list[str]
    targets: list[Target]
    key: str
    cwd: str
    python: str = sys.executable
    variables: dict[str, str] = field(default_factory=dict, repr=False)
    offers: list[str] = field(default_factory=list)
    ports: range | None = None
    address: str | None = None
    own_address: str = "127.0.0.1"
    port: int = 0
    sync: bool = False
    min_hosts: int | None = None
    patience_s: float = 60.0
    grace_s: float = GRACE_S

    @property
    def script(self) -> str | None:
        """The file that must be there."""
        return None if self.program[0] == "-m" else self.program[0]

    def order(
        self,
        target: Target,
        words: Sequence[str] = (),
        arguments: Sequence[str] = (),
        **values: str,
    ) -> dict[str, Any]:
        """For the `starter` of a Python program on the target. ``{BROKER}`` among its
        words stands for the broker's address. A program with arguments, which are the
        user's, has that address in MOOACTOR_ADDRESS."""
        return {
            "words": [*words],
            "arguments": [*arguments],
            "variables": {**self.variables, **values},
            "address": self.own_address if target.is_here else self.address,
            "port": self.port,
            "key": self.key,
            "cwd": self.cwd,
            "script": self.script if target is self.targets[0] else None,
        }

    def command(self, *words: str) -> list[str]:
        """``mooactor WORDS``, within the ports of the launch. Files of the working
        directory do not take the place of modules."""
        ports = [] if self.ports is None else ["--ports", ports_text(self.ports)]
        return ["-P", "-m", "mooactor", *words, *ports]
