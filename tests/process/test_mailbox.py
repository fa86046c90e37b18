# SPDX-License-Identifier: MIT
"""The order in which an actor's calls begin, and what holds it up."""

from __future__ import annotations

import sys
import threading

from mooactor.process.actor.mailbox import Job, Mailbox
from mooactor.process.objects.future import Future


def job(sender: int, call_id: int, priority: int = 0) -> Job:
    return Job(sender, call_id, 0, priority, b"m", (), None, None)


def waiting(sender: int, call_id: int, value: Future) -> Job:
    """One that is given a Ref."""
    held = job(sender, call_id)
    held.needs = [(9, value)]
    return held


def drained(mailbox: Mailbox) -> list[int]:
    ids = []
    while (taken := mailbox.take()) is not None:
        ids.append(taken.call_id)
    return ids


def test_higher_levels_leave_first_and_each_keeps_its_order() -> None:
    mailbox = Mailbox()
    for i in range(5):
        mailbox.put(job(1, i))
    assert len(mailbox) == 5
    assert drained(mailbox) == [0, 1, 2, 3, 4]
    assert not mailbox.has_ready()
    for i, priority in enumerate((0, 2, -1, 2, 0)):
        mailbox.put(job(1, i, priority))
    assert drained(mailbox) == [1, 3, 0, 4, 2]


def test_a_job_that_waits_holds_up_its_own_caller_only() -> None:
    mailbox, value = Mailbox(), Future()
    mailbox.put(waiting(1, 0, value))
    mailbox.put(job(1, 1))
    mailbox.put(job(2, 2))
    assert drained(mailbox) == [2]
    assert len(mailbox) == 2
    value.set_value("here")
    mailbox.put(job(1, 3))  # its value is here, and it has not left yet
    assert drained(mailbox) == []
    mailbox.settle()
    assert drained(mailbox) == [0, 1, 3]


def test_removed_jobs_are_gone_and_hold_nobody_up() -> None:
    mailbox = Mailbox()
    mailbox.put(waiting(1, 0, Future()))
    for i in (1, 2, 3):
        mailbox.put(job(1, i))
    assert mailbox.remove(2, 0) is None
    for call_id in (2, 0):
        removed = mailbox.remove(1, call_id)
        assert removed is not None and removed.call_id == call_id
        assert mailbox.remove(1, call_id) is None
    assert drained(mailbox) == [1, 3]


def test_the_jobs_of_one_sender_are_found_wherever_they_wait() -> None:
    mailbox = Mailbox()
    for each in (waiting(1, 0, Future()), job(1, 1), job(2, 2), job(1, 3, 5)):
        mailbox.put(each)
    assert sorted(j.call_id for j in mailbox.of_sender(1)) == [0, 1, 3]
    assert len(mailbox) == 4


def test_a_job_is_taken_or_removed_though_both_are_tried_at_once() -> None:
    mailbox, taken, over = Mailbox(), list[int](), threading.Event()

    def take() -> None:
        while not over.is_set() or mailbox.has_ready():
            if (one := mailbox.take()) is not None:
                taken.append(one.call_id)

    thread, interval = threading.Thread(target=take), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        removed = []
        for call_id in range(5000):
            mailbox.put(job(1, call_id))
            if mailbox.remove(1, call_id - call_id % 5) is not None:
                removed.append(call_id - call_id % 5)
    finally:
        sys.setswitchinterval(interval)
        over.set()
        thread.join()
    assert sorted(taken + removed) == list(range(5000))
