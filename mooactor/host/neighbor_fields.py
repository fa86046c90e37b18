# SPDX-License-Identifier: MIT
"""What a neighbor says to a process of this session, checked before it is handed on.

The neighbor has the cluster's key; what it says may be wrong all the same, and a
process believes its own agent. So a message is made anew of the fields that it must
have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mooactor.control import plain
from mooactor.control.lifeline import Message
from mooactor.host.addresses import is_reachable
from mooactor.host.fields import (
    MOST_OF_A_HANDLE,
    Refused,
    bytes_of,
    no_more_than,
    number,
    required,
    text,
)
from mooactor.process.exits import ExitRecord

_MOST_OF_A_TEXT = 1 << 16
_MOST_OF_A_RECORD = 12 << 20  # encoded; a frame of a lifeline takes 16
_ENDS = ("died", "stopped")
_EVENTS = ("started", "restarted", *_ENDS)


def checked(message: Any) -> Message:
    """The message, without any other fields.

    Raises:
      Refused: it is none for a process, or a field is missing or wrong.
    """
    if type(message) is not dict:
        raise Refused("what it says to a process is no message")
    what = required(message, "ev", str)
    if what not in _TABLE:
        raise Refused(f"no neighbor says {what!r:.40} to a process")
    return {"ev": what, **_TABLE[what](message)}


def _reply(message: Message) -> Message:
    value = message.get("value")
    if type(value) is bytes:
        bytes_of(message, "value", MOST_OF_A_HANDLE)
    elif value is not None and type(value) is not bool:
        raise Refused(f"value={value!r:.40} answers no request of a process")
    found: Message = {"rid": number(message, "rid"), "value": value}
    if message.get("failed") is not None:
        found["failed"] = text(message, "failed", _MOST_OF_A_TEXT)
    return found


def _located(message: Message) -> Message:
    process_id = number(message, "id", least=1)
    if message.get("gone") is not None:
        return {"id": process_id, "gone": True}
    address = text(message, "address", _MOST_OF_A_TEXT)
    if not is_reachable(address):
        raise Refused(f"address={address!r:.80} is none")
    return {
        "id": process_id,
        "host": text(message, "host", _MOST_OF_A_TEXT),
        "address": address,
        "endpoint": bytes_of(message, "endpoint", 4096),
        "same": False,
    }


def _died(message: Message) -> Message:
    following = message.get("following")
    if following is not None:
        following = number(message, "following", most=0xFFFF)
    return {
        "id": number(message, "id"),
        "incarnation": number(message, "incarnation", most=0xFFFF),
        "record": _record(message),
        "following": following,
    }


def _event(message: Message) -> Message:
    what = text(message, "what", _MOST_OF_A_TEXT)
    if what not in _EVENTS:
        raise Refused(f"there is no event {what!r:.40}")
    return {
        "what": what,
        "actor": text(message, "actor", _MOST_OF_A_TEXT),
        "incarnation": number(message, "incarnation", most=0xFFFF),
        "record": _record(message) if what in _ENDS else None,
        "last": required(message, "last", bool),
        "monitor": number(message, "monitor"),
    }


def _record(message: Message) -> Message:
    record = ExitRecord.of_plain(required(message, "record", dict)).plain()
    no_more_than(_MOST_OF_A_RECORD, "the record", plain.pack(record))
    return record


_TABLE: dict[str, Callable[[Message], Message]] = {
    "reply": _reply,
    "located": _located,
    "died": _died,
    "event": _event,
}
