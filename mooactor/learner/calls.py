# SPDX-License-Identifier: MIT
"""A member's call for C: a part for each type of elements, one layout for all.

The layout is a hash of the whole call. Every part carries it, so members that pass
different tensors find out at the first part, before anything is reduced.
"""

from __future__ import annotations

from typing import Any

from mooactor.learner.buffers import Buffer, layout_of
from mooactor.tensors.collective import DTYPES, OPS, part_of

# A tensor's input and output memory.
Pair = tuple[Buffer, Buffer]


def parts_of(
    kind: str,
    pairs: list[Pair],
    *,
    op: str = "sum",
    root: int = 0,
    keys: tuple[Any, ...] = (),
) -> list[list[int]]:
    """At least one part. An operation that only moves bytes has one, for all types.

    `keys`: of a dict of tensors, see `keys_of`.
    """
    if not pairs:
        return [part_of(kind)]
    layout = layout_of([source for source, _ in pairs], keys)
    groups = _by_dtype(pairs) if kind == "allreduce" and len(pairs) > 1 else [pairs]
    return [_part(kind, group, OPS[op], root, layout) for group in groups]


def _part(kind: str, pairs: list[Pair], op: int, root: int, layout: int) -> list[int]:
    source, target = pairs[0]
    if len(pairs) == 1:
        spans = [source.address, target.address, source.bytes]
    else:
        spans = [source.address for source, _ in pairs]
        spans += [target.address for _, target in pairs]
        spans += [source.bytes for source, _ in pairs]
    dtype = DTYPES.get(source.dtype, 0)
    return part_of(kind, dtype, op, root, layout, spans, target.bytes)


def _by_dtype(pairs: list[Pair]) -> list[list[Pair]]:
    """In the order in which the types first appear."""
    parts: dict[str, list[Pair]] = {}
    for pair in pairs:
        parts.setdefault(pair[0].dtype, []).append(pair)
    return list(parts.values())
