# SPDX-License-Identifier: MIT
"""The values of `moo.init(transport=…)` and of the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.process.current import current_runtime
from mooactor.tensors import DataPlane
from mooactor.tensors.network import MOST_STRIPES, MOST_THREADS, Network, choose


def test_names_come_in_any_form_and_order() -> None:
    said: Any
    for said, names in (
        ("auto", None),
        ("tcp", ("tcp",)),
        ("ofi tcp,shm", ("shm", "ofi", "tcp")),
        (("tcp", "ofi"), ("ofi", "tcp")),
        (["auto"], None),
    ):
        assert choose(said).transports == names


def test_other_names_are_refused_before_anything_is_started(no_session: None) -> None:
    said: Any
    for said in ("ib", "", [], "auto,tcp", ["tcp", "x"]):
        with pytest.raises(ValueError, match='use "auto", or some of shm, ofi, tcp'):
            moo.init(transport=said)
    with pytest.raises(TypeError, match="transport=5 must be a name or a list of na"):
        moo.init(transport=5)  # type: ignore[arg-type]


def test_the_environment_is_asked_if_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("TRANSPORT", "BIND", "STRIPES", "TCP_THREADS", "CHECKSUM", "GPUDIRECT")
    for name in names:
        monkeypatch.setenv(f"MOOACTOR_{name}", "")
    assert choose(None) == Network()
    assert str(choose(None)) == "auto"
    monkeypatch.setenv("MOOACTOR_TRANSPORT", "tcp")
    assert str(choose(None)) == "tcp"
    assert str(choose("shm")) == "shm"
    monkeypatch.setenv("MOOACTOR_TRANSPORT", "best")
    with pytest.raises(ValueError, match="MOOACTOR_TRANSPORT='best'"):
        choose(None)


def test_tcp_is_tuned_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOOACTOR_STRIPES", "4")
    monkeypatch.setenv("MOOACTOR_TCP_THREADS", "3")
    monkeypatch.setenv("MOOACTOR_CHECKSUM", "1")
    monkeypatch.setenv("MOOACTOR_BIND", "127.0.0.1")
    network = choose("tcp")
    assert (network.stripes, network.threads) == (4, 3)
    assert network.checksum
    assert network.bind == "127.0.0.1"
    for text, wanted in (("", None), ("0", False), ("1", True)):
        monkeypatch.setenv("MOOACTOR_GPUDIRECT", text)
        assert choose(["shm", "ofi"]).gpu_direct is wanted


def test_gpudirect_cannot_be_demanded_without_rdma(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MOOACTOR_GPUDIRECT", "1")
    for transport in (None, "tcp", ["shm", "tcp"]):
        with pytest.raises(ValueError, match="MOOACTOR_GPUDIRECT=1 needs RDMA"):
            choose(transport)


def test_so_many_stripes_and_threads_there_may_be(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    for stripes, threads in ((1, 1), (MOST_STRIPES, MOST_THREADS)):
        network = Network(("tcp",), stripes=stripes, threads=threads)
        DataPlane(str(tmp_path), 1 << 16, b"key", network).close()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("STRIPES", "0"),
        ("STRIPES", "many"),
        ("TCP_THREADS", "17"),
        ("CHECKSUM", "yes"),
        ("GPUDIRECT", "maybe"),
        ("BIND", "nowhere0"),
        ("TRANSPORT", "tpc"),
    ],
)
def test_a_variable_that_makes_no_sense_is_refused_before_anything_is_started(
    no_session: None, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(f"MOOACTOR_{variable}", value)
    with pytest.raises(ValueError, match=f"MOOACTOR_{variable}='{value}': "):
        moo.init()


def test_an_address_of_another_host_is_refused(
    no_session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address in ("192.0.2.7", "2001:db8::7"):
        monkeypatch.setenv("MOOACTOR_BIND", address)
        with pytest.raises(OSError, match="MOOACTOR_BIND takes an address of this h"):
            moo.init(transport="tcp")


def test_a_transport_that_cannot_be_had_leaves_no_session_behind(
    no_session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOOACTOR_FABRIC", "of no name")
    with pytest.raises(moo.ActorUnavailable, match="no allowed transport"):
        moo.init(transport="ofi")
    with moo.init():  # on this machine alone: it listens nowhere
        runtime = current_runtime()
        assert runtime.messenger.address is None and runtime.messenger.ways is None
        assert runtime.network.transports is None
