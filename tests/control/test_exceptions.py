# SPDX-License-Identifier: MIT
"""Exceptions cross as their own type, whatever their classes do."""

from __future__ import annotations

import asyncio
import copyreg
import json
import signal
import subprocess
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from mooactor import errors
from mooactor.control import codec, inspection
from tests.actors.nasty import NoText, TextIsNumber

made: list[type] = []


class KeywordOnly(Exception):
    def __init__(self, code: int, *, hint: str) -> None:
        made.append(KeywordOnly)
        super().__init__(f"code {code}: {hint}")
        self.code, self.hint = code, hint


class Several(ValueError):
    def __init__(self, host: str, port: int, reason: Exception) -> None:
        super().__init__(f"{host}:{port}")
        self.host, self.port, self.reason = host, port, reason


class Response(OSError):
    def __init__(self, path: str, *, status: int) -> None:
        super().__init__(5, "it failed", path)
        self.status = status


class Slotted(Exception):
    __slots__ = ("place",)

    def __init__(self, place: str) -> None:
        self.place = place


class Frozen(Exception):
    """Takes no notes and no attributes."""

    __notes__ = property(lambda self: 1 // 0)  # type: ignore[assignment]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("frozen")

    def add_note(self, note: str) -> None:
        raise TypeError("no notes")


class Text(str):
    def __reduce__(self) -> Any:
        raise RuntimeError("not a plain string")


class TextIsSpecial(Exception):
    def __str__(self) -> str:
        return Text("special")


class OwnReduce(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__("own")
        self.a, self.b = a, b

    def __reduce__(self) -> Any:
        return OwnReduce, (self.a, self.b)


class BrokenReduce(Exception):
    def __reduce__(self) -> Any:
        raise SystemExit("in reduce")


class BrokenRebuild(KeywordOnly):
    """Its base's idea of pickling does not fit it."""

    def __reduce__(self) -> Any:
        return BrokenRebuild, self.args


class EvilGetattr(Exception):
    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":  # or pytest does not bear it
            return super().__getattribute__(name)
        raise RuntimeError(name)


class EvilNew(Exception):
    def __new__(cls, *args: object) -> EvilNew:
        if args != ("right",):
            raise RuntimeError("made otherwise")
        return super().__new__(cls, *args)


class Registered(Exception):
    pass


copyreg.pickle(Registered, lambda error: (Registered, ("from copyreg",)))


class HoldsLock(Exception):
    def __init__(self) -> None:
        super().__init__("text", threading.Lock())
        self.lock = threading.Lock()
        self.kept = [1, 2]


armed: list[bool] = []


class Strikes(Exception):
    """While it is unpickled there comes a signal, if it is `armed`."""

    def __reduce__(self) -> Any:
        return _strike, ()


def _strike() -> Strikes:
    if armed:
        signal.raise_signal(signal.SIGUSR2)
    return Strikes()


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
    lambda: Several("a", 1, KeywordOnly(1, hint="inside")),
    lambda: Response("/x", status=404),
    lambda: OwnReduce(1, 2),
    lambda: BrokenReduce("z"),
    lambda: BrokenRebuild(1, hint="h"),
    lambda: EvilNew("right"),
    lambda: FileNotFoundError(2, "no such file", "name"),
    lambda: OSError(13, "no", "a", None, "b"),
    lambda: BlockingIOError(11, "again", 7),
    lambda: UnicodeDecodeError("utf8", b"x", 0, 1, "bad"),
    lambda: KeyError("k"),
    lambda: ImportError("i", name="n", path="p"),
    lambda: SyntaxError("bad", ("f", 1, 2, "text")),
    lambda: subprocess.CalledProcessError(3, ["ls"], b"out", b"err"),
    lambda: subprocess.TimeoutExpired("ls", 3.0),
    lambda: json.JSONDecodeError("m", "doc", 1),
    lambda: StopIteration(4),
    lambda: StopAsyncIteration(4),
    lambda: SystemExit(3),
    lambda: KeyboardInterrupt("k"),
    lambda: GeneratorExit("g"),
    lambda: asyncio.CancelledError("c"),
    lambda: asyncio.IncompleteReadError(b"x", 3),
    lambda: errors.ActorDied("x", cause=errors.Cause("exit", exitcode=3)),
    lambda: errors.CallTimeout("t", delivered=False),
]


@pytest.mark.parametrize("make", ERRORS, ids=lambda make: type(make()).__name__)
def test_an_exception_is_the_same_after_two_hops(
    make: Callable[[], BaseException],
) -> None:
    error = make()
    copy = crossed(error, hops=2)
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert repr(copy.args) == repr(error.args)
    assert attributes(copy) == attributes(error)


def test_no_constructor_runs() -> None:
    error = KeywordOnly(1, hint="h")
    made.clear()
    crossed(error)
    assert made == []


def test_what_a_class_registers_for_its_pickling_is_honoured() -> None:
    assert crossed(Registered("itself")).args == ("from copyreg",)


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        (Frozen, "f"),
        (NoText, "1"),
        (TextIsNumber, "2"),
        (TextIsSpecial, "3"),
        (Slotted, "h"),
        (EvilGetattr, "e"),
        (HoldsLock, ""),
    ],
)
def test_nasty_classes_keep_their_type(kind: Any, args: str) -> None:
    copy = crossed(kind(*args), hops=2)
    assert type(copy) is kind


