# SPDX-License-Identifier: MIT
"""Values that come for calls which never do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import mooactor as moo
from mooactor.control import bodies, envelope
from mooactor.process.current import current_runtime
from mooactor.process.objects import values as values_module
from tests.actors.keeper import holdings, value
from tests.conftest import eventually, running_session


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with running_session() as running:
        send_to_self(0)  # what that needs is opened once
        current_runtime().values.forget(0)
        yield running


def send_to_self(token: int) -> None:
    """A value of 64 KiB, as another process would send it."""
    runtime = current_runtime()
    ref = moo.put(value(token))
    runtime.handovers.send(ref, runtime.process_id, token)
    assert eventually(lambda: (runtime.poller.try_drain(), token in _expected())[1])


def impatient(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Drop what waits at once; returns the runtime."""
    runtime = current_runtime()
    monkeypatch.setattr(values_module, "_UNCLAIMED_S", 0.0)
    monkeypatch.setattr(runtime.values._unclaimed, "_will_sweep", False)
    return runtime


def _expected() -> Any:
    return current_runtime().values._expected


def test_a_value_whose_call_never_comes_is_dropped_in_time(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_to_self(1)
    assert holdings()["imported"] > 0  # it waits for its call
    runtime = impatient(monkeypatch)
    ref = moo.put(value(2))
    runtime.handovers.send(ref, runtime.process_id, 2)
    del ref
    nothing = dict.fromkeys(holdings(), 0)
    assert eventually(lambda: (runtime.poller.try_drain(), holdings() == nothing)[1])


def test_a_call_that_comes_after_that_is_told(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = impatient(monkeypatch)
    ref = moo.put(value(3))  # there until its value has come, however late that is
    runtime.handovers.send(ref, runtime.process_id, 3)

    def is_dropped() -> bool:
        runtime.poller.try_drain()
        return 3 in runtime.values._unclaimed.given_up and 3 not in _expected()

    assert eventually(is_dropped)
    future = runtime.values.expect(3, runtime.process_id)
    assert isinstance(future.failure(), moo.ActorUnavailable)
    runtime.values.forget(3)


def test_a_refused_value_is_dropped_whether_it_comes_before_or_after(
    session: Any,
) -> None:
    runtime = current_runtime()
    send_to_self(4)
    for token in (4, 5):
        runtime.values.expect(token, runtime.process_id)
        runtime.values.abandon(token)
    runtime.handovers.send(moo.put(value(5)), runtime.process_id, 5)
    nothing = dict.fromkeys(holdings(), 0)
    assert eventually(lambda: (runtime.poller.try_drain(), holdings() == nothing)[1])


def test_all_numbers_of_a_record_come_apart() -> None:
    assert bodies.all_numbers(bodies.pack_numbers(1, 2, 3)) == [1, 2, 3]
    with pytest.raises(envelope.MalformedMessage):
        bodies.all_numbers(b"1234567")
