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

from mooactor.host.addresses import ports_text

GRACE_S = 1.2  # so that all has ended three seconds after a signal


class LaunchError(Exception):
    """The launch cannot go on. The message is one sentence that names the host and the
    next step."""


# -- hosts -------------------------------------------------------------------------

_HERE = ("localhost", "127.0.0.1", "::1")
# No name starts with a dash: ssh would take it for an option.
_WRITTEN = re.compile(
    r"(?:(?P<user>[\w.+][\w.+-]*)@)?"
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>\w[\w.-]*|[0-9A-Fa-f:.%]*))"
    r"(?::(?P<port>\d+))?"
)
_NOBODY = "no host is named; write --hosts a,b or a line for each host"
_NUMBERS = {"slots": "num_cpus", "num_cpus": "num_cpus", "num_gpus": "num_gpus"}


class Target(NamedTuple):
    """One host, as the user wrote it."""

    name: str
    address: str  # what ssh is given
    user: str | None = None
    port: int | None = None
    num_cpus: int | None = None
    num_gpus: int | None = None

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
        reason = getattr(error, "strerror", None) or "it is not text"
        raise LaunchError(
            f"the hostfile {path} cannot be read ({reason}): check --hostfile, or name "
            "the hosts with --hosts"
        ) from None
    numbered = enumerate(lines, 1)
    return _distinct([_line(ws, f"{path}, line {n}") for n, ws in numbered if ws])


def _line(words: list[str], where: str) -> Target:
    target = _target(words[0], where)
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key not in _NUMBERS or not value.isdecimal() or len(value) > 9:
            raise LaunchError(
                f"{where}: {word!r} is unknown; write slots=N, num_cpus=N or num_gpus=N"
            )
        if _NUMBERS[key] == "num_cpus":
            target = target._replace(num_cpus=int(value))
        else:
            target = target._replace(num_gpus=int(value))
    return target


def _target(word: str, where: str) -> Target:
    # Several colons without brackets are an IPv6 address without a port.
    user, at, rest = word.rpartition("@")
    if rest.count(":") > 1 and "[" not in rest:
        word = f"{user}{at}[{rest}]"
    found = _WRITTEN.fullmatch(word)
    address = found and (found["v6"] or found["host"])
    if not found or not address or not 0 < int(found["port"] or 22) < 1 << 16:
        raise LaunchError(
            f"{where}: {word!r} is no host; write NAME, USER@NAME, NAME:PORT or "
            "[IPv6]:PORT"
        )
    port = int(found["port"]) if found["port"] else None
    return Target(address, address, found["user"], port)


def _distinct(targets: list[Target]) -> list[Target]:
    """Those of one address and different ports are different hosts."""
    names = [target.name for target in targets]
    for at, target in enumerate(targets):
        if names.count(target.name) > 1 and target.port:
            targets[at] = target._replace(name=f"{target.name}:{target.port}")
    names = [target.name for target in targets]
    for name in names:
        if names.count(name) > 1:
            raise LaunchError(f"host {name} is named twice; name it once")
    here = [target.name for target in targets if target.is_here]
    if len(here) > 1:
        raise LaunchError(
            f"{here[0]} and {here[1]} are both this machine; name it once"
        )
    if not targets:
        raise LaunchError(_NOBODY)
    return targets


# -- variables ---------------------------------------------------------------------

#: The launch itself says these on each host: keys, and where things are.
_OF_THE_LAUNCH = frozenset(
    f"MOOACTOR_{name}"
    for name in (
        *("KEY", "KEY_FILE", "ADDRESS", "HOST_NAME"),
        *("PORTS", "HOSTS", "FIRST", "JOB"),
    )
)
#: These hold for one host.
_OF_A_HOST = frozenset(
    f"MOOACTOR_{name}" for name in ("BIND", "HOST_ID", "NETNS", "SESSION_MARK")
)


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


# -- all of it ---------------------------------------------------------------------


@dataclass
class Plan:
    """A launch.

    Args:
      program: what the interpreter is given: ``script.py ARGS``, or ``-m MODULE ARGS``.
      targets: the hosts; the program runs on the first.
      key: the cluster's key, 64 hexadecimal digits; another one in a job whose first
        process has made it.
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
        words: Sequence[str],
        address: str | None,
        arguments: Sequence[str] = (),
        **values: str,
    ) -> dict[str, Any]:
        """For the `starter` of a Python program. ``{ADDRESS}`` in its words, and in the
        values of variables, stands for `address`, or for where ssh came from. In the
        arguments, which are the user's, nothing is filled in."""
        path = [*self.path, *filter(None, [self.variables.get("PYTHONPATH")])]
        return {
            "words": [*words],
            "arguments": [*arguments],
            "values": values,
            "variables": self.variables,
            "address": address,
            "key": self.key,
            "cwd": self.cwd,
            "path": os.pathsep.join(path).split(os.pathsep) if path else [],
            "script": None,
        }


def command(*words: str) -> list[str]:
    """``mooactor WORDS``; what lies in the working directory does not take the place of
    modules."""
    return ["-P", "-m", "mooactor", *words]


def bracketed(address: str) -> str:
    """As it stands before a port."""
    return f"[{address}]" if ":" in address and "[" not in address else address


def check_script(script: str, cwd: str) -> None:
    """Raises LaunchError: there is none in that directory."""
    if not os.path.isfile(os.path.join(cwd, script)):
        raise LaunchError(
            f"there is no script {script} in {cwd}: check its path, or name its "
            "directory with --cwd"
        )


def path_of_driver(source: str, python: str | None) -> list[str]:
    """The entries before the import path of the hosts' interpreter: PYTHONPATH, and the
    folder `source` of mooactor if that is not installed, unless they have another
    interpreter."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = [os.path.abspath(entry) for entry in given if entry]
    installed = os.path.basename(source) in ("site-packages", "dist-packages")
    if python is None and not installed and source not in path:
        path.append(source)
    return path
