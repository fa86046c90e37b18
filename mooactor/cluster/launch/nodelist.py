# SPDX-License-Identifier: MIT
"""Slurm's short form of host names: ``n[1-3,05],gpu7`` (slurm.conf(5), NodeName)."""

from __future__ import annotations

import re
from collections.abc import Iterator

_PART = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
_GROUP = re.compile(r"\[([^\]]*)\]")
_MOST = 1 << 20  # names; a longer list is no list of a cluster


def expand(text: str) -> list[str]:
    """The names, in order.

    Raises:
      ValueError: the text has no such form.
    """
    names = [name for part in _PART.findall(text) for name in _expand(part)]
    if not names or ",".join(_PART.findall(text)) != text or len(names) > _MOST:
        raise ValueError(f"{text!r} is no list of nodes")
    return names


def _expand(part: str) -> Iterator[str]:
    """Groups may follow each other: ``rack[1-2]node[1-4]``."""
    found = _GROUP.search(part)
    if found is None:
        yield part
        return
    head, tail = part[: found.start()], part[found.end() :]
    for number in _numbers(found[1]):
        for rest in _expand(tail) if tail else ("",):
            yield head + number + rest


def _numbers(group: str) -> Iterator[str]:
    for word in group.split(","):
        first, dash, last = word.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"{word!r} is no range of nodes")
        for number in range(int(first), int(last or first) + 1)[:_MOST]:
            yield str(number).zfill(len(first))
