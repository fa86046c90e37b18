# SPDX-License-Identifier: MIT
"""The transports that processes may use: `moo.init(transport=…)` and the environment.

The driver decides for all processes of its session. An actor with variables of its own
(``moo.on(…, env=…)``) uses their values, as a host of its own would.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mooactor.tensors.transports import MOST_STRIPES, MOST_THREADS, NAMES

VARIABLE = "MOOACTOR_TRANSPORT"
BIND = "MOOACTOR_BIND"
STRIPES = "MOOACTOR_STRIPES"
THREADS = "MOOACTOR_TCP_THREADS"
CHECKSUM = "MOOACTOR_CHECKSUM"
GPU_DIRECT = "MOOACTOR_GPUDIRECT"


@dataclass(frozen=True)
class Network:
    """One choice for a process.

    ``transports`` are those allowed. None leaves the choice to mooactor: a session on
    one host needs nothing but shared memory, and listens nowhere.
    """

    transports: tuple[str, ...] | None = None
    bind: str | None = None
    stripes: int | None = None
    threads: int | None = None
    checksum: bool = False
    gpu_direct: bool | None = None  # None: if it is offered

    def __post_init__(self) -> None:
        """Raises ValueError: GPUDirect is demanded, but no transport can have it."""
        if self.gpu_direct and "ofi" not in (self.transports or ()):
            raise ValueError(
                f"{GPU_DIRECT}=1 needs RDMA: allow it with {VARIABLE}=shm,ofi,tcp or "
                f"moo.init(transport=…); the allowed transports are {self}"
            )

    def __str__(self) -> str:
        """As `VARIABLE` has it."""
        return ",".join(self.transports) if self.transports else "auto"

    def plain(self) -> dict[str, Any]:
        """For a frame; `of_plain` is its inverse."""
        chosen = None if self.transports is None else list(self.transports)
        return {**self.__dict__, "transports": chosen}

    @classmethod
    def of_plain(cls, plain: dict[str, Any]) -> Network:
        """The choice that `plain` stands for."""
        chosen = plain["transports"]
        names = None if chosen is None else _names(chosen, "transport")
        return cls(**{**plain, "transports": names})

    def with_environment(self, variables: Mapping[str, str]) -> Network:
        """The same with the variables' values; an empty one means the default.

        Raises:
          ValueError: one makes no sense.
        """
        return replace(self, **_said(variables))


def choose(transport: str | Iterable[str] | None) -> Network:
    """The choice given to `moo.init`, or the environment's if that is None.

    Raises:
      TypeError: it is neither names nor None.
      ValueError: there is no such transport, or a variable makes no sense.
    """
    said = _said(os.environ)
    if transport is not None:
        said["transports"] = _names(transport, "transport")
    return Network(**said)


def _said(variables: Mapping[str, str]) -> dict[str, Any]:
    """The fields of `Network` that variables speak of."""
    readers: dict[str, tuple[str, Callable[[str], Any]]] = {
        VARIABLE: ("transports", lambda text: _names(text or "auto", VARIABLE)),
        BIND: ("bind", _address),
        STRIPES: ("stripes", lambda text: _number(text, STRIPES, MOST_STRIPES)),
        THREADS: ("threads", lambda text: _number(text, THREADS, MOST_THREADS)),
        CHECKSUM: ("checksum", _switch),
        GPU_DIRECT: ("gpu_direct", _choice),
    }
    found = readers.keys() & variables.keys()
    return {readers[name][0]: readers[name][1](variables[name]) for name in found}


def _names(said: str | Iterable[str], where: str) -> tuple[str, ...] | None:
    if not isinstance(said, Iterable):
        raise TypeError(f"{where}={said!r} must be a name or a list of names")
    names = said.replace(",", " ").split() if isinstance(said, str) else list(said)
    if names == ["auto"]:
        return None
    wrong = [name for name in names if name not in NAMES]
    if wrong or not names:
        what = f"{wrong[0]!r} is not a transport" if wrong else "no transport is named"
        raise ValueError(
            f'{where}={said!r}: {what}; use "auto", or some of {", ".join(NAMES)}'
        )
    return tuple(name for name in NAMES if name in names)


def _address(text: str) -> str | None:
    if text and text != "*" and not _is_numeric(text):
        raise ValueError(
            f"{BIND}={text!r}: give a numeric address of this host, such as "
            "10.0.0.5, or * for all addresses"
        )
    return text or None


def _is_numeric(text: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text)
        except OSError:
            continue
        return True
    return False


def _number(text: str, where: str, most: int) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise ValueError(
            f"{where}={text!r}: give a whole number from 1 to {most}, or unset it for "
            "the default"
        )
    return int(text)


def _choice(text: str) -> bool | None:
    if text not in ("", "0", "1"):
        raise ValueError(
            f"{GPU_DIRECT}={text!r}: give 1 to require it, 0 to forbid it, or unset "
            "it to use it if it is offered"
        )
    return None if not text else text == "1"


def _switch(text: str) -> bool:
    if text not in ("", "0", "1"):
        raise ValueError(f"{CHECKSUM}={text!r}: give 1 for checksums, 0 for none")
    return text == "1"
