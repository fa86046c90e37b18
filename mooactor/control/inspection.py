# SPDX-License-Identifier: MIT
"""A careful look at an exception, past whatever its class overrides.

A class may define ``__getattribute__``, ``__setattr__``, ``__dict__``, ``__class__`` or
a metaclass of its own, and any of them may raise. So its parts are read and set with
the descriptors of `BaseException`, and its class is asked as `type` would answer. The
class's own code runs only for texts (``__str__``, ``__repr__``), and then nothing but
Ctrl-C passes.
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

# To read and set: CAUSE.__get__(error), CAUSE.__set__(error, cause).
CAUSE: Any = BaseException.__dict__["__cause__"]
CONTEXT: Any = BaseException.__dict__["__context__"]
SUPPRESS: Any = BaseException.__dict__["__suppress_context__"]
_TRACEBACK: Any = BaseException.__dict__["__traceback__"]
_DICT: Any = BaseException.__dict__["__dict__"]
_GROUP_MEMBERS: Any = BaseExceptionGroup.__dict__["exceptions"]
_NAME: Any = type.__dict__["__qualname__"]


def drop_traceback(error: BaseException) -> None:
    """Also where its class refuses to be changed."""
    _TRACEBACK.__set__(error, None)


def cause_of(error: BaseException) -> BaseException | None:
    """Its ``__cause__``."""
    cause: BaseException | None = CAUSE.__get__(error)
    return cause


def context_of(error: BaseException) -> BaseException | None:
    """Its ``__context__``."""
    context: BaseException | None = CONTEXT.__get__(error)
    return context


def members_of(error: BaseException) -> tuple[BaseException, ...]:
    """The exceptions of a group; of any other there are none."""
    if not issubclass(type(error), BaseExceptionGroup):
        return ()
    members: tuple[BaseException, ...] = _GROUP_MEMBERS.__get__(error)
    return members


def attributes_of(error: BaseException) -> dict[str, Any]:
    """Its ``__dict__`` itself, so that writing to it sets attributes."""
    attributes: dict[str, Any] = _DICT.__get__(error)
    return attributes


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


def is_exception(value: object) -> bool:
    """As `isinstance`, but without regard to its ``__class__``."""
    return issubclass(type(value), BaseException)


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
    """The full name of a class, past its metaclass."""
    module = cls.__dict__.get("__module__", "builtins")
    return f"{module if type(module) is str else '?'}.{short_name_of(cls)}"


def short_name_of(cls: type) -> str:
    """The name of a class without its module, past its metaclass."""
    name: str = _NAME.__get__(cls)
    return name


def add_note(error: BaseException, note: str) -> None:
    """As ``error.add_note`` does it, also where the class refuses notes."""
    notes = attributes_of(error).setdefault("__notes__", [])
    if type(notes) is list:
        notes.append(note)


def readable_text(error: BaseException) -> str:
    """Its text, unless that would show an argument of many megabytes."""
    if type(error).__str__ is BaseException.__str__:
        args = BaseException.__dict__["args"].__get__(error)
        if any(map(_is_huge, args)):
            return f"({', '.join(map(short_repr, args))})"
    return text_of(error)


def _is_huge(value: Any) -> bool:
    return isinstance(value, str | bytes | bytearray) and len(value) > _HUGE


def short_repr(value: Any) -> str:
    """Some 200 characters at most. Only what a signal handler raises passes."""
    if _is_huge(value):
        return f"<{len(value)} items of {short_name_of(type(value))}>"
    try:
        return shortened(str.__str__(repr(value)), 200)
    except BaseException as error:
        pass_interruption(error)
        return f"<a {short_name_of(type(value))}>"


def notes_of(error: BaseException) -> Iterator[str]:
    """Its notes, each as a string."""
    notes: Any = attributes_of(error).get("__notes__")
    for note in notes if type(notes) in (list, tuple) else ():
        yield str.__str__(note) if isinstance(note, str) else short_repr(note)


def trace_of(error: BaseException, always: bool) -> str:
    """Its own traceback, without the exceptions that it is chained to; empty if it was
    not raised here, unless `always`."""
    last = f"{name_of(type(error)).removeprefix('builtins.')}: {readable_text(error)}"
    try:
        frames = traceback.format_tb(_TRACEBACK.__get__(error))
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
