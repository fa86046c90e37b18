# SPDX-License-Identifier: MIT
"""Exceptions cross as their own type, whatever their classes do."""

from __future__ import annotations

import asyncio
import copyreg
import json
import subprocess
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from mooactor import errors
from mooactor.control import codec
from tests.actors.nasty import NoText, TextIsNumber

made: list[type] = []


class KeywordOnly(Exception):
    def __init__(self, code: int, *, hint: str) -> None:
        made.append(KeywordOnly)
        super().__init__(f"code {code}: {hint}")
        self.code, self.hint = code, hint


class Response(OSError):
    def __init__(self, path: str, *, status: int) -> None:
        super().__init__(5, "it failed", path)
        self.status = status


class Slotted(Exception):
    __slots__ = ("place",)

    def __init__(self, place: str) -> None:
        self.place = place


class OwnReduce(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__("own")
        self.a, self.b = a, b

    def __reduce__(self) -> Any:
        return OwnReduce, (self.a, self.b)


class BrokenReduce(Exception):
    def __reduce__(self) -> Any:
        raise SystemExit("in reduce")


class Registered(Exception):
    pass


copyreg.pickle(Registered, lambda error: (Registered, ("from copyreg",)))


class HoldsLock(Exception):
    def __init__(self) -> None:
        super().__init__("text", threading.Lock())
        self.lock = threading.Lock()
        self.kept = [1, 2]


def crossed(error: BaseException, hops: int = 1) -> BaseException:
    """The error, raised and sent as many times."""
    for hop in range(hops):
        try:
            raise error
        except BaseException as raised:
            error = codec.decode_error(codec.encode_error(raised, f"place {hop}"))
    return error


def attributes(error: BaseException) -> dict[str, Any]:
    names = BaseException.__dict__["__dict__"].__get__(error)
    return {k: repr(v) for k, v in names.items() if k != "__notes__"}


ERRORS: list[Callable[[], BaseException]] = [
    lambda: KeywordOnly(3, hint="none"),
    lambda: Response("/x", status=404),
    lambda: OwnReduce(1, 2),
    lambda: BrokenReduce("z"),
    lambda: FileNotFoundError(2, "no such file", "name"),
    lambda: UnicodeDecodeError("utf8", b"x", 0, 1, "bad"),
    lambda: KeyError("k"),
    lambda: SyntaxError("bad", ("f", 1, 2, "text")),
    lambda: subprocess.CalledProcessError(3, ["ls"], b"out", b"err"),
    lambda: json.JSONDecodeError("m", "doc", 1),
    lambda: StopIteration(4),
    lambda: SystemExit(3),
    lambda: asyncio.CancelledError("c"),
    lambda: errors.ActorDied("x", cause=errors.Cause("exit", exitcode=3)),
    lambda: errors.CallTimeout("t", delivered=False),
]


def test_an_exception_is_the_same_after_two_hops() -> None:
    for make in ERRORS:
        error = make()
        made.clear()
        copy = crossed(error, hops=2)
        assert made == []  # no constructor runs
        assert type(copy) is type(error)
        assert str(copy) == str(error)
        assert repr(copy.args) == repr(error.args)
        assert attributes(copy) == attributes(error)
    assert crossed(Registered("itself")).args == ("from copyreg",)


def test_nasty_classes_keep_their_type() -> None:
    for kind in (NoText, TextIsNumber):
        assert type(crossed(kind("x"), hops=2)) is kind
        cause = errors.Cause("exception", exception=kind("x"))
        assert kind.__name__ in str(cause)
    copy = crossed(Slotted("here"))
    assert isinstance(copy, Slotted) and copy.place == "here"


def test_what_cannot_be_pickled_is_left_out_and_named() -> None:
    copy = crossed(HoldsLock())
    assert isinstance(copy, HoldsLock)
    assert copy.kept == [1, 2]
    assert not hasattr(copy, "lock")
    assert copy.args[0] == "text"
    assert "lock" in copy.args[1]  # its repr stands in
    notes = "\n".join(copy.__notes__)
    assert "argument 1 (cannot pickle" in notes
    assert "attribute 'lock' (cannot pickle" in notes


def test_a_type_that_cannot_be_had_is_named_with_the_reason() -> None:
    class Cell:
        def __reduce__(self) -> Any:
            raise RuntimeError("holds a cell")

    class Local(Exception):
        cell = Cell()

    copy = crossed(Local("l"))
    assert isinstance(copy, errors.RemoteError)
    assert copy.type_name.endswith("Local")
    assert "its class (holds a cell)" in copy.reason
    assert "Local: l" in str(copy)


def test_chains_cross_with_their_traceback_each() -> None:
    def fail() -> None:
        try:
            raise KeywordOnly(1, hint="cause")
        except KeywordOnly as error:
            raise ValueError("effect") from error

    with pytest.raises(ValueError, match="effect") as caught:
        fail()
    copy = crossed(caught.value)
    assert isinstance(copy.__cause__, KeywordOnly)
    assert copy.__context__ is copy.__cause__
    assert copy.__suppress_context__
    assert "in fail" in copy.__cause__.__notes__[0]

    error = ValueError("shown")  # raised from None
    error.__context__ = KeyError("hidden")
    error.__suppress_context__ = True
    copy = crossed(error)
    assert isinstance(copy.__context__, KeyError)
    assert "hidden" not in "".join(traceback.format_exception(copy))


def test_groups_cross_with_their_members() -> None:
    inner = ExceptionGroup("inner", [ValueError(1), KeywordOnly(1, hint="h")])
    shared = HoldsLock()
    shared.__cause__ = inner
    copy = crossed(ExceptionGroup("outer", [shared, inner]), hops=2)
    assert isinstance(copy, ExceptionGroup)
    assert copy.message == "outer"
    first, second = copy.exceptions
    assert isinstance(first, HoldsLock)
    assert first.__cause__ is second
    assert isinstance(second, ExceptionGroup)
    assert [type(e) for e in second.exceptions] == [ValueError, KeywordOnly]


def test_a_traceback_of_two_hops_prints_each_frame_once() -> None:
    def innermost() -> None:
        raise ValueError("deep down")

    with pytest.raises(ValueError, match="deep down") as caught:
        innermost()
    text = "".join(traceback.format_exception(crossed(caught.value, hops=3)))
    assert text.count("in innermost") == 1
    assert all(text.count(f"Remote traceback (place {hop})") == 1 for hop in range(3))


def test_long_chains_and_deep_values_do_not_break_it() -> None:
    error: BaseException = ValueError("first")
    for i in range(5000):
        following = ValueError(i)
        following.__context__ = error
        error = following
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    error.nested = nested  # type: ignore[attr-defined]
    copy = crossed(error)
    assert copy.args == (4999,)
    assert any("attribute 'nested'" in note for note in copy.__notes__)
