# SPDX-License-Identifier: MIT
"""An actor that keeps values and Refs, and what it still holds when all is dropped."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import mooactor as moo
from tests.gates import wait_at

#: Bytes of one value: enough to travel in shared memory.
SIZE = 64 << 10


def value(number: int) -> Any:
    return np.full(SIZE, number % 251, np.uint8)


def number_in(array: Any) -> int:
    """The number of a value, all of which must be there."""
    assert array.shape == (SIZE,)
    assert (array == array[0]).all()
    return int(array[0])


def holdings() -> dict[str, int]:
    """Everything that this process has and that should come back to nothing."""
    gc.collect()
    stats = moo.stats()
    memory = stats["memory"]
    return {
        "objects": stats["objects"],
        "values": stats["values_pending"],
        "used": memory["used_bytes"],
        "imported": memory["imported_bytes"],
    }


class Broken:
    """Can be pickled, and not unpickled."""

    def __reduce__(self) -> Any:
        return (_break, ())


def _break() -> None:
    raise RuntimeError("cannot be unpickled")


class RefError(Exception):
    """Carries a Ref."""

    def __init__(self, ref: Any) -> None:
        super().__init__(ref)


@moo.actor(max_pending=1000)
class Keeper:
    """Keeps what it is given, by key."""

    def __init__(self, given: Any = None) -> None:
        self.kept: dict[Any, Any] = {"given": given}

    def make(self, number: int) -> Any:
        return value(number)

    def put(self, number: int) -> Any:
        return [moo.put(value(number))]

    def keep(self, key: Any, what: Any) -> None:
        self.kept[key] = what

    def hand_out(self, key: Any) -> Any:
        return self.kept[key]

    def send(self, other: Any, key: Any, their_key: Any) -> None:
        other.keep(their_key, self.kept[key])

    def drop(self, key: Any) -> None:
        self.kept.pop(key, None)

    def read(self, key: Any) -> int:
        return number_in(find_ref(self.kept[key]).get(timeout=20))

    def read_now(self, what: Any) -> int:
        return number_in(find_ref(what).get(timeout=20))

    def ignore(self, what: Any, *more: Any) -> None:
        """Take arguments and keep nothing."""

    def fail_with(self, key: Any) -> None:
        raise RefError(self.kept[key])

    def items(self, count: int) -> Iterator[Any]:
        for i in range(count):
            yield [moo.put(value(i))]

    def until(self, gate: Path) -> None:
        """Hold this actor until there is that file."""
        wait_at(gate)

    def pid(self) -> int:
        return os.getpid()

    def holdings(self) -> dict[str, int]:
        return holdings()


def find_ref(what: Any) -> moo.Ref[Any]:
    """The one Ref inside nested lists, tuples and dicts."""
    if isinstance(what, moo.Ref):
        return what
    for part in what.values() if isinstance(what, dict) else what:
        if isinstance(part, moo.Ref | list | tuple | dict):
            return find_ref(part)
    raise AssertionError(f"no Ref in {what!r}")
