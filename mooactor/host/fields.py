# SPDX-License-Identifier: MIT
"""The fields of a request to the agent, from any sender."""

from __future__ import annotations

import math
from typing import Any

from mooactor.control.lifeline import Message

LONGEST_S = 1e9  # of a time: callers cut theirs to it
MOST_THINGS, MOST_BYTES = 10**9, 10**18  # of a host: cores or GPUs, and memory
MAX_ID = (1 << 64) - 1
MOST_OF_A_HANDLE = 1 << 21  # messages with one must fit into a frame


class Refused(Exception):
    """A request that cannot be done; its text is the reason."""


#: What comes of a message with missing or wrong fields, where none is checked first.
MALFORMED = (
    Refused,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


def required(message: Message, key: str, kind: type) -> Any:
    """The value of a field that is there, of exactly this type."""
    value = message.get(key)
    if type(value) is not kind:
        raise Refused(f"{key}={value!r:.40} is no {kind.__name__}")
    return value


def optional(message: Message, key: str, kind: type) -> Any:
    """As `required`; None if it is not there."""
    return None if message.get(key) is None else required(message, key, kind)


def number(message: Message, key: str, *, least: int = 0, most: int = MAX_ID) -> int:
    """A whole number within bounds."""
    value: int = required(message, key, int)
    if not least <= value <= most:
        raise Refused(f"{key}={value} is not between {least} and {most}")
    return value


def quantity(message: Message, key: str, *, most: float = LONGEST_S) -> float:
    """A finite number that is not negative, such as seconds."""
    value = message.get(key)
    if type(value) is not int and type(value) is not float:
        raise Refused(f"{key}={value!r:.40} is no number")
    if not 0 <= value <= most or math.isnan(value):
        raise Refused(f"{key}={value} is not between 0 and {most:g}")
    return float(value)


def no_more_than(most: int, key: str, value: Any) -> Any:
    """`value`, if its length is at most `most`.

    Raises:
      Refused: it is longer.
    """
    if value is not None and len(value) > most:
        raise Refused(f"{key} has a length of {len(value)}; at most {most} are kept")
    return value


def text(message: Message, key: str, most: int) -> str:
    """A string of at most so many characters."""
    found: str = no_more_than(most, key, required(message, key, str))
    return found


def bytes_of(message: Message, key: str, most: int) -> bytes:
    """At most so many bytes."""
    found: bytes = no_more_than(most, key, required(message, key, bytes))
    return found


def numbers(message: Message, key: str) -> list[int]:
    """A list of whole numbers; none if it is not there."""
    found: list[int] = optional(message, key, list) or []
    if any(type(one) is not int for one in found):
        raise Refused(f"{key} has something that is no whole number")
    return found


def texts(message: Message, key: str) -> list[str]:
    """A list of strings."""
    found: list[str] = required(message, key, list)
    if any(type(one) is not str for one in found):
        raise Refused(f"{key} has something that is no string")
    return found


def strings(message: Message, key: str) -> dict[str, str]:
    """A dict of strings."""
    found: dict[str, str] = required(message, key, dict)
    if any(type(one) is not str for one in found.values()):
        raise Refused(f"{key} has something that is no string")
    return found
