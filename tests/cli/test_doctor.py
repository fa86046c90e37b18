# SPDX-License-Identifier: MIT
"""The doctor's checks find what is there, and what was taken away."""

import json
from pathlib import Path

import pytest

from mooactor.cli import doctor, main
from mooactor.cli.doctor import broken, ok
from mooactor.errors import ActorUnavailable
from mooactor.tensors import network


@pytest.mark.slow
def test_a_machine_that_runs_these_tests_is_healthy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor", "--json"]) == 0
    findings = {f["name"]: f for f in json.loads(capsys.readouterr().out)}
    assert len(findings) == len(doctor.CHECKS)
    for essential in ("pidfd", "shm", "C data plane", "an actor"):
        assert findings[essential]["state"] == "ok"
    assert all(f["remedy"] for f in findings.values() if f["state"] == "slow")


def test_what_is_broken_sets_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = (lambda: ok("one", "fine"), lambda: broken("two", "gone", "mend it"))
    monkeypatch.setattr(doctor, "CHECKS", checks)
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "broken  two" in printed
    assert "→ mend it" in printed
    assert printed.endswith(f"{doctor.VERDICTS['broken']}\n")


def test_a_long_temporary_directory_cannot_hold_sockets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deep = tmp_path / ("d" * 80)
    deep.mkdir()
    monkeypatch.setattr(doctor.tempfile, "gettempdir", lambda: str(deep))
    assert doctor.directory().state == "broken"


# -- ways between processes --------------------------------------------------------


def test_shared_memory_and_tcp_are_tried() -> None:
    for check in (doctor.shared_memory, doctor.tcp):
        finding = check()
        assert finding.state == "ok"
        assert "4 MiB" in finding.detail


def test_without_rdma_the_reason_is_given_and_nothing_is_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = ["libfabric 1.17 (libfabric.so.1)", "it offers no RDMA"]
    monkeypatch.setattr(network, "probe_fabric", lambda: (False, lines))
    finding = doctor.rdma()
    assert finding.state == "note"
    assert finding.detail == "; ".join(lines)


def test_a_fabric_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: str) -> float:
        raise ActorUnavailable("no such device")

    monkeypatch.setattr(
        network, "probe_fabric", lambda: (True, ["libfabric 2", "verbs: mlx"])
    )
    monkeypatch.setattr(doctor, "_cross", lambda *_: 0.001)
    assert doctor.rdma().state == "ok"
    monkeypatch.setattr(doctor, "_cross", refuse)
    assert "no such device" in doctor.rdma().detail
