# SPDX-License-Identifier: MIT
"""What a session may send data by: `moo.init(transport=…)` and the environment."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from mooactor.tensors.transports import NAMES

VARIABLE = "MOOACTOR_TRANSPORT"


@dataclass(frozen=True)
class Network:
    """One choice for all processes of a session.

    ``transports`` are those allowed. None leaves the choice to mooactor: a session on
    one host needs nothing but shared memory, and listens nowhere.
    """

    transports: tuple[str, ...] | None = None
    bind: str | None = None
    stripes: int | None = None
    checksum: bool = False

    def __str__(self) -> str:
        """As `VARIABLE` has it."""
        return ",".join(self.transports) if self.transports else "auto"


def choose(transport: str | Iterable[str] | None) -> Network:
    """What `moo.init` was given, or what the environment says if that is None.

    Raises:
      ValueError: there is no such transport, or a variable makes no sense.
    """
    said = os.environ.get(VARIABLE) or "auto" if transport is None else transport
    where = VARIABLE if transport is None else "transport"
    return Network(
        _names(said, where),
        os.environ.get("MOOACTOR_BIND") or None,
        _number("MOOACTOR_STRIPES"),
        bool(_number("MOOACTOR_CHECKSUM")),
    )


def _names(said: str | Iterable[str], where: str) -> tuple[str, ...] | None:
    names = said.replace(",", " ").split() if isinstance(said, str) else list(said)
    if names == ["auto"]:
        return None
    wrong = [name for name in names if name not in NAMES]
    if wrong or not names:
        what = f"no transport {wrong[0]!r}" if wrong else "no transport is named"
        raise ValueError(
            f'{where}={said!r}: {what}; use "auto", or some of {", ".join(NAMES)}'
        )
    return tuple(name for name in NAMES if name in names)


def _number(variable: str) -> int | None:
    text = os.environ.get(variable)
    if not text:
        return None
    if not text.isdecimal():
        raise ValueError(f"{variable}={text!r}: a whole number, please")
    return int(text)
