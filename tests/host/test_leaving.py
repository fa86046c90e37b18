# SPDX-License-Identifier: MIT
"""The words for hosts and sessions that are gone."""

from __future__ import annotations

from mooactor.errors import Cause
from mooactor.host.home import record_of_loss
from mooactor.host.members import FAREWELL
from mooactor.process.exits import ExitRecord, cause_of


def cause(why: str) -> Cause:
    return cause_of(record_of_loss("b", why))


def test_a_farewell_is_told_from_a_loss() -> None:
    left, lost = cause(FAREWELL), cause("nothing was heard")
    assert str(left) == "its host b has left" and left.ended
    assert str(lost) == "its host was lost, b: nothing was heard" and not lost.ended
    assert {left.kind, lost.kind} == {"host"}


def test_only_the_end_of_a_session_counts_as_a_stop() -> None:
    assert ExitRecord("owner", note="p", ended=True).stopped
    assert not ExitRecord("owner", note="p", ended=True, signal=9).stopped
    assert not ExitRecord("owner", note="Owner").stopped
    assert not ExitRecord("host", note="b", ended=True).stopped
