# SPDX-License-Identifier: MIT
"""A look at an exception: its parts, and texts that are not too long.

A class may refuse attributes (a frozen dataclass does), so those of `BaseException` are
set by its descriptors. The class's own code runs for texts (``__str__``, ``__repr__``),
and then nothing but Ctrl-C passes.
"""

from __future__ import annotations

import copyreg
import traceback
from collections.abc import Iterator
from types import MemberDescriptorType
from typing import Any

from mooactor.control.complaints import pass_interruption
from mooactor.errors import text_of

MAX_TEXT = 1 << 16
_HUGE = 1 << 24
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, or as if
_OWN_PICKLING = (
    "__reduce__",
    "__reduce_ex__",
    "__getstate__",
    "__setstate__",
    "__getnewargs__",
    "__getnewargs_ex__",
)

# CAUSE.__set__(error, cause)
CAUSE: Any = BaseException.__dict__["__cause__"]
CONTEXT: Any = BaseException.__dict__["__context__"]
SUPPRESS: Any = BaseException.__dict__["__suppress_context__"]
_TRACEBACK: Any = BaseException.__dict__["__traceback__"]


def drop_traceback(error: BaseException) -> None:
    """Also where its class refuses to be changed."""
    _TRACEBACK.__set__(error, None)


def slots_of(error: BaseException) -> dict[str, Any]:
    """The values of the ``__slots__`` of its classes."""
    found = {}
    for cls in type(error).__mro__:
        for name, member in vars(cls).items():
            if type(member) is MemberDescriptorType and cls.__flags__ & _HEAP_TYPE:
                try:
                    found[name] = member.__get__(error)
                except AttributeError:
                    pass  # it was not set
    return found


def pickles_itself(cls: type) -> bool:
    """Whether a class, or one above it, defines its own pickling."""
    return cls in copyreg.dispatch_table or any(
        name in vars(base)
        for base in cls.__mro__
        if base.__flags__ & _HEAP_TYPE
        for name in _OWN_PICKLING
    )


def builtin_base_of(cls: type) -> type:
    """The nearest builtin class, which makes the object."""
    return next(base for base in cls.__mro__ if not base.__flags__ & _HEAP_TYPE)


def name_of(cls: type) -> str:
    """The full name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def add_note(error: BaseException, note: str) -> None:
    """As ``error.add_note`` does it, also where the class refuses notes."""
    notes = vars(error).setdefault("__notes__", [])
    if type(notes) is list:
        notes.append(note)


def readable_text(error: BaseException) -> str:
    """Its text, unless that would show an argument of many megabytes."""
    plain = type(error).__str__ is BaseException.__str__
    if plain and any(map(_is_huge, error.args)):
        return f"({', '.join(map(short_repr, error.args))})"
    return text_of(error)


def _is_huge(value: Any) -> bool:
    return isinstance(value, str | bytes | bytearray) and len(value) > _HUGE


def short_repr(value: Any) -> str:
    """Some 200 characters at most. Only what a signal handler raises passes."""
    if _is_huge(value):
        return f"<{len(value)} items of {type(value).__qualname__}>"
    try:
        return shortened(str.__str__(repr(value)), 200)
    except BaseException as error:
        pass_interruption(error)
        return f"<a {type(value).__qualname__}>"


def notes_of(error: BaseException) -> Iterator[str]:
    """Its notes, each as a string."""
    notes: Any = vars(error).get("__notes__")
    for note in notes if type(notes) in (list, tuple) else ():
        yield str.__str__(note) if isinstance(note, str) else short_repr(note)


def trace_of(error: BaseException, always: bool) -> str:
    """Its own traceback, without the exceptions that it is chained to; empty if it was
    not raised here, unless `always`."""
    last = f"{name_of(type(error)).removeprefix('builtins.')}: {readable_text(error)}"
    try:
        frames = traceback.format_tb(error.__traceback__)
    except BaseException as problem:
        pass_interruption(problem)
        frames = ["  (its frames cannot be shown)\n"]
    if not frames:
        return last if always else ""
    return "".join(["Traceback (most recent call last):\n", *frames, last])


def shortened(text: str, most: int = MAX_TEXT) -> str:
    """A text that is too long without its middle."""
    if len(text) <= most:
        return text
    return (
        f"{text[: most // 2]}\n… {len(text) - most} characters …\n{text[-most // 2 :]}"
    )
