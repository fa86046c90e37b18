# SPDX-License-Identifier: MIT
"""``mooactor run`` on this machine alone."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cluster.conftest import Launch
from tests.cluster.launched import LEAVES, REPORT

DIES = """
report(left=[child.pid, daemon("sleep", "600")])
os.kill(os.getpid(), signal.SIGKILL)
"""
NOTICED = """
import os, signal
for number in (signal.SIGUSR1, signal.SIGUSR2):
    # No print, which may be under way.
    signal.signal(number, lambda number, _: os.write(1, b"noticed %d\\n" % number))
try:
    print("up", flush=True)
    while True:
        signal.pause()
except KeyboardInterrupt:
    print("saved", flush=True)
    raise SystemExit(5)
"""


@pytest.fixture(autouse=True)
def nobodys_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user has none."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_the_program_has_a_key_and_its_exit_code_and_leaves_nothing(
    launch_here: Launch, tmp_path: Path
) -> None:
    given = ("--env", "x y", "{PYTHON}{ADDRESS}")
    run = launch_here("--local-only", script=REPORT + LEAVES + DIES, arguments=given)
    assert run.end() == 128 + signal.SIGKILL, run.err
    found = json.loads(run.out)
    assert found["argv"] == ["script.py", *given] and found["cwd"] == str(tmp_path)
    assert found["address"].startswith("tcp://127.0.0.1:")
    assert len(bytes.fromhex(found["key"])) == 32
    assert found["mode"] == 0o600 and found["owned"] and found["shown"] == []
    assert not [pid for pid in found["left"] if os.path.exists(f"/proc/{pid}")]


def test_a_notice_is_for_the_program_and_ctrl_c_for_all(launch_here: Launch) -> None:
    run = launch_here("--local-only", script=NOTICED)
    assert run.says("up\n"), run.err
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        run.signal(number)
        assert run.says(f"noticed {number:d}\n"), run.err
    run.signal(signal.SIGINT)
    assert run.end() == 5, run.err
    assert run.out.endswith("saved\n")


@pytest.mark.slow
def test_every_run_has_a_key_of_its_own_unless_the_user_names_one(
    launch_here: Launch, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text("5a" * 32 + "\n")
    file.chmod(0o600)
    keys = []
    for words in ([], [], ["--key-file", str(file)]):
        run = launch_here("--local-only", *words, script=REPORT + "report()")
        assert run.end() == 0, run.err
        keys.append(json.loads(run.out)["key"])
    assert len(set(keys)) == 3 and keys[-1] == "5a" * 32


@pytest.mark.slow
def test_modules_beside_the_program_are_the_programs_alone(
    launch_here: Launch, tmp_path: Path
) -> None:
    modules = ("json", "ctypes", "subprocess")
    for module in modules:
        (tmp_path / f"{module}.py").write_text(f"print('my {module}')")
    run = launch_here("--local-only", script=f"import {', '.join(modules)}")
    assert run.end() == 0, run.err
    assert run.out.splitlines() == [f"my {module}" for module in modules]
