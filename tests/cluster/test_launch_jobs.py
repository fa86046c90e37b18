# SPDX-License-Identifier: MIT
"""What is written for Slurm and for Kubernetes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mooactor.cli import main
from mooactor.cluster.launch import kubernetes, slurm
from mooactor.cluster.launch.targets import LaunchError
from tests.cluster.kubernetes_schema import SCHEMA, faults

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory has them."""
    for name in ("a.py", "train.py"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)


def manifest(*words: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The objects that ``mooactor kubernetes`` prints, by kind."""
    assert main(["kubernetes", "--image", "registry/train:1", *words]) == 0
    documents = capsys.readouterr().out.split("\n---\n")
    objects = [json.loads(text) for text in documents]
    return {each["kind"]: each for each in objects}


def test_a_manifest_fits_the_published_schema(
    capsys: pytest.CaptureFixture[str],
) -> None:
    everything = ["--gpus", "2", "--cpus", "8", "--memory", "64Gi", "--env", "A=b"]
    for words in (
        ["--hosts", "3", "train.py"],
        ["--hosts", "1", *everything, "a.py"],
        ["--hosts", "2", "--namespace", "lab", "--name", "x", "-m", "package.train"],
        ["--hosts", "2", "--secret", "ours", "--grace", "20.5", "a.py"],
    ):
        for each in manifest(*words, capsys=capsys).values():
            assert faults(each) == []


@pytest.mark.parametrize(
    ("said", "quantity"),
    [
        ("64GB", "64G"),
        ("64Gi", "64Gi"),
        ("1.5 GiB", "1536Mi"),
        ("2T", "2Ti"),
        ("1001", "1001"),
    ],
)
def test_memory_is_written_as_kubernetes_reads_it(
    said: str, quantity: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = manifest("--hosts", "2", "--memory", said, "a.py", capsys=capsys)["Job"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"memory": quantity}


@pytest.mark.parametrize("said", ["lots", "64XB", "-1GB", "inf", "1e999", ""])
def test_memory_that_is_no_amount_is_refused(
    said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--hosts", "2", "--image", "i", f"--memory={said}", "a.py"]
    assert main(["kubernetes", *words]) == 2
    assert f"--memory {said!r} is no amount" in capsys.readouterr().err


def test_the_help_of_a_manifest_says_what_the_image_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["kubernetes", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "interpreter in the image (default: python3)" in said
    assert "directory in the image (default: the image's own)" in said


def container_of(objects: dict[str, Any]) -> dict[str, Any]:
    (container,) = objects["Job"]["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = container
    return found


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        pytest.param(
            lambda o: o["Job"]["spec"].update(completion=2),
            "$.spec: .*'completion' was unexpected",
            id="a misspelt field",
        ),
        pytest.param(
            lambda o: container_of(o)["env"][0].update(val="x"),
            r"$.spec.template.spec.containers[0].env[0]: .*'val' was unexpected",
            id="a misspelt field deep within",
        ),
        pytest.param(
            lambda o: o["Service"]["spec"].update(subdomain="x"),
            "$.spec: .*'subdomain' was unexpected",
            id="a field of another kind",
        ),
        pytest.param(
            lambda o: o["Job"]["spec"].update(completions="2"),
            "$.spec.completions: '2' is not of type 'integer'",
            id="a string for a number",
        ),
        pytest.param(
            lambda o: o["Job"]["spec"].update(completions=None),
            "$.spec.completions: None is not of type 'integer'",
            id="nothing for a number",
        ),
        pytest.param(
            lambda o: o["Secret"]["stringData"].update(key=1),
            "$.stringData.key: 1 is not of type 'string'",
            id="a number for a string",
        ),
        pytest.param(
            lambda o: o["Job"]["spec"].pop("template"),
            "$.spec: 'template' is a required property",
            id="no template",
        ),
        pytest.param(
            lambda o: container_of(o).pop("name"),
            "$.spec.template.spec.containers[0]: 'name' is a required property",
            id="no name of a container",
        ),
        pytest.param(
            lambda o: o["Service"]["spec"]["ports"][0].pop("port"),
            "$.spec.ports[0]: 'port' is a required property",
            id="no port",
        ),
    ],
)
def test_the_check_of_manifests_finds_faults(
    spoil: Callable[[dict[str, Any]], object],
    fault: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    objects = manifest("--hosts", "2", "a.py", capsys=capsys)
    spoil(objects)
    (found,) = [each for value in objects.values() for each in faults(value)]
    path, _, said = fault.partition(": ")
    assert found.startswith(f"{path}: ")
    assert re.search(said, found), found


def test_every_object_of_the_schema_lists_its_fields() -> None:
    open_ones = {
        name.rpartition(".")[2]
        for name, definition in SCHEMA["$defs"].items()
        if definition.get("additionalProperties") is not False
    }
    # Three are no objects, and the fourth is any object.
    assert open_ones == {"Time", "Quantity", "IntOrString", "FieldsV1"}


def test_the_pods_of_a_manifest_find_each_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--hosts", "3", "My_train.py", "--lr", "$(x) $HOME"]
    found = manifest(*words, capsys=capsys)
    job, service, secret = found["Job"], found["Service"], found["Secret"]
    name = job["metadata"]["name"]
    assert name == "my-train"
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 3
    pod = job["spec"]["template"]["spec"]
    # The names of pods: JOB-INDEX.SUBDOMAIN, which is a headless Service.
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"job-name": name}
    (container,) = pod["containers"]
    given = {each["name"]: each for each in container["env"]}
    assert given["MOOACTOR_FIRST"]["value"] == f"{name}-0.{service['metadata']['name']}"
    assert given["MOOACTOR_HOSTS"]["value"] == "3"
    # Kubernetes replaces $(NAME), and $$ by $.
    assert container["command"][-1] == "$$(x) $$HOME"
    source = given["MOOACTOR_KEY"]["valueFrom"]["secretKeyRef"]
    assert source == {"name": secret["metadata"]["name"], "key": "key"}
    assert len(bytes.fromhex(secret["stringData"]["key"])) == 32
    assert secret["stringData"]["key"].strip() not in json.dumps(job)


def test_a_secret_that_exists_is_named_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = manifest("--hosts", "2", "--secret", "ours", "a.py", capsys=capsys)
    assert "Secret" not in found
    env = found["Job"]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert env[-1]["valueFrom"]["secretKeyRef"]["name"] == "ours"


@pytest.mark.parametrize("name", ["Train", "1a", "a" * 53, "a_b", "-a", "a-"])
def test_a_name_that_a_job_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(LaunchError, match="cannot name a Job"):
        kubernetes.manifest(name=name, hosts=1, image="i", words=["a.py"])


def batch(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["slurm", "--dry-run", *words]) == 0
    return capsys.readouterr().out


def test_a_batch_script_has_the_options_of_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--nodes", "4", "--gpus", "2", "--cpus", "16", "--partition", "a100"]
    more = ["--time", "2:00:00", "--sbatch=--qos=high", "train.py", "--lr", "1 e"]
    lines = batch(*words, *more, capsys=capsys).splitlines()
    assert lines[0] == "#!/bin/bash"
    directives = {line for line in lines if line.startswith("#SBATCH")}
    assert directives == {
        "#SBATCH --job-name=train",
        "#SBATCH --nodes=4",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --cpus-per-task=16",
        "#SBATCH --gpus-per-node=2",
        "#SBATCH --partition=a100",
        "#SBATCH --time=2:00:00",
        "#SBATCH --qos=high",
    }
    (command,) = (line for line in lines if " -m mooactor run " in line)
    assert command.endswith(" run train.py --lr '1 e' &")


def test_a_batch_script_hands_variables_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    words = ["--nodes", "2", "--env", "TOKEN", "--env", "A=b c", "a.py"]
    text = batch(*words, capsys=capsys)
    assert "run --env TOKEN --env 'A=b c' a.py &" in text
    assert "secret" not in text
    assert main(["slurm", "--nodes", "2", "--dry-run", "--env", "NONE", "a.py"]) == 2
    assert "write --env NONE=VALUE" in capsys.readouterr().err


def test_a_manifest_has_the_variables(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--hosts", "2", "--image", "i", "--env", "A=$(B) c", "a.py", "x"]
    assert main(["kubernetes", *words]) == 0
    job = json.loads(capsys.readouterr().out.split("\n---\n")[-1])
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert {"name": "A", "value": "$$(B) c"} in container["env"]
    assert container["command"][-3:] == ["run", "a.py", "x"]


def test_a_job_gives_the_program_the_time_to_end_that_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "run --grace 20.5 a.py" in batch(
        "--nodes", "2", "--grace", "20.5", "a.py", capsys=capsys
    )
    for words, end_s in ((["a.py"], 10), (["--grace", "20.5", "a.py"], 29)):
        assert main(["kubernetes", "--hosts", "2", "--image", "i", *words]) == 0
        job = json.loads(capsys.readouterr().out.split("\n---\n")[-1])
        pod = job["spec"]["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] == end_s
        assert pod["containers"][0]["command"][-len(words) :] == words


def test_a_script_that_is_missing_is_refused_unless_it_may_be_on_the_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["nosuch.py"], ["--cwd", str(tmp_path), "nosuch.py"], ["/no.py"]):
        assert main(["slurm", "--nodes", "2", "--dry-run", *words]) == 2
        assert f"there is no script {words[-1]} in " in capsys.readouterr().err
    for words in (["--cwd", "/scratch/x", "nosuch.py"], ["-m", "nosuch"]):
        assert "srun" in batch("--nodes", "2", *words, capsys=capsys)


def test_the_shell_reads_a_batch_script(capsys: pytest.CaptureFixture[str]) -> None:
    text = batch("--nodes", "2", "a.py", "it's", capsys=capsys)
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash, as batch scripts do")
    subprocess.run([bash, "-n"], input=text, text=True, check=True)


@pytest.mark.parametrize("option", ["--comment=two words", "qos=high", "--a=b\nrm x"])
def test_an_option_that_would_leave_its_line_is_refused(option: str) -> None:
    with pytest.raises(LaunchError, match="no option of sbatch"):
        slurm.directives(nodes=1, job_name="a", more=[option])


def test_a_machine_without_sbatch_says_where_to_go(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["slurm", "--nodes", "2", "a.py"]) == 2
    said = capsys.readouterr().err
    assert "there is no sbatch here" in said and "--dry-run" in said


def test_a_job_that_sbatch_refuses_says_why_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\necho 'sbatch: error: no such partition' >&2; exit 1")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert main(["slurm", "--nodes", "2", "a.py"]) == 2
    said = capsys.readouterr().err
    assert "refuses the job (sbatch: error: no such partition): change" in said
    assert "--dry-run" in said


def test_more_hosts_than_there_are_cannot_be_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for hosts, there in (
        (["--hosts", "a,b"], "2 hosts"),
        (["--hosts", "a"], "one host"),
        (["--local-only"], "one host"),
    ):
        assert main(["run", *hosts, "--min-hosts", "3", "x.py"]) == 2
        said = capsys.readouterr().err
        assert f"--min-hosts 3 is more than the {there}: name more hosts" in said


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["run", "--hosts", "a", "--hostfile", "b", "x.py"],
        ["run", "--ports", "5-1", "x.py"],
        ["run", "--min-hosts", "0", "x.py"],
        ["run", "--address", "a b", "x.py"],
        ["slurm", "x.py"],
        ["kubernetes", "--hosts", "2", "x.py"],
    ],
)
def test_wrong_arguments_exit_with_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
