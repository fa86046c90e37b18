# SPDX-License-Identifier: MIT
"""The hosts that a user names: on the command line, or in a file."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from typing import NamedTuple

_HERE = ("localhost", "127.0.0.1", "::1")
# No name starts with a dash: ssh would take it for an option.
_WRITTEN = re.compile(
    r"(?:(?P<user>[\w.+][\w.+-]*)@)?"
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>\w[\w.-]*|[0-9A-Fa-f:.%]*))"
    r"(?::(?P<port>\d+))?"
)
_NOBODY = "no host is named; write --hosts a,b or a line for each host"
_NUMBERS = {"slots": "num_cpus", "num_cpus": "num_cpus", "num_gpus": "num_gpus"}


class LaunchError(Exception):
    """The launch cannot go on. The message is one sentence that names the host and the
    next step."""


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
    return _distinct(_target(word, "--hosts") for word in words if word)


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
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise LaunchError(
            f"the hostfile {path} cannot be read ({reason}): check --hostfile, or name "
            "the hosts with --hosts"
        ) from None
    targets = []
    for number, line in enumerate(lines, 1):
        if words := line.partition("#")[0].split():
            targets.append(_line(words, f"{path}, line {number}"))
    return _distinct(targets)


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


def _distinct(targets: Iterable[Target]) -> list[Target]:
    """Those of one address and different ports are different hosts."""
    targets = list(targets)
    names = [target.name for target in targets]
    named = [
        t._replace(name=f"{t.name}:{t.port}") if names.count(t.name) > 1 and t.port
        else t
        for t in targets
    ]  # fmt: skip
    seen: set[str] = set()
    for target in named:
        if target.name in seen:
            raise LaunchError(f"host {target.name} is named twice; name it once")
        seen.add(target.name)
    here = [target.name for target in named if target.is_here]
    if len(here) > 1:
        raise LaunchError(
            f"{here[0]} and {here[1]} are both this machine; name it once"
        )
    if not named:
        raise LaunchError(_NOBODY)
    return named
