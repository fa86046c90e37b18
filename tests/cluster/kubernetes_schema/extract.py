# SPDX-License-Identifier: MIT
"""Takes from the published schema of one Kubernetes version what our manifests reach.

In an environment of its own, because the package has 22 MB::

    pip install kubernetes-validate==1.37.0
    cd tests/cluster/kubernetes_schema
    python extract.py v1.25.0 >schema.json

The package has the OpenAPI definitions of each version as JSON Schema, of which the
strict ones refuse fields that they do not list. It adds null to the type of each
optional field, which is taken out again. Descriptions and what is for Kubernetes' own
tools (``x-kubernetes-…``) are left out. Each definition gets a line.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

ROOTS = (
    "io.k8s.api.batch.v1.Job",
    "io.k8s.api.core.v1.Secret",
    "io.k8s.api.core.v1.Service",
)
_COMMENT = (
    "SPDX-License-Identifier: Apache-2.0. From {version} of the Kubernetes API, by way "
    "of kubernetes-validate, changed by extract.py: see README.md."
)


def published(version: str) -> dict[str, Any]:
    """All definitions of a version, such as v1.25.0."""
    found = importlib.util.find_spec("kubernetes_validate")
    assert found is not None and found.origin is not None, "see the top of this file"
    folder = Path(found.origin).with_name("kubernetes-json-schema")
    path = folder / f"{version}-local-strict" / "_definitions.json"
    definitions: dict[str, Any] = json.loads(path.read_text())["$defs"]
    return definitions


def extract(definitions: dict[str, Any]) -> dict[str, Any]:
    """Those that the roots reach."""
    kept: dict[str, Any] = {}
    wanted = list(ROOTS)
    for name in wanted:  # which grows meanwhile
        if name not in kept:
            kept[name] = _bare(definitions[name], wanted)
    return dict(sorted(kept.items()))


def _bare(schema: Any, wanted: list[str]) -> Any:
    """A schema without what says nothing about values; those it refers to are
    wanted."""
    if isinstance(schema, list):
        return [_bare(each, wanted) for each in schema if each not in ("null", None)]
    if not isinstance(schema, dict):
        return schema
    bare = {}
    for key, value in schema.items():
        if key == "$ref":
            name = value.rpartition("/")[2]
            wanted.append(name)
            bare[key] = f"#/$defs/{name}"
        elif key == "properties":
            bare[key] = {name: _bare(of, wanted) for name, of in value.items()}
        elif key != "description" and not key.startswith("x-"):
            bare[key] = _bare(value, wanted)
    return bare


def text(version: str, kept: dict[str, Any]) -> str:
    lines = (
        f"{json.dumps(name)}: {json.dumps(of, sort_keys=True)}"
        for name, of in kept.items()
    )
    comment = json.dumps(_COMMENT.format(version=version))
    return f'{{"$comment": {comment},\n"$defs": {{\n' + ",\n".join(lines) + "\n}}"


if __name__ == "__main__":
    print(text(sys.argv[1], extract(published(sys.argv[1]))))
