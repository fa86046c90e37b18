# SPDX-License-Identifier: MIT
"""What a handle refuses, and says what to do instead."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Counter


def test_state_lives_in_the_actor_and_the_message_says_what_to_do(spawn: Any) -> None:
    counter = spawn(Counter)
    for name in ("total", "unit", "new", "_private", "add"):
        with pytest.raises(AttributeError, match=f"Counter.{name}.*lives in the actor"):
            setattr(counter, name, 3)
        with pytest.raises(AttributeError, match=f"Counter.{name}.*lives in the actor"):
            delattr(counter, name)
    with pytest.raises(AttributeError, match="state lives in the actor"):
        _ = counter.unit
    assert counter.add(1) == 1
    with pytest.raises(AttributeError):
        counter.add.speed = 3


def test_a_method_that_cannot_be_called_says_why(spawn: Any) -> None:
    counter = spawn(Counter)
    with pytest.raises(AttributeError, match="private"):
        _ = counter._secret
    with pytest.raises(AttributeError, match="no method 'ad'.*add"):
        _ = counter.ad
    for args, kwargs in (((), {}), ((1, 2), {}), ((1,), {"c": 2}), ((1,), {})):
        with pytest.raises(TypeError, match=r"pair\(\)"):
            counter.pair(*args, **kwargs)
    with pytest.raises(TypeError, match=r"Counter\(\)"):
        moo.spawn(Counter, 1, 2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="up_to is a generator"):
        counter.up_to.tell(3)
    with pytest.raises(ValueError, match="stream cannot be sent again"):
        counter.up_to.options(retries=1)
    assert counter.up_to.options(retries=0, stream_window=2) is not None


def test_copies_of_a_handle_are_handles(spawn: Any) -> None:
    counter = spawn(Counter)
    counter.add(1)
    for other in (
        copy.copy(counter),
        copy.deepcopy(counter),
        pickle.loads(pickle.dumps(counter)),
    ):
        assert other == counter
        assert other.add(1) > 1


def test_a_session_s_begin_and_end_are_the_driver_s(spawn: Any) -> None:
    class Meddler:
        def __init__(self) -> None:
            with pytest.raises(moo.MooError, match="session already"):
                moo.init()

        def meddle(self) -> str:
            for meddling in (moo.init, moo.shutdown):
                with pytest.raises(moo.MooError, match="for the driver"):
                    meddling()
            return "refused"

        def spawn_one(self) -> int:
            counter = moo.spawn(Counter)
            count = counter.add(1)
            moo.kill(counter)
            return int(count)

    meddler = spawn(Meddler)
    assert meddler.meddle() == "refused"
    assert meddler.spawn_one() == 1  # all else works
