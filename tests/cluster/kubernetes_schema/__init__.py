# SPDX-License-Identifier: MIT
"""Kubernetes' published schema of the objects that we write, and a check against it.

`schema.json` is of an old version (see README.md): of an API version like batch/v1 no
field goes away again, so a manifest that fits it fits the later ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SCHEMA = json.loads((Path(__file__).parent / "schema.json").read_text())
#: By apiVersion and kind.
_DEFINITIONS = {
    ("batch/v1", "Job"): "io.k8s.api.batch.v1.Job",
    ("v1", "Secret"): "io.k8s.api.core.v1.Secret",
    ("v1", "Service"): "io.k8s.api.core.v1.Service",
}


def faults(value: dict[str, Any]) -> list[str]:
    """The faults of an object, each with the path to it."""
    jsonschema = pytest.importorskip("jsonschema")
    name = _DEFINITIONS[value["apiVersion"], value["kind"]]
    whole = {**SCHEMA, "$ref": f"#/$defs/{name}"}
    found = jsonschema.Draft202012Validator(whole).iter_errors(value)
    return [f"{error.json_path}: {error.message}" for error in found]
