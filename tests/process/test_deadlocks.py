# SPDX-License-Identifier: MIT
"""The search for cycles of calls that wait for each other, with records by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mooactor.control import bodies, envelope
from mooactor.control.links import Link
from mooactor.errors import DeadlockError
from mooactor.process.calls import CallContext
from mooactor.process.deadlock import DeadlockDetector, Wait, WaitForRoom, refuse_cycle
from mooactor.process.interface import interface_of
from mooactor.process.objects.future import Future

ME, CALLEE, CALLER = 1 << 16, 2 << 16, 3 << 16


class Search(DeadlockDetector):
    """Of a process whose only method holds up all calls to it. It notes whom it asks,
    and what it ends."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []  # process, call
        self.ended: list[Future] = []
        poller: Any = SimpleNamespace(wake=lambda: None)
        super().__init__(ME, poller, self, self._end)  # type: ignore[arg-type]
        self.method = CallContext(ME, "Me", CALLER, 1, (), None, "ask")
        self.server = self  # type: ignore[assignment]

    def post(self, to: int, kind: int, number: int, payload: Any, flags: int) -> None:
        assert kind == envelope.PROBE
        self.asked.append((to, number))

    def holders_of(self, sender: int, call_id: int) -> list[CallContext]:
        return [self.method]

    def _end(self, future: Future, error: BaseException) -> None:
        assert isinstance(error, DeadlockError)
        self.ended.append(future)

    def waits(self, count: int, needed: int) -> list[Future]:
        """The method waits for some of so many calls."""
        futures = [Future() for _ in range(count)]
        for number, future in enumerate(futures):
            future.link, future.call_id = Link(CALLEE, 0, "Callee"), number
        wait = Wait(futures, needed)
        self._waits[7] = wait
        self.method.awaits.append(wait)
        return futures

    def probe(self, initiator: int, number: int, of: int = 0) -> None:
        """A probe from somebody who waits for the method."""
        payload = bodies.Probe(initiator, number, of, ["1 Me", "2 Callee"]).packed()
        self.on_probe(
            envelope.Record(CALLEE, envelope.PROBE, 0, 0, 1, 0.0, b"", (), payload, {})
        )


@pytest.mark.parametrize("needed", [1, 2, 3])
def test_a_wait_is_hopeless_once_too_many_of_its_calls_lead_back(needed: int) -> None:
    search = Search()
    futures = search.waits(3, needed)
    for stuck in range(3):
        assert search.ended == []
        search.probe(ME, 7, of=stuck)
        search.probe(ME, 7, of=stuck)  # again: it says nothing new
        if stuck == 3 - needed:
            break
    assert set(search.ended) == set(futures[: stuck + 1])


def test_a_probe_goes_on_through_waits_for_all_of_their_calls_only() -> None:
    for needed, asked in ((2, [(CALLEE, 0), (CALLEE, 1)]), (1, [])):
        search = Search()
        search.waits(2, needed)
        search.probe(CALLER, 5)
        assert (search.asked, search.ended) == (asked, [])


def test_a_chain_of_waiting_calls_that_fills_the_callee_is_refused() -> None:
    class Callee:
        def work(self) -> None: ...

    spec = interface_of(Callee).methods["work"]
    link = Link(CALLEE, 0, "Callee")
    waiting = CallContext(ME, "Caller", CALLEE, 1, (CALLEE,), None, "ask")
    link.concurrency = 2
    refuse_cycle(link, spec, waiting)  # there is room for one more
    link.concurrency = 1
    with pytest.raises(DeadlockError, match="Caller calls Callee") as refused:
        refuse_cycle(link, spec, waiting)
    assert refused.value.delivered is False
    itself = CallContext(CALLEE, "Callee", ME, 1, (), None, "ask")
    with pytest.raises(DeadlockError, match="calls itself"):
        refuse_cycle(link, spec, itself)


def test_a_wait_for_room_asks_only_while_no_call_ends_by_itself() -> None:
    link = Link(CALLEE, 3, "Callee")
    link.limit, link.calls = 2, {4, 5}
    pending = {4: Future(), 5: Future()}
    wait = WaitForRoom(link, pending, deadline=20.0)
    asked = [(CALLEE + 3, 9, envelope.ROOM)]
    assert list(wait.questions(0)) == asked
    pending[5].deadline = 20.0  # that of the method
    assert list(wait.questions(0)) == asked
    pending[4].deadline = 19.0
    assert list(wait.questions(0)) == []
    del pending[4]  # its future has ended, and it counts until its reply is here
    assert list(wait.questions(0)) == asked
    link.calls.discard(4)
    assert list(wait.questions(0)) == []
