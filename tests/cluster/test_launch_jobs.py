# SPDX-License-Identifier: MIT
"""The files for Slurm and for Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mooactor.cli import main
from tests.cluster.kubernetes_schema import faults

Objects = dict[str, Any]  # by kind
Manifest = Callable[..., Objects]
Batch = Callable[..., str]
Refusal = Callable[..., str]
IMAGE = ("kubernetes", "--image", "registry/train:1")


@pytest.fixture(autouse=True)
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory has them."""
    for name in ("a.py", "train.py"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def manifest(capsys: pytest.CaptureFixture[str]) -> Manifest:
    """The objects that ``mooactor kubernetes`` prints."""

    def manifest(*words: str) -> Objects:
        assert main([*IMAGE, *words]) == 0
        documents = capsys.readouterr().out.split("\n---\n")
        return {each["kind"]: each for each in map(json.loads, documents)}

    return manifest


@pytest.fixture
def batch(capsys: pytest.CaptureFixture[str]) -> Batch:
    """The script that ``mooactor slurm`` would submit."""

    def batch(*words: str) -> str:
        assert main(["slurm", "--dry-run", *words]) == 0
        return capsys.readouterr().out

    return batch


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Refusal:
    """Why a command does nothing."""

    def refusal(*words: str) -> str:
        assert main([*words]) == 2
        return capsys.readouterr().err

    return refusal


def pod_of(objects: Objects) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod that the job starts, and its only container."""
    pod = objects["Job"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container


def test_a_manifest_fits_the_published_schema(manifest: Manifest) -> None:
    everything = "--gpus 2 --cpus 8 --memory 64Gi --env A=b a.py"
    for words in (
        "--hosts 3 train.py",
        f"--hosts 1 {everything}",
        "--hosts 2 --namespace lab --name x -m package.train",
        "--hosts 2 --secret ours --grace 20.5 a.py",
    ):
        for each in manifest(*words.split()).values():
            assert faults(each) == []


def test_the_pods_of_a_manifest_find_each_other(manifest: Manifest) -> None:
    words = ["--hosts", "3", "--env", "A=$(B) c", "My_train.py", "--lr", "$(x) $HOME"]
    found = manifest(*words)
    job, service, secret = found["Job"], found["Service"], found["Secret"]
    pod, container = pod_of(found)
    name = job["metadata"]["name"]
    assert name == "my-train"
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 3
    # The names of pods: JOB-INDEX.SUBDOMAIN, which is a headless Service.
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"job-name": name}
    given = {each["name"]: each for each in container["env"]}
    assert given["MOOACTOR_FIRST"]["value"] == f"{name}-0.{service['metadata']['name']}"
    assert given["MOOACTOR_HOSTS"]["value"] == "3"
    # Kubernetes replaces $(NAME), and $$ by $.
    assert given["A"]["value"] == "$$(B) c"
    assert container["command"][-1] == "$$(x) $$HOME"
    source = given["MOOACTOR_KEY"]["valueFrom"]["secretKeyRef"]
    assert source == {"name": secret["metadata"]["name"], "key": "key"}
    assert len(bytes.fromhex(secret["stringData"]["key"])) == 32
    assert secret["stringData"]["key"].strip() not in json.dumps(job)


def test_a_batch_script_has_the_options_of_the_command(batch: Batch) -> None:
    words = "--nodes 4 --gpus 2 --cpus 16 --partition a100 --time 2:00:00"
    more = ["--sbatch=--qos=high", "train.py", "--lr", "1 e"]
    lines = batch(*words.split(), *more).splitlines()
    assert lines[0] == "#!/bin/bash"
    directives = [line for line in lines if line.startswith("#SBATCH ")]
    asked = "job-name=train nodes=4 ntasks-per-node=1 cpus-per-task=16 gpus-per-node=2"
    asked += " partition=a100 time=2:00:00 qos=high"
    assert {*directives} == {f"#SBATCH --{each}" for each in asked.split()}
    (command,) = (line for line in lines if " -m mooactor run " in line)
    assert command.endswith(" run train.py --lr '1 e' &")


def test_a_batch_script_hands_variables_on(
    batch: Batch, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    text = batch("--nodes", "2", "--env", "TOKEN", "--env", "A=b c", "a.py")
    assert "run --env TOKEN --env 'A=b c' a.py &" in text
    assert "secret" not in text
    why = refusal("slurm", "--nodes", "2", "--dry-run", "--env", "NONE", "a.py")
    assert "write --env NONE=VALUE" in why


def test_a_job_gives_the_program_the_time_to_end_that_is_named(
    batch: Batch, manifest: Manifest
) -> None:
    grace = ("--grace", "20.5", "a.py")
    assert "run --grace 20.5 a.py" in batch("--nodes", "2", *grace)
    for words, end_s in ((("a.py",), 10), (grace, 29)):
        pod, container = pod_of(manifest("--hosts", "2", *words))
        assert pod["terminationGracePeriodSeconds"] == end_s
        assert tuple(container["command"][-len(words) :]) == words


def test_an_option_that_would_leave_its_line_is_refused(refusal: Refusal) -> None:
    for option in ("--comment=two words", "qos=high", "--a=b\nrm x"):
        why = refusal("slurm", "--nodes", "1", f"--sbatch={option}", "a.py")
        assert "no option of sbatch" in why
