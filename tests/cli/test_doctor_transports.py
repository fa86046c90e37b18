# SPDX-License-Identifier: MIT
"""What the doctor says of the ways between processes."""

from __future__ import annotations

import pytest

from mooactor.cli.doctor import transports
from mooactor.errors import ActorUnavailable
from mooactor.tensors import fabrics


def test_shared_memory_and_tcp_are_tried() -> None:
    for check in (transports.shared_memory, transports.tcp):
        finding = check()
        assert finding.state == "ok"
        assert "4 MiB" in finding.detail


def test_without_rdma_the_reason_is_given_and_nothing_is_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = ["libfabric 1.17 (libfabric.so.1)", "it offers no RDMA"]
    monkeypatch.setattr(fabrics, "probe", lambda: (False, lines))
    finding = transports.rdma()
    assert finding.state == "note"
    assert finding.detail == "; ".join(lines)


def test_a_device_that_cannot_be_used_has_a_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pytest.TempPathFactory
) -> None:
    (tmp_path / "mlx5_0").touch()  # type: ignore[operator]
    monkeypatch.setattr(transports, "INFINIBAND", tmp_path)
    monkeypatch.setattr(fabrics, "probe", lambda: (False, ["no libfabric"]))
    finding = transports.rdma()
    assert finding.remedy.startswith("mlx5_0 could be used: apt-get install libfabric1")


def test_a_fabric_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: str) -> float:
        raise ActorUnavailable("no such device")

    monkeypatch.setattr(fabrics, "probe", lambda: (True, ["libfabric 2", "verbs: mlx"]))
    monkeypatch.setattr(transports, "_cross", lambda *_: 0.001)
    assert transports.rdma().state == "ok"
    monkeypatch.setattr(transports, "_cross", refuse)
    assert "no such device" in transports.rdma().detail


@pytest.mark.parametrize(
    ("said", "state", "says"),
    [
        ("", "ok", "auto: shared memory"),
        ("tcp", "ok", "MOOACTOR_TRANSPORT=tcp: on one host tcp"),
        ("tcp,shm", "ok", "on one host shm"),
        ("tcp ib", "broken", "'ib' is not a transport"),
    ],
)
def test_what_would_be_chosen_is_said(
    monkeypatch: pytest.MonkeyPatch, said: str, state: str, says: str
) -> None:
    monkeypatch.setenv("MOOACTOR_TRANSPORT", said)
    finding = transports.chosen()
    assert finding.state == state
    assert says in finding.detail
