# SPDX-License-Identifier: MIT
"""A member's call for C: a part for each type of elements, one layout for all.

The layout is a hash of the whole call. Every part carries it, so members that pass
different tensors find out at the first part, before anything is reduced.
"""

from __future__ import annotations

from typing import Any

from mooactor.learner.buffers import Buffer, layout_of
from mooactor.tensors.collective import DTYPES, OPS, Part

# A tensor's input and output memory.
Pair = tuple[Buffer, Buffer]


def parts_of(
    kind: str,
    pairs: list[Pair],
    *,
    op: str = "sum",
    root: int = 0,
    keys: tuple[Any, ...] = (),
) -> list[Part]:
    """At least one part. An operation that only moves bytes has one, for all types.

    `keys`: of a dict of tensors, see `keys_of`.
    """
    layout = layout_of([source for source, _ in pairs], keys)
    groups = _by_dtype(pairs) if kind == "allreduce" and len(pairs) > 1 else [pairs]
    return [_part(kind, group, op, root, layout) for group in groups]


def _part(kind: str, pairs: list[Pair], op: str, root: int, layout: int) -> Part:
    return Part(
        kind,
        dtype=DTYPES.get(pairs[0][0].dtype, 0) if pairs else 0,
        op=OPS[op],
        root=root,
        layout=layout,
        inputs=[source.address for source, _ in pairs],
        outputs=[target.address for _, target in pairs],
        sizes=[source.bytes for source, _ in pairs],
        output_bytes=pairs[0][1].bytes if pairs else 0,
    )


def _by_dtype(pairs: list[Pair]) -> list[list[Pair]]:
    """In the order in which the types first appear."""
    parts: dict[str, list[Pair]] = {}
    for pair in pairs:
        parts.setdefault(pair[0].dtype, []).append(pair)
    return list(parts.values()) or [[]]