def test_slots_cross() -> None:
    copy = crossed(Slotted("here"))
    assert isinstance(copy, Slotted)
    assert copy.place == "here"


def test_a_class_that_takes_no_notes_gets_them_behind_its_back() -> None:
    copy = crossed(Frozen("f"))
    hidden = BaseException.__dict__["__dict__"].__get__(copy)["__notes__"]
    assert "Remote traceback (place 0)" in hidden[0]


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


def test_from_none_still_hides_the_context() -> None:
    error = ValueError("shown")
    error.__context__ = KeyError("hidden")
    error.__suppress_context__ = True
    copy = crossed(error)
    assert isinstance(copy.__context__, KeyError)
    assert "hidden" not in "".join(traceback.format_exception(copy))


def test_rings_of_exceptions_cross() -> None:
    first, second = ValueError(1), KeywordOnly(2, hint="h")
    first.__context__, second.__cause__ = second, first
    copy = crossed(first)
    assert isinstance(copy.__context__, KeywordOnly)
    assert copy.__context__.__cause__ is copy


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


def test_parts_beyond_the_limit_are_left_out() -> None:
    error = KeywordOnly(1, hint="h")
    error.log = b"x" * 5000  # type: ignore[attr-defined]
    copy = codec.decode_error(codec.encode_error(error, "here", 4000))
    assert isinstance(copy, KeywordOnly)
    assert copy.code == 1
    assert any("attribute 'log'" in note for note in copy.__notes__)


def test_long_texts_are_cut_in_the_message_only() -> None:
    text = "y" * 1_000_000
    payload = codec.encode_error(ValueError(text), "here")
    assert len(payload) < 1_300_000
    assert codec.decode_error(payload).args == (text,)


def test_the_text_of_huge_arguments_is_not_made() -> None:
    error = ValueError("what", bytes(1 << 25))
    payload = codec.encode_error(error, "here", 1 << 20)
    assert len(payload) < 10_000
    copy = codec.decode_error(payload)
    assert copy.args == ("what", "<33554432 items of bytes>")


@pytest.mark.parametrize("payload", [b"", b"nonsense", b"\x80\x05N."])
def test_what_is_no_exception_is_read_as_one(payload: bytes) -> None:
    assert isinstance(codec.decode_error(payload), errors.RemoteError)


def test_an_exception_inside_a_value_is_rebuilt_in_the_same_way() -> None:
    made.clear()
    error = KeywordOnly(1, hint="h")
    error.itself = error  # type: ignore[attr-defined]
    made.clear()
    data, _ = codec.encode({"error": error, "kind": KeywordOnly})
    value = codec.decode(data)
    assert value["kind"] is KeywordOnly
    assert value["error"].itself is value["error"]
    assert made == []


def test_a_cause_has_a_text_whatever_its_exception_says() -> None:
    for error in (NoText(), TextIsNumber(), EvilGetattr()):
        cause = errors.Cause("exception", exception=error)
        assert type(error).__name__ in str(cause)


def test_ctrl_c_is_not_swallowed() -> None:
    class Interrupted(Exception):
        def __reduce__(self) -> Any:
            raise KeyboardInterrupt

    # In a main thread that takes Ctrl-C, a KeyboardInterrupt may be one.
    with pytest.raises(KeyboardInterrupt):
        codec.encode_error(Interrupted(), "here")


def test_what_a_signal_handler_raises_meanwhile_is_no_part_of_it() -> None:
    class Alarm(Exception):
        pass

    def ring(*_: object) -> None:
        raise Alarm

    payload = codec.encode_error(Strikes(), "here")
    before = signal.signal(signal.SIGUSR2, ring)
    armed.append(True)
    try:
        with pytest.raises(Alarm):
            codec.decode_error(payload)
    finally:
        armed.clear()
        signal.signal(signal.SIGUSR2, before)
    assert isinstance(codec.decode_error(payload), Strikes)


def test_notes_are_added_also_where_the_class_refuses_them() -> None:
    error = Frozen()
    inspection.add_note(error, "a note")
    assert BaseException.__dict__["__dict__"].__get__(error)["__notes__"] == ["a note"]
