# SPDX-License-Identifier: MIT
"""The manifest of a program on Kubernetes: an indexed Job with a pod for each host, a
headless Service that gives them names, and a Secret with the key."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from mooactor.cluster.launch.plan import GRACE_S
from mooactor.cluster.launch.rendezvous import BROKER_PORT
from mooactor.cluster.launch.targets import LaunchError

Object = dict[str, Any]
# A pod's name is the Job's with an index after it, and must be a DNS label.
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?")
_DEVICE = "nvidia.com/gpu"
_END_S = 8  # a pod has so long after SIGTERM, and what the program has


def manifest(
    *,
    name: str,
    hosts: int,
    image: str,
    words: Sequence[str],
    python: str = "python3",
    namespace: str | None = None,
    cpus: int | None = None,
    gpus: int | None = None,
    memory: str | None = None,
    secret: str | None = None,
    variables: Mapping[str, str] | None = None,
    grace_s: float = GRACE_S,
) -> list[Object]:
    """The objects, in the order in which they are made.

    Args:
      words: those of ``mooactor run``.
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
    limits = {"cpu": cpus, "memory": memory, _DEVICE: gpus}
    values = {
        **(variables or {}),
        "MOOACTOR_HOSTS": str(hosts),
        "MOOACTOR_FIRST": f"{name}-0.{name}",
    }
    container = _container(values, image, python, words, limits)
    meta = _meta(name, namespace)
    job = _job(meta, hosts, container, secret or name, _END_S + math.ceil(grace_s))
    objects = [_service(name, meta), job]
    return objects if secret else [_secret(meta), *objects]


def _meta(name: str, namespace: str | None) -> Object:
    where = {"namespace": namespace} if namespace else {}
    return {"name": name, **where, "labels": {"app.kubernetes.io/name": name}}


def _secret(meta: Object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": meta,
        "stringData": {"key": secrets.token_hex(32) + "\n"},
    }


def _service(name: str, meta: Object) -> Object:
    # Pods look for the first one before it is ready.
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"job-name": name},
            "ports": [{"name": "broker", "port": BROKER_PORT}],
        },
    }


def _container(
    values: Mapping[str, str],
    image: str,
    python: str,
    words: Sequence[str],
    limits: Object,
) -> Object:
    return {
        "name": "host",
        "image": image,
        # Kubernetes takes $(NAME) for a variable, and $$ for a dollar sign.
        "command": [
            word.replace("$", "$$")
            for word in (python, "-P", "-m", "mooactor", "run", *words)
        ],
        "env": [
            {"name": key, "value": value.replace("$", "$$")}
            for key, value in values.items()
        ],
        "ports": [{"name": "broker", "containerPort": BROKER_PORT}],
        "resources": {
            "limits": {key: str(value) for key, value in limits.items() if value}
        },
    }


def _job(
    meta: Object, hosts: int, container: Object, secret: str, end_s: int
) -> Object:
    # The key is a variable: files of a mounted Secret belong to root and may be read by
    # a group, which a key file must not. No pod is started again: the program on the
    # first one, started again alone, would wait for hosts that have ended with it.
    key = {"secretKeyRef": {"name": secret, "key": "key"}}
    container["env"].append({"name": "MOOACTOR_KEY", "valueFrom": key})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": {
            "completions": hosts,
            "parallelism": hosts,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {
                "metadata": {"labels": meta["labels"]},
                "spec": {
                    "subdomain": meta["name"],
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": end_s,
                    "containers": [container],
                },
            },
        },
    }


def text(objects: Sequence[Object]) -> str:
    """For ``kubectl apply -f -``: JSON, which is YAML, too."""
    return "\n---\n".join(json.dumps(each, indent=2) for each in objects)
