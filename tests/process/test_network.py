# SPDX-License-Identifier: MIT
"""What `moo.init(transport=…)` and the environment may say."""

from __future__ import annotations

from typing import Any

import pytest

import mooactor as moo
from mooactor.process.network import choose


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ("auto", None),
        ("tcp", ("tcp",)),
        ("tcp,shm", ("shm", "tcp")),
        ("ofi tcp shm", ("shm", "ofi", "tcp")),
        (["tcp", "ofi"], ("ofi", "tcp")),
        (("shm",), ("shm",)),
        (["auto"], None),
    ],
)
def test_names_come_in_any_form_and_order(said: Any, names: Any) -> None:
    assert choose(said).transports == names


@pytest.mark.parametrize("said", ["ib", "", [], "auto,tcp", ["tcp", "x"]])
def test_other_names_are_refused_before_anything_is_started(
    no_session: None, said: Any
) -> None:
    with pytest.raises(ValueError, match='use "auto", or some of shm, ofi, tcp'):
        moo.init(transport=said)


def test_the_environment_is_asked_if_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MOOACTOR_TRANSPORT", raising=False)
    assert str(choose(None)) == "auto"
    monkeypatch.setenv("MOOACTOR_TRANSPORT", "tcp")
    assert str(choose(None)) == "tcp"
    assert str(choose("shm")) == "shm"
    monkeypatch.setenv("MOOACTOR_TRANSPORT", "best")
    with pytest.raises(ValueError, match="MOOACTOR_TRANSPORT='best'"):
        choose(None)


def test_tcp_is_tuned_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOOACTOR_STRIPES", "4")
    monkeypatch.setenv("MOOACTOR_CHECKSUM", "1")
    monkeypatch.setenv("MOOACTOR_BIND", "127.0.0.1")
    network = choose("tcp")
    assert (network.stripes, network.checksum) == (4, True)
    assert network.bind == "127.0.0.1"
    monkeypatch.setenv("MOOACTOR_STRIPES", "many")
    with pytest.raises(ValueError, match="MOOACTOR_STRIPES='many'"):
        choose("tcp")


def test_a_transport_that_cannot_be_had_leaves_no_session_behind(
    no_session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOOACTOR_FABRIC", "of no name")
    with pytest.raises(moo.ActorUnavailable, match="no allowed transport"):
        moo.init(transport="ofi")
    with moo.init():  # nothing is in the way of another
        pass
