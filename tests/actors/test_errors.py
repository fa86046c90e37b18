# SPDX-License-Identifier: MIT
from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest

import mooactor as moo
from mooactor import errors
from tests.actors.counter import Counter


class Custom(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Unpicklable(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


@moo.actor
class Raises:
    def __init__(self) -> None:
        self.alive = True

    def builtin(self) -> None:
        raise ValueError("deep down")

    def custom(self) -> None:
        raise Custom(7, "seven")  # its args are not those of its constructor

    def unpicklable(self) -> None:
        raise Unpicklable("holds a lock")

    def result(self) -> Any:
        return threading.Lock()

    def fine(self) -> bool:
        return self.alive


def test_an_exception_arrives_as_its_own_type_with_the_remote_traceback(
    spawn: Any,
) -> None:
    with pytest.raises(ValueError, match="deep down") as caught:
        spawn(Raises).builtin()
    notes = "\n".join(caught.value.__notes__)
    assert "Remote traceback (Raises, process" in notes
    assert "in builtin" in notes


def test_an_exception_whose_constructor_takes_other_arguments_is_its_own_type(
    spawn: Any,
) -> None:
    with pytest.raises(Custom, match="7: seven") as caught:
        spawn(Raises).custom()
    assert caught.value.code == 7


def test_an_attribute_that_cannot_be_pickled_is_left_out_and_a_note_says_so(
    spawn: Any,
) -> None:
    with pytest.raises(Unpicklable, match="holds a lock") as caught:
        spawn(Raises).unpicklable()
    assert not hasattr(caught.value, "lock")
    assert any("attribute 'lock'" in note for note in caught.value.__notes__)


def test_an_unpicklable_result_fails_that_call_only(spawn: Any) -> None:
    actor = spawn(Raises)
    with pytest.raises(TypeError, match="the result of Raises.result"):
        actor.result()
    assert actor.fine() is True


def test_an_unpicklable_argument_fails_at_the_caller_and_is_named(spawn: Any) -> None:
    counter = spawn(Counter)
    with pytest.raises(TypeError, match="argument 'b' \\(a lock\\)"):
        counter.pair(1, b=threading.Lock())
    with pytest.raises(TypeError, match="argument 0 \\(a lock\\)"):
        counter.echo(threading.Lock())
    assert counter.echo(1) == 1


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, 2), {}), ((1,), {"c": 2}), ((1,), {})]
)
def test_a_wrong_argument_list_is_refused_at_the_caller(
    spawn: Any, args: Any, kwargs: Any
) -> None:
    with pytest.raises(TypeError, match=r"pair\(\)"):
        spawn(Counter).pair(*args, **kwargs)


def test_wrong_constructor_arguments_are_refused_at_the_caller(session: Any) -> None:
    with pytest.raises(TypeError, match=r"Counter\(\)"):
        moo.spawn(Counter, 1, 2)  # type: ignore[call-arg]


def test_state_is_not_readable_and_the_message_says_what_to_do(spawn: Any) -> None:
    with pytest.raises(AttributeError, match="state lives in the actor"):
        _ = spawn(Counter).unit


def test_private_methods_are_not_reachable(spawn: Any) -> None:
    with pytest.raises(AttributeError, match="private"):
        _ = spawn(Counter)._secret


def test_an_unknown_method_names_the_known_ones(spawn: Any) -> None:
    with pytest.raises(AttributeError, match="no method 'ad'.*add"):
        _ = spawn(Counter).ad


def test_a_failed_tell_does_not_harm_the_actor(spawn: Any) -> None:
    counter = spawn(Counter)
    counter.fail.tell(ValueError("nobody hears this"))
    assert counter.add(1) == 1


def test_every_error_is_exported_documented_and_picklable() -> None:
    tree = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.MooError)
    ]
    assert len(tree) > 12
    for kind in tree:
        assert kind.__doc__
        assert getattr(moo, kind.__name__) is kind
        error = kind("what happened", delivered=False)
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert str(copy) == "what happened"
        assert copy.delivered is False


def test_causes_survive_pickling() -> None:
    cause = moo.Cause("signal", signal=11, stderr=("last words",))
    error = pickle.loads(pickle.dumps(moo.ActorDied("gone", cause=cause)))
    assert error.cause == cause
    assert "SIGSEGV" in str(cause)
