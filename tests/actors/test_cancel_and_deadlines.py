# SPDX-License-Identifier: MIT
from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.control import envelope
from mooactor.control.sender import Sender
from tests.actors.counter import Async, Counter
from tests.conftest import eventually


def test_a_queued_call_that_is_cancelled_never_runs(spawn: Any) -> None:
    counter = spawn(Counter)
    blocker = counter.until_queued.remote(2)
    queued = counter.note.remote("never")
    assert queued.cancel() is True
    with pytest.raises(moo.Cancelled):
        queued.get()
    # They arrive after the cancellation.
    moo.get([blocker, counter.echo.remote(1), counter.echo.remote(2)])
    assert counter.notes() == []
    assert queued.cancelled()


def test_a_running_sync_method_sees_the_flag(spawn: Any) -> None:
    counter = spawn(Counter)
    ref = counter.until_cancelled.remote()
    time.sleep(0.05)  # it may also be cancelled before it runs; both end
    ref.cancel()
    assert eventually(lambda: counter.notes() in (["cancelled"], []))
    assert counter.echo(1) == 1


def test_a_running_async_method_gets_cancelled_error(spawn: Any) -> None:
    actor = spawn(Async)
    ref = actor.forever.remote()
    actor.peek.remote().get()
    assert ref.cancel()
    assert eventually(lambda: actor.ordered.remote().get() == [-1])


def test_cancelling_what_is_done_says_no(spawn: Any) -> None:
    ref = spawn(Counter).echo.remote(1)
    ref.get()
    assert ref.cancel() is False
    assert ref.get() == 1


def test_a_deadline_ends_the_call_and_names_it(spawn: Any) -> None:
    counter = spawn(Counter)
    start = time.perf_counter()
    with pytest.raises(moo.CallTimeout, match=r"Counter\.sleep .*0\.1 s"):
        counter.sleep.options(timeout=0.1)(60.0)
    assert time.perf_counter() - start < 30


def test_what_a_method_returns_after_its_deadline_is_no_result(spawn: Any) -> None:
    """It sees its deadline, and returns, before or after its caller does."""
    counter = spawn(Counter)
    for _ in range(50):
        with pytest.raises(moo.CallTimeout):
            counter.until_cancelled.options(timeout=0.01)()
    tell = counter.until_cancelled.options(timeout=0.01).tell
    tell()  # for which nobody waits, and nothing is said
    assert counter.echo(1) == 1


def test_a_call_whose_deadline_passed_in_the_queue_does_not_run(
    spawn: Any, tmp_path: Path
) -> None:
    counter, gate = spawn(Counter), tmp_path / "gate"
    blocker = counter.until.remote(gate, tmp_path / "begun")
    assert eventually((tmp_path / "begun").exists)
    late = counter.note.options(timeout=0.1).remote("late")
    with pytest.raises(moo.CallTimeout):
        late.get()
    gate.touch()
    blocker.get()
    assert counter.notes() == []


@pytest.fixture
def slow_cancellations(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that ends a call is held up before the callee is told, so that others
    could go on."""
    post = Sender.post

    def late(self: Sender, process_id: int, kind: int, *more: Any) -> None:
        if kind == envelope.CANCEL:
            time.sleep(0.3)
        post(self, process_id, kind, *more)

    monkeypatch.setattr(Sender, "post", late)


@pytest.mark.usefixtures("slow_cancellations")
def test_once_a_deadline_has_passed_here_the_callee_does_not_begin(
    spawn: Any, tmp_path: Path
) -> None:
    counter, gate = spawn(Counter), tmp_path / "gate"
    blocker = counter.until.remote(gate, tmp_path / "begun")
    assert eventually((tmp_path / "begun").exists)
    queued = counter.note.options(timeout=0.1).remote("queued")
    while time.perf_counter() < queued.deadline:
        time.sleep(0.001)
    gate.touch()  # no word has gone to the actor
    blocker.get()
    assert counter.notes() == []
    with pytest.raises(moo.CallTimeout):
        queued.get()


@pytest.mark.usefixtures("slow_cancellations")
@pytest.mark.parametrize("learns", ["by waiting", "by cancelling, too"])
def test_whoever_learns_of_a_cancellation_calls_after_the_callee_was_told(
    spawn: Any, learns: str
) -> None:
    counter = spawn(Counter)
    blocker = counter.until_queued.remote(2)
    queued = counter.note.remote("queued")
    canceller = threading.Thread(target=queued.cancel)
    canceller.start()
    if learns == "by waiting":
        with pytest.raises(moo.Cancelled):
            queued.get()
    else:
        queued.cancel()
    moo.get([blocker, counter.echo.remote(1), counter.echo.remote(2)])
    assert counter.notes() == []
    canceller.join()


def test_deadlines_pass_on_to_nested_calls(spawn: Any) -> None:
    outer, inner = spawn(Counter), spawn(Counter)
    assert outer.call_time_left(inner) is None
    left = outer.call_time_left.options(timeout=100.0)(inner)
    assert 10.0 < left < 100.0


def test_a_nested_wait_ends_with_the_outer_deadline(spawn: Any) -> None:
    outer, inner = spawn(Counter), spawn(Counter)
    assert inner.echo(1) == outer.echo(1) == 1
    with pytest.raises(moo.CallTimeout):
        outer.call.options(timeout=0.2)(inner, "sleep", 600.0)
    assert outer.echo(2) == 2


def test_long_calls_are_fine_without_a_deadline(spawn: Any) -> None:
    assert spawn(Counter).sleep(1.2) == 1.2


def test_options_of_another_name_are_refused(spawn: Any) -> None:
    with pytest.raises(TypeError, match="timeouts"):
        spawn(Counter).echo.options(timeouts=3)


def test_a_method_timeout_is_the_default_of_its_calls(spawn: Any) -> None:
    class Slow:
        @moo.method(timeout=0.1)
        def nap(self) -> None:
            time.sleep(1)

    with pytest.raises(moo.CallTimeout):
        spawn(Slow).nap()
