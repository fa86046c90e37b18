# SPDX-License-Identifier: MIT
"""Every example runs as its first lines say, and prints what it is about."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.cluster.conftest import Launch, hosts, launch, launch_here
from tests.clusters import cluster, lasting_cluster
from tests.marks import slow

__all__ = ["hosts", "lasting_cluster", "launch", "launch_here"]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
WITH_TORCH = {"tensors", "allreduce", "data_parallel"}
TESTED_ELSEWHERE = {"impala_atari"}  # it has a folder of tests to itself

PRINTED = {
    "hello": ["Hello, world!", "2 greetings served", "in another process: True"],
    "worker_pool": ["ready: [4, 4, 4, 4]", "by shares: 2262", "by chunks: 2262"],
    "streaming": [
        "means of five frames: [0.0, 1.0, 2.0, 3.0, 4.0]",
        "the producer was at most a window ahead: True",
        "tick 2 pong",
    ],
    "supervision": [
        "died: killed by signal 11 (SIGSEGV)",
        "Died then Restarted",
        "counts on: 42",
        "gone: stopped by moo.stop",
    ],
    "supervisors": [
        "played: 1 2",
        "the replay memory died: killed by signal 11 (SIGSEGV)",
        "played: 1",
        "left: []",
    ],
    "tensors": ["mine: 1.0 theirs: 2.0", "one copy, same for all: True"],
    "allreduce": ["ranks: [0, 1]", "learnt: True", "bit-identical: True"],
    "data_parallel": ["learnt: True"],
}


def run(
    path: Path,
    *,
    cwd: Path,
    on: Sequence[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> str:
    """Its output. `on`: the words before a command that make it run on a host."""
    environment = {
        **environment,
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "error",
    }
    done = subprocess.run(
        [*on, sys.executable, str(path)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {
        *PRINTED,
        *TESTED_ELSEWHERE,
    }
    for name in PRINTED:  # and read in one go
        text = (EXAMPLES / f"{name}.py").read_text()
        assert len(text.splitlines()) <= 90
        assert f"python examples/{name}.py" in text


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "name", [slow(name) if name in WITH_TORCH else name for name in PRINTED]
)
def test_example_prints_what_it_is_about(name: str, tmp_path: Path) -> None:
    if name in WITH_TORCH:
        pytest.importorskip("torch")
    lines = run(EXAMPLES / f"{name}.py", cwd=tmp_path).splitlines()
    assert [expected for expected in PRINTED[name] if expected not in lines] == []
    assert list(tmp_path.iterdir()) == []  # it left nothing behind


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_learners_meet_in_a_session_of_several_hosts(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with cluster("bc", driver="a") as made:
        joined = {"MOOACTOR_HOST_NAME": "a", "MOOACTOR_ADDRESS": made.address}
        lines = run(
            EXAMPLES / "allreduce.py",
            cwd=tmp_path,
            on=made.network.on("a"),
            environment=made.environment("a") | joined,
        ).splitlines()
    assert [one for one in PRINTED["allreduce"] if one not in lines] == []


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_learners_of_a_launch_are_on_all_its_hosts(launch: Launch) -> None:
    pytest.importorskip("torch")
    text = (EXAMPLES / "data_parallel.py").read_text()
    program = launch("--hosts", "localhost,b", script=text, arguments=["3000"])
    assert program.end(200) == 0, program.err
    assert {"4 learners on b, localhost", "learnt: True"} <= {*program.out.splitlines()}
    assert "4 learners, loss" in program.out
