# SPDX-License-Identifier: MIT
"""Messages that are nearly right: of bytes, and of what MessagePack has."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator
from typing import Any

from tests.control.test_fuzz import mutate as mutate

_LEAST, _MOST = -(1 << 63), (1 << 64) - 1  # that MessagePack has
_NUMBERS = (
    0,
    -1,
    1,
    255,
    1 << 16,
    1 << 31,
    1 << 63,
    _MOST,
    _LEAST,
)
_QUANTITIES = (0.5, -1.0, math.inf, -math.inf, math.nan, 1e300)
_TEXTS = ("", "x", "\0", "é" * 400, "tcp://", "../..", "a\nb", "x" * 5000)
_REST = (None, True, False, b"", b"\0" * 300, [], {}, [[]], {"": {}}, {"x": [None]})


def odd(rng: random.Random) -> Any:
    """A plain value where another one was expected."""
    return copy.deepcopy(rng.choice(rng.choice((_NUMBERS, _QUANTITIES, _TEXTS, _REST))))


def changed(rng: random.Random, message: dict[str, Any]) -> dict[str, Any]:
    """A copy with one to three differences, at any depth; sometimes with none."""
    found = copy.deepcopy(message)
    for _ in range(rng.randrange(4)):
        _change(rng, rng.choice(list(_containers(found))))
    return found


def _containers(value: Any) -> Iterator[Any]:
    """The dicts and lists in it, outermost first."""
    if type(value) is dict or type(value) is list:
        yield value
        for item in value.values() if type(value) is dict else value:
            yield from _containers(item)


def _change(rng: random.Random, container: Any) -> None:
    keys = list(container) if type(container) is dict else list(range(len(container)))
    key = rng.choice(keys) if keys else None
    choice = rng.random()
    if key is None or choice < 0.1:
        _add(rng, container)
    elif choice < 0.3:
        del container[key]
    elif choice < 0.5 and type(container[key]) in (bytes, str):
        container[key] = _mutated(rng, container[key])
    elif choice < 0.6 and type(container[key]) is int:
        more = container[key] + rng.choice((-1, 1, 1 << 32))
        container[key] = min(_MOST, max(_LEAST, more))
    else:
        container[key] = odd(rng)


def _add(rng: random.Random, container: Any) -> None:
    if type(container) is list:
        container.insert(rng.randrange(len(container) + 1), odd(rng))
    else:
        container[rng.choice(("x", "", "id", "number", "why"))] = odd(rng)


def _mutated(rng: random.Random, value: Any) -> Any:
    if type(value) is bytes:
        return mutate(rng, value)
    return mutate(rng, value.encode()).decode("utf-8", "replace")
