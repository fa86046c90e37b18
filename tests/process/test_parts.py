# SPDX-License-Identifier: MIT
"""Parts of a runtime, each put together from what it needs: no runtime, no session."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mooactor.control import bodies, envelope
from mooactor.control.keys import every_incarnation
from mooactor.control.links import Links
from mooactor.control.messenger import Messenger
from mooactor.control.sender import Sender
from mooactor.errors import Cause
from mooactor.process.dispatch import Dispatch
from mooactor.process.objects.audit import Audit
from mooactor.process.objects.borrow import Borrows
from mooactor.process.objects.broadcast import BroadcastTree
from mooactor.process.objects.future import Future
from mooactor.process.objects.holds import Hold
from mooactor.process.objects.table import ObjectTable
from mooactor.process.poller import Poller
from tests.conftest import eventually
from tests.interruptions import Interruption

KEY = bytes(envelope.KEY_BYTES)
OWNER, BORROWER, THIRD = 1 << 16, 2 << 16, 3 << 16


class Process:
    """The parts of one process that keep count of its values, and how they meet."""

    def __init__(self, directory: Path, process_id: int) -> None:
        self.watched: list[int] = []
        self.armed = 0
        self.due: list[Callable[[], None]] = []
        self.messenger = Messenger(str(directory), process_id, KEY)
        self.links = Links(process_id, process_id, self.messenger, self._watch)
        self.sender = Sender(self.messenger, self.links, self._arm)
        self.table = ObjectTable(self.links)
        known = self.messenger.known
        self.audit = Audit(self.links, self.sender, self.table, known, self._later)
        self.borrows = Borrows(process_id, self.table, self.audit, self.sender)
        self.handlers = {
            envelope.BORROW: self.table.on_borrow,
            envelope.RELEASE: self.table.on_release,
        }
        after = self.sender.do_what_is_due
        dispatch = Dispatch(KEY, self.messenger, self.handlers, after)
        self.dispatch, self.dispatched = dispatch.message, dispatch.done_with
        self.poller = Poller(self.messenger, self)

    def _watch(self, actor_id: int, incarnation: int) -> None:
        self.watched.append(actor_id + incarnation)

    def _arm(self) -> None:
        self.armed += 1

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self.due.append(action)

    def holds(self, number: int) -> dict[int, tuple[int, int]]:
        self.poller.try_drain()
        entry = self.table.entry(number)
        return {} if entry is None else dict(entry.holds)

    def close(self) -> None:
        self.poller.close()
        self.messenger.close(0)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Callable[[int], Process]]:
    made: list[Process] = []

    def make(process_id: int) -> Process:
        made.append(Process(tmp_path, process_id))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_hold_of_a_third_process_is_entered_until_its_holder_gives_it_back(
    process: Callable[[int], Process],
) -> None:
    owner, lender, borrower = map(process, (OWNER, THIRD, BORROWER))
    result = Future()
    result.set_value("kept")
    number = owner.table.new_id()
    owner.table.lend(number, THIRD, 1, result)
    assert owner.holds(number) == {1: (THIRD, OWNER)}
    assert owner.watched == [THIRD]

    lender.borrows.lend(Hold(lender.borrows, OWNER, number), BORROWER, 2)
    lent = {1: (THIRD, OWNER), 2: (BORROWER, THIRD)}
    assert eventually(lambda: owner.holds(number) == lent)

    hold = Hold(borrower.borrows, OWNER, number)
    hold.count(THIRD, 2)
    borrower.borrows.arrived(hold)
    del hold  # a finalizer: nothing is sent before the next flush
    assert borrower.armed == 1
    borrower.sender.flush()
    assert eventually(lambda: owner.holds(number) == {1: (THIRD, OWNER)})


def test_a_release_that_overtakes_its_borrow_or_comes_twice_does_no_harm(
    process: Callable[[int], Process],
) -> None:
    owner, lender, borrower = map(process, (OWNER, THIRD, BORROWER))
    number = owner.table.new_id()
    owner.table.lend(number, THIRD, 1, Future())
    hold = Hold(borrower.borrows, OWNER, number)
    entry = owner.table.entry(number)
    assert entry is not None
    for _ in range(2):
        borrower.borrows.give_back(OWNER, number, 2)
    assert eventually(lambda: owner.holds(number) and 2 in entry.early)
    lender.borrows.lend(hold, BORROWER, 2)
    lender.borrows.lend(hold, BORROWER, 3)
    lent = {1: (THIRD, OWNER), 3: (BORROWER, THIRD)}
    assert eventually(lambda: owner.holds(number) == lent)
    assert not entry.early
    borrower.borrows.give_back(OWNER, number, 4)
    borrower.borrows.lend(hold, BORROWER, 4)  # it says itself that it has it
    lent[4] = BORROWER, BORROWER
    assert eventually(lambda: owner.holds(number) == lent)


def test_a_hold_whose_lender_has_died_is_claimed_by_its_holder(
    process: Callable[[int], Process],
) -> None:
    owner, borrower = map(process, (OWNER, BORROWER))
    number = owner.table.new_id()
    owner.table.lend(number, THIRD, 1, Future())
    link = borrower.links.link(THIRD, 0, "an actor", watch=True)
    borrower.links.end(link, Cause("signal"))
    hold = Hold(borrower.borrows, OWNER, number)
    hold.count(THIRD, 2)
    borrower.borrows.arrived(hold)
    borrower.sender.flush()
    lent = {1: (THIRD, OWNER), 2: (BORROWER, BORROWER)}
    assert eventually(lambda: owner.holds(number) == lent)


def test_a_dead_process_holds_nothing_and_is_given_nothing_any_more(
    process: Callable[[int], Process],
) -> None:
    owner = process(OWNER)
    number = owner.table.new_id()
    link = owner.links.link(BORROWER, 0, "an actor", watch=True)
    owner.table.lend(number, BORROWER, 1, Future())
    owner.table.lend(number, THIRD, 2, Future())
    owner.links.end(link, Cause("signal"))
    owner.table.process_lost(BORROWER)
    assert owner.holds(number) == {2: (THIRD, OWNER)}
    owner.table.lend(number, BORROWER, 3)
    assert owner.holds(number) == {2: (THIRD, OWNER)}
    owner.table.process_lost(THIRD)
    assert len(owner.table) == 0


def test_what_signal_handlers_cut_short_comes_again_however_often(
    process: Callable[[int], Process],
) -> None:
    owner, borrower = process(OWNER), process(BORROWER)
    strikes, done = list(range(20)), []

    def on_borrow(record: envelope.Record) -> None:
        if strikes:
            strikes.pop()
            signal.raise_signal(signal.SIGUSR2)
        done.append(record.call_id)

    def ring(*_: object) -> None:
        raise Interruption

    owner.handlers[envelope.BORROW] = on_borrow
    before = signal.signal(signal.SIGUSR2, ring)
    try:
        borrower.sender.post(OWNER, envelope.BORROW, 7, bodies.pack_numbers(THIRD, 1))
        while not done:
            with suppress(Interruption):
                owner.poller.try_drain()
        assert (strikes, done) == ([], [7])
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_after_the_end_of_a_session_finalizers_send_nothing(
    process: Callable[[int], Process],
) -> None:
    borrower = process(BORROWER)
    hold = Hold(borrower.borrows, OWNER, 7)
    hold.count(OWNER, 1)
    borrower.sender.ended = True
    del hold
    assert not borrower.sender.afterwards


def test_nothing_is_sent_to_a_process_that_is_known_to_be_dead(
    process: Callable[[int], Process],
) -> None:
    sender = process(OWNER)
    link = sender.links.link(BORROWER, 1, "an actor", watch=True)
    assert sender.watched == [BORROWER + 1]
    assert [sender.links.is_gone(BORROWER + n) for n in (0, 1, 2)] == [
        True,
        False,
        False,
    ]
    assert not sender.links.is_gone(every_incarnation(BORROWER))
    sender.links.end(link, Cause("stopped"))
    assert sender.links.is_gone(every_incarnation(BORROWER))
    sender.sender.post(BORROWER + 1, envelope.RELEASE, 1)
    assert sender.messenger.known() == []


def test_a_record_of_a_kind_without_a_handler_is_dropped(
    process: Callable[[int], Process], capfd: pytest.CaptureFixture[str]
) -> None:
    one, other = process(OWNER), process(BORROWER)
    number = one.table.new_id()
    one.table.lend(number, BORROWER, 1, Future())
    other.sender.post(OWNER, envelope.CREDIT, 1)
    payload = bodies.pack_numbers(1)
    other.sender.post(OWNER, envelope.RELEASE, number, payload)
    assert eventually(lambda: one.holds(number) == {})
    assert capfd.readouterr().err == ""


def test_the_hosts_of_a_broadcast_tree_have_two_others_below_them(
    process: Callable[[int], Process],
) -> None:
    owner = process(OWNER)
    tree = BroadcastTree(owner.sender, 7)
    hosts = [bytes((n,)) for n in range(14)]
    holders = [(10 + n) << 16 for n in range(14)]
    found = [tree.source(host, holder) for host, holder in zip(hosts, holders)]
    above = [0, 0, *(holders[n // 2] for n in range(12))]
    assert found == [(source, True) for source in above]

    later = 99 << 16  # of a host that has a holder: taken from there, and not kept
    assert tree.source(hosts[5], later) == (holders[5], False)
    tree.lost(holders[5])
    assert tree.source(hosts[5], later) == (above[5], True)

    for holder in (*holders, later):
        tree.lost(holder)  # so that its finalizer has nobody to tell
