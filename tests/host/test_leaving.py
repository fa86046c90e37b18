# SPDX-License-Identifier: MIT
"""The words for hosts that are gone."""

from __future__ import annotations

from mooactor.errors import Cause
from mooactor.host import leaving
from mooactor.host.leaving import Absent, farewell
from mooactor.process.exits import ExitRecord, cause_of


def cause(why: str) -> Cause:
    return cause_of(leaving.record_of_loss("b", why))


def test_a_farewell_is_told_from_a_loss() -> None:
    left, lost = cause(farewell("it was ended by SIGTERM")), cause("nothing was heard")
    assert str(left) == "its host b has left (it was ended by SIGTERM)"
    assert str(lost) == "its host was lost, b: nothing was heard"
    assert {left.kind, lost.kind} == {"host"}


def test_a_farewell_of_an_earlier_version_says_nothing_more() -> None:
    assert leaving.how_left("it has left") == ""
    assert str(cause("it has left")) == "its host b has left (mooactor host was ended)"
    assert leaving.how_left("it has left the cluster") is None


def test_absent_hosts_are_remembered_in_bounds_until_they_are_back() -> None:
    absent = Absent()
    for number in range(1000):
        absent.add(f"h{number}", "x" * 100_000)
    known = [number for number in range(1000) if absent.of(f"h{number}")]
    assert known == list(range(1000 - len(known), 1000)) and 0 < len(known) < 1000
    assert len(absent.of("h999")) < 1000
    absent.add("h999", farewell("it was ended"))
    assert absent.of("h999") == "has left (it was ended)"
    absent.discard("h999")
    assert absent.of("h999") == ""


def test_only_the_end_of_a_session_counts_as_a_stop() -> None:
    assert ExitRecord("owner", note="p", ended="p has ended").stopped
    assert not ExitRecord("owner", note="p", ended="p has ended", signal=9).stopped
    assert not ExitRecord("owner", note="Owner").stopped
    assert not ExitRecord("host", note="b", ended="it was ended").stopped
