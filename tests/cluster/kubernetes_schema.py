# SPDX-License-Identifier: MIT
"""The part of Kubernetes' published API that our manifests use, and a check against it.

Fields and types as in the API reference of v1.34 (batch/v1 Job, v1 Service, v1 Secret).
A field that is not listed is refused: the table grows with what we write.
"""

from __future__ import annotations

import re
from typing import Any

MAPPING = "mapping of strings"
QUANTITIES = "mapping of quantities"

#: By kind: the fields with their types, then those that must be there.
KINDS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "Job": (
        {"apiVersion": str, "kind": str, "metadata": "ObjectMeta", "spec": "JobSpec"},
        ("apiVersion", "kind"),
    ),
    "Service": (
        {
            "apiVersion": str,
            "kind": str,
            "metadata": "ObjectMeta",
            "spec": "ServiceSpec",
        },
        ("apiVersion", "kind"),
    ),
    "Secret": (
        {
            "apiVersion": str,
            "kind": str,
            "metadata": "ObjectMeta",
            "stringData": MAPPING,
        },
        ("apiVersion", "kind"),
    ),
    "ObjectMeta": ({"name": str, "namespace": str, "labels": MAPPING}, ()),
    "JobSpec": (
        {
            "backoffLimit": int,
            "completionMode": str,
            "completions": int,
            "parallelism": int,
            "template": "PodTemplateSpec",
        },
        ("template",),
    ),
    "PodTemplateSpec": ({"metadata": "ObjectMeta", "spec": "PodSpec"}, ()),
    "PodSpec": (
        {
            "containers": ["Container"],
            "restartPolicy": str,
            "subdomain": str,
            "terminationGracePeriodSeconds": int,
        },
        ("containers",),
    ),
    "Container": (
        {
            "command": [str],
            "env": ["EnvVar"],
            "image": str,
            "name": str,
            "ports": ["ContainerPort"],
            "resources": "ResourceRequirements",
        },
        ("name",),
    ),
    "EnvVar": ({"name": str, "value": str, "valueFrom": "EnvVarSource"}, ("name",)),
    "EnvVarSource": ({"secretKeyRef": "SecretKeySelector"}, ()),
    "SecretKeySelector": ({"key": str, "name": str, "optional": bool}, ("key",)),
    "ContainerPort": ({"containerPort": int, "name": str}, ("containerPort",)),
    "ResourceRequirements": ({"limits": QUANTITIES, "requests": QUANTITIES}, ()),
    "ServiceSpec": (
        {
            "clusterIP": str,
            "ports": ["ServicePort"],
            "publishNotReadyAddresses": bool,
            "selector": MAPPING,
        },
        (),
    ),
    "ServicePort": ({"name": str, "port": int}, ("port",)),
}
VERSIONS = {"Job": "batch/v1", "Service": "v1", "Secret": "v1"}
_QUANTITY = re.compile(r"\d+(\.\d+)?([munkMGTPE]|[KMGTPE]i)?")
_PORT_NAME = re.compile(r"[a-z0-9-]{1,15}")


def check(value: dict[str, Any]) -> None:
    """Fail with the path to what is wrong."""
    assert VERSIONS[value["kind"]] == value["apiVersion"]
    _check(value, value["kind"], value["kind"])


def _check(value: Any, kind: Any, path: str) -> None:
    if isinstance(kind, list):
        assert type(value) is list, f"{path} is no list"
        for index, item in enumerate(value):
            _check(item, kind[0], f"{path}[{index}]")
    elif kind in (MAPPING, QUANTITIES):
        for key, item in value.items():
            assert type(key) is type(item) is str, f"{path}.{key}"
            assert kind == MAPPING or _QUANTITY.fullmatch(item), f"{path}.{key}"
    elif isinstance(kind, type):
        assert type(value) is kind, f"{path} is no {kind.__name__}"
    else:
        fields, required = KINDS[kind]
        assert type(value) is dict, f"{path} is no {kind}"
        assert set(required) <= set(value), f"{path} lacks a field"
        for key, item in value.items():
            assert key in fields, f"{path}.{key} is no field of a {kind}"
            _check(item, fields[key], f"{path}.{key}")
