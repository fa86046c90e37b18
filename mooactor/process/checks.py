# SPDX-License-Identifier: MIT
"""Checks of users' arguments to public functions.

Invariant: a wrong argument is refused where the user passed it, before anything is
sent or started, by one sentence that begins with the argument's name and its value. A
wrong type raises `TypeError` and a wrong value `ValueError`. Each function returns
the value as a plain Python type, so that nothing below this layer meets a subclass
or a numpy scalar.
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from enum import Enum
from numbers import Integral, Real
from types import UnionType
from typing import Any

MOST_OF_A_NAME = 1000  # characters
_MOST_S = 1e9  # 30 years; clocks and waits of the system have limits, too

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 60


def shown(name: str, value: object) -> str:
    """``name=value``, the value shortened: the beginning of every message."""
    return f"{name}={_repr.repr(value)}"


def kind(
    name: str, value: Any, kinds: type | tuple[type, ...] | UnionType, what: str
) -> None:
    """An instance of these; `what` continues the sentence "must be"."""
    if not isinstance(value, kinds):
        raise TypeError(f"{shown(name, value)} must be {what}")


def _float(value: Any) -> float:
    """A number of hundreds of digits is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def seconds(
    name: str, value: Any, *, positive: bool = False, optional: bool = True
) -> float | None:
    """A duration: None, and 30 years or more, mean no limit where that is allowed.

    A negative duration to wait is past, and allowed as 0 is, unless `positive`.
    """
    none = ", or None for no limit" if optional else ""
    if value is None and optional:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{shown(name, value)} must be a number of seconds{none}")
    number = _float(value)
    if math.isnan(number):
        raise ValueError(f"{shown(name, value)} must be a number of seconds{none}")
    if positive and number <= 0:
        raise ValueError(
            f"{shown(name, value)} must be a number of seconds above 0{none}"
        )
    if number > _MOST_S:
        if optional:
            return None
        raise ValueError(
            f"{shown(name, value)} must be a number of seconds of at most {_MOST_S:.0e}"
        )
    return number


def count(
    name: str, value: Any, what: str, *, least: int = 0, most: int | None = None
) -> int:
    """A whole number of something; `what` continues the sentence "must be"."""
    bounds = f"at least {least}" if most is None else f"from {least} to {most}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{shown(name, value)} must be {what}, {bounds}")
    number = int(value)
    if number < least or (most is not None and number > most):
        raise ValueError(f"{shown(name, value)} must be {what}, {bounds}")
    return number


def size(name: str, value: Any, *, least: int = 0) -> int:
    """A number of bytes; also as a float such as 8e9, if it is whole."""
    what = "a whole number of bytes"
    if isinstance(value, Real) and not isinstance(value, bool | Integral):
        number = _float(value)
        if not number.is_integer():  # as inf and nan are not
            raise ValueError(f"{shown(name, value)} must be {what}, at least {least}")
        value = int(number)
    return count(name, value, what, least=least)


def flag(name: str, value: Any) -> bool:
    """True or False."""
    kind(name, value, bool, "True or False")
    return bool(value)


def text(name: str, value: Any, what: str) -> str:
    """A string; `what` says of what, with its article."""
    kind(name, value, str, f"{what}, a string")
    return str(value)


def name(name: str, value: Any) -> str:
    """A name of an actor or a group; an enum's member that is a string is its text."""
    kind(name, value, str, "a name, a string")
    plain = str.__str__(value)
    if not plain or len(plain) > MOST_OF_A_NAME or "\0" in plain:
        raise ValueError(
            f"{shown(name, value)} must be a name of 1 to {MOST_OF_A_NAME} "
            "characters without NUL"
        )
    return plain


def amount(name: str, value: Any, *, most: float = _MOST_S) -> float:
    """An amount of something, such as CPUs; parts are possible."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{shown(name, value)} must be a number")
    number = _float(value)
    if not 0 <= number <= most:
        raise ValueError(f"{shown(name, value)} must be between 0 and {most:g}")
    return number


def function(name: str, value: Any) -> Any:
    """Something that can be called."""
    if not callable(value):
        raise TypeError(f"{shown(name, value)} must be a function")
    return value


def one_of(name: str, value: Any, known: Iterable[str]) -> str:
    """One of several words."""
    words = list(known)
    if isinstance(value, str) and value in words:
        return str(value)
    listed = ", ".join(map(repr, words[:-1])) + f" or {words[-1]!r}"
    kind = ValueError if isinstance(value, str) else TypeError
    raise kind(f"{shown(name, value)} must be {listed}{_perhaps(value, words)}")


def known_names(where: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Keyword arguments of a function that takes them as a mapping."""
    names = list(known)
    for name in given:
        if name not in names:
            raise TypeError(
                f"{where} has no option {name!r}{_perhaps(name, names)}; its options: "
                + ", ".join(names)
            )


def _perhaps(word: object, known: list[str]) -> str:
    close = get_close_matches(word, known, 1) if isinstance(word, str) else []
    return f" (did you mean {close[0]!r}?)" if close else ""


# -- environment variables --------------------------------------------------


#: Before the name of a variable that is to be unset: no name has it.
UNSET = "="


def environment(value: Any) -> dict[str, str]:
    """Environment variables; None as a value is one that is to be unset."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(
            f"{shown('env', value)} must be a mapping of strings to strings"
        )
    found = {}
    for key in value:
        if value[key] is None:
            found[UNSET + _variable(key)] = ""
        else:
            found[_variable(key)] = _setting(key, value[key])
    return found


def _variable(key: Any) -> str:
    name = _string(key)
    if name is None:
        raise TypeError(f"env has the key {key!r:.60}; the name of a variable is a str")
    if not name or "=" in name or "\0" in name or not _encodes(name):
        raise ValueError(
            f"env has the key {name!r:.60}, which is not a valid name of a variable"
        )
    return name


def _setting(key: Any, value: Any) -> str:
    text = _string(value)
    if text is None:
        raise TypeError(
            f"env[{key!r}] is {value!r:.60}, a {type(value).__qualname__}; the value "
            "of a variable is a string"
        )
    if "\0" in text or not _encodes(text):
        raise ValueError(
            f"env[{key!r}]={text!r:.60} is not a valid value of a variable: it must "
            "be UTF-8 text without NUL"
        )
    return text


def _string(value: Any) -> str | None:
    """A string, or an enum's member that stands for one."""
    if isinstance(value, Enum) and not isinstance(value, str):
        value = value.value
    return str.__str__(value) if isinstance(value, str) else None


def _encodes(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True
