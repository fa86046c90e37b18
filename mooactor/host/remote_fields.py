# SPDX-License-Identifier: MIT
"""The fields of the messages between a home and a guest; `remote` has their meaning.

A message is checked as a whole before anything of it is done, so one that is malformed
leaves nothing half done behind. The sender has the cluster's key; what it sends may be
wrong all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mooactor.control.lifeline import Message
from mooactor.host.fields import (
    MOST_BYTES,
    Refused,
    bytes_of,
    no_more_than,
    number,
    numbers,
    optional,
    quantity,
    required,
    strings,
    texts,
)
from mooactor.host.output import (
    MOST_LINES,
    MOST_OF_A_LINE,
    MOST_OF_LINES,
    TAIL_LINES,
)
from mooactor.host.rows import AMOUNTS
from mooactor.process.place import Place

MOST_OF_A_SEGMENT = 1 << 46
MOST_OF_DEVICES = 1 << 12
_MOST_OF_A_NAME = 255
_MOST_OF_A_TEXT = 1 << 16
_MOST_OF_A_PREFIX = 1 << 19  # a label, in UTF-8, and a few words
_MOST_HOLDERS = 1 << 16
_LAST_PID = 1 << 22  # PID_MAX_LIMIT
_LAST_STATUS = (1 << 16) - 1
_MOST_FILES = 1 << 32  # of a process's limit on open ones

_Check = Callable[[Message], object]


def check(message: Message, table: dict[str, _Check]) -> str:
    """What the message is.

    Raises:
      Refused: it is nothing of `table`, or a field is missing or wrong.
    """
    what: str = required(message, "what", str)
    if what not in table:
        raise Refused(f"there is no message {what!r:.40}")
    table[what](message)
    return what


def _number(message: Message) -> None:
    number(message, "number")


def _open(message: Message) -> None:
    no_more_than(_MOST_OF_A_NAME, "session", required(message, "session", str))
    if not message["session"]:
        raise Refused("the session has no mark")
    try:
        Place.of_plain(required(message, "place", dict))
    except TypeError as error:
        raise Refused(str(error)) from None
    names = [required(message, "python", str), message["place"]["cwd"]]
    if any("\0" in name for name in [*names, *message["place"]["path"]]):
        raise Refused("a path has a zero byte")
    texts(message, "argv"), texts(message, "preload")


def _needs(message: Message) -> None:
    needs = required(message, "needs", dict)
    for kind in AMOUNTS:
        quantity(needs, kind, most=MOST_BYTES)


def _reserve(message: Message) -> None:
    _number(message)
    no_more_than(_MOST_HOLDERS, "holders", required(message, "holders", list))
    numbers(message, "holders")
    _needs(message)


def _start(message: Message) -> None:
    _number(message)
    number(message, "holder")
    _needs(message)
    optional(message, "tries", int)
    _parcels(message)
    life = required(message, "life", dict)
    number(life, "actor_id", least=1)
    number(life, "incarnation", most=0xFFFF)
    no_more_than(_MOST_OF_A_TEXT, "label", required(life, "label", str))
    strings(life, "env")
    optional(life, "setup", bytes)


def _parcels(message: Message) -> None:
    parcels: list[Any] = optional(message, "parcels", list) or []
    if any(type(parcel) is not bytes for parcel in parcels):
        raise Refused("a parcel is no bytes")


def _line(message: Message) -> None:
    _number(message)
    _parcels(message)
    said = required(message, "message", dict)
    if "segment" in said:
        segment = required(said, "segment", list)
        fields = dict(zip(("name", "size", "more"), segment, strict=False))
        required(fields, "name", str)
        number(fields, "size", least=1, most=MOST_OF_A_SEGMENT)
        if len(segment) != 2:
            raise Refused("a segment has a name and a size")


def _born(message: Message) -> None:
    _number(message)
    number(message, "pid", least=1, most=_LAST_PID)
    required(message, "cores", list)
    numbers(message, "cores")
    no_more_than(MOST_OF_DEVICES, "devices", optional(message, "devices", str))


def _noted(message: Message) -> None:
    _number(message)
    no_more_than(_MOST_OF_A_TEXT, "note", required(message, "note", str))


def _exited(message: Message) -> None:
    _number(message)
    number(message, "status", most=_LAST_STATUS)
    # The record of this end must fit into a frame of a lifeline.
    lines = no_more_than(TAIL_LINES, "stderr", texts(message, "stderr"))
    for line in lines:
        no_more_than(MOST_OF_A_LINE, "a line of stderr", line)
    required(message, "oom", bool)


def _opened(message: Message) -> None:
    no_more_than(_MOST_OF_A_TEXT, "why", optional(message, "why", str))
    if message.get("files") is not None:
        number(message, "files", most=_MOST_FILES)


def _log(message: Message) -> None:
    number(message, "stream", least=1, most=2)
    bytes_of(message, "prefix", _MOST_OF_A_PREFIX)
    newlines = bytes_of(message, "lines", MOST_OF_LINES).count(b"\n")
    if newlines >= MOST_LINES:
        raise Refused(f"there are {newlines} newlines in one message")


def _now(message: Message) -> None:
    number(message, "id", least=1)
    if message.get("incarnation") is not None:
        number(message, "incarnation", most=0xFFFF)


#: What a guest is told.
TO_GUEST: dict[str, _Check] = {
    "open": _open,
    "reserve": _reserve,
    "start": _start,
    "line": _line,
    "closed": _number,
    "kill": _number,
    "disown": _number,
    "leave": lambda message: number(message, "holder"),
    "preload": lambda message: texts(message, "modules"),
    "now": _now,
    "close": lambda message: None,
}
#: What a home is told.
TO_HOME: dict[str, _Check] = {
    "opened": _opened,
    "reserved": _noted,
    "born": _born,
    "lost": _number,
    "failed": _noted,
    "denied": _noted,
    "line": _line,
    "closed": _number,
    "dying": _number,
    "exited": _exited,
    "log": _log,
}
