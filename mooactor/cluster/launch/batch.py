# SPDX-License-Identifier: MIT
"""Files for batch systems: a script for Slurm's sbatch, a manifest for Kubernetes."""

from __future__ import annotations

import json
import math
import re
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from mooactor.cluster.launch.plan import LaunchError
from mooactor.host.addresses import BROKER_PORT

# -- Slurm -------------------------------------------------------------------------

_SCRIPT = """\
#!/bin/bash
{directives}
{environment}
# The key of this job: in a file of this user's alone, in the home directory, which the
# nodes share. It goes when the job ends.
folder="${{XDG_CONFIG_HOME:-$HOME/.config}}/mooactor/runs"
mkdir -p "$folder"
export MOOACTOR_KEY_FILE="$folder/key-$SLURM_JOB_ID"
trap 'rm -f "$MOOACTOR_KEY_FILE"' EXIT
trap 'kill -TERM "$step"; wait "$step"' TERM INT
export MOOACTOR_FIRST=$(hostname)
{python} -P -m mooactor keygen --force "$MOOACTOR_KEY_FILE" > /dev/null || exit

# One task on each node; the first one runs the program.
srun --ntasks-per-node=1 --kill-on-bad-exit=1 \\
    {command} &
step=$!
wait "$step"
"""


def batch_script(
    options: Mapping[str, object],
    more: Sequence[str],
    python: str,
    words: Sequence[str],
    path: str,
) -> str:
    """The text of the script.

    Args:
      options: those of sbatch(1) that have a value.
      more: further ones, as sbatch takes them.
      words: those of ``mooactor run``.
      path: PYTHONPATH.

    Raises:
      LaunchError: an option would not stay on its line.
    """
    named = [
        f"--{name}={value}" for name, value in options.items() if value is not None
    ]
    lines = [*named, *more]
    for line in lines:
        if any(c.isspace() for c in line) or not line.startswith("-"):
            raise LaunchError(f"{line!r} is no option of sbatch: write --name=value")
    return _SCRIPT.format(
        environment=f"export PYTHONPATH={shlex.quote(path)}" if path else "",
        directives="\n".join(f"#SBATCH {line}" for line in lines),
        python=shlex.quote(python),
        command=shlex.join([python, "-P", "-m", "mooactor", "run", *words]),
    )


def submit(script: str) -> str:
    """Hand it to sbatch; what that answers.

    Raises:
      LaunchError: there is no sbatch, or it refuses.
    """
    if shutil.which("sbatch") is None:
        raise LaunchError(
            "there is no sbatch here: run this on a login node of the cluster, or "
            "write the script with --dry-run"
        )
    done = subprocess.run(["sbatch"], input=script, capture_output=True, text=True)
    if done.returncode:
        why = done.stderr.strip() or f"exit code {done.returncode}, without a word"
        raise LaunchError(
            f"sbatch refuses the job ({why}): change the options, or look at the "
            "script with --dry-run"
        )
    return done.stdout.strip()


# -- Kubernetes --------------------------------------------------------------------

# A pod's name is the Job's with an index after it, and must be a DNS label.
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?")
_END_S = 8  # a pod has so long after SIGTERM, and what the program has


def manifest(
    *,
    name: str,
    hosts: int,
    image: str,
    words: Sequence[str],
    python: str,
    namespace: str | None,
    limits: Mapping[str, object],
    secret: str | None,
    variables: Mapping[str, str],
    grace_s: float,
) -> list[dict[str, Any]]:
    """An indexed Job with a pod for each host, a headless Service that gives them
    names, and a Secret with the key; in the order in which they are made.

    Args:
      words: those of ``mooactor run``.
      limits: of each pod: an amount by resource, or None.
      secret: the name of a Secret that exists; None: one with a new key.
      variables: for the environment of all pods.
      grace_s: the time that the program has after SIGTERM.

    Raises:
      LaunchError: the name cannot be that of a Job.
    """
    if not _NAME.fullmatch(name):
        raise LaunchError(
            f"{name!r} cannot name a Job: write --name with at most 52 lower-case "
            "letters, digits and dashes"
        )
    meta: dict[str, Any] = {"name": name, "labels": {"app.kubernetes.io/name": name}}
    if namespace:
        meta["namespace"] = namespace
    # Kubernetes takes $(NAME) for a variable, and $$ for a dollar sign. The key is a
    # variable: files of a mounted Secret belong to root and may be read by a group,
    # which a key file must not.
    first = {"MOOACTOR_HOSTS": str(hosts), "MOOACTOR_FIRST": f"{name}-0.{name}"}
    values = {key: v.replace("$", "$$") for key, v in {**variables, **first}.items()}
    key = {"secretKeyRef": {"name": secret or name, "key": "key"}}
    command = [python, "-P", "-m", "mooactor", "run", *words]
    container = {
        "name": "host",
        "image": image,
        "command": [word.replace("$", "$$") for word in command],
        "env": [
            *({"name": name, "value": value} for name, value in values.items()),
            {"name": "MOOACTOR_KEY", "valueFrom": key},
        ],
        "ports": [{"name": "broker", "containerPort": BROKER_PORT}],
        "resources": {"limits": {name: str(v) for name, v in limits.items() if v}},
    }
    pod = {
        "subdomain": name,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _END_S + math.ceil(grace_s),
        "containers": [container],
    }
    # No pod is started again: the program on the first one, started again alone, would
    # wait for hosts that have ended with it.
    job = {
        "completions": hosts,
        "parallelism": hosts,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"metadata": {"labels": meta["labels"]}, "spec": pod},
    }
    service = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,  # pods look for the first one before
        "selector": {"job-name": name},
        "ports": [{"name": "broker", "port": BROKER_PORT}],
    }
    new = {"stringData": {"key": secrets.token_hex(32) + "\n"}}
    return [
        *([] if secret else [_object("v1", "Secret", meta, **new)]),
        _object("v1", "Service", meta, spec=service),
        _object("batch/v1", "Job", meta, spec=job),
    ]


def _object(version: str, kind: str, meta: object, **more: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": meta, **more}


def text(objects: Sequence[dict[str, Any]]) -> str:
    """For ``kubectl apply -f -``: JSON, which is YAML, too."""
    return "\n---\n".join(json.dumps(each, indent=2) for each in objects)
