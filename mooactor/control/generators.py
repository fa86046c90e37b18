# SPDX-License-Identifier: MIT
"""Generators of random numbers that a process did not make itself.

A copy draws the same numbers as its original. So each that an actor's process gets with
a definition of ``__main__`` (`script`), or has from a module that was imported before
the fork, is seeded anew: from the process's own seed, as its own streams are
(`process.environment`), in a fixed order. Known are those of `random`, numpy, torch and
gymnasium's spaces.
"""

from __future__ import annotations

import itertools
import os
import pickle
import random
import sys
from collections.abc import Callable, Iterable
from typing import Any

_BYTES = 16


class _Process:
    """Of this process."""

    seed: Callable[[int], bytes] = staticmethod(lambda number: os.urandom(_BYTES))
    numbers = itertools.count()
    found: tuple[Any, ...] = ()  # those that modules held before the fork


def _fresh() -> int:
    seed = _Process.seed(next(_Process.numbers))
    return int.from_bytes(seed[:_BYTES], "little")


def seed_from(seed: Callable[[int], bytes]) -> None:
    """Take seeds from there, by their number, and seed what `find` found."""
    _Process.seed, _Process.numbers = staticmethod(seed), itertools.count()
    for generator in _Process.found:
        _set(generator)


def kinds() -> set[type]:
    """Of the generators that are known."""
    return with_subclasses(_kinds())


def find(objects: Iterable[Any]) -> None:
    """Note every generator of this process, for the processes forked from it. Those of
    the modules themselves are the streams' (`process.environment`).

    `objects`: at least those of `kinds` that the garbage collector has.
    """
    known = kinds()
    holders = [vars(module) for module in list(sys.modules.values()) if module]
    values = itertools.chain(objects, *(list(d.values()) for d in holders))
    found = {id(value): value for value in values if type(value) in known}
    for own in _modules_own():
        found.pop(id(own), None)
    _Process.found = tuple(found.values())


def with_subclasses(kinds: Iterable[type]) -> set[type]:
    """These classes, and all that are derived from them."""
    found = list(kinds)
    for one in found:
        found += type.__subclasses__(one)
    return set(found)


def _modules_own() -> list[Any]:
    mtrand = sys.modules.get("numpy.random.mtrand")
    return [
        getattr(random, "_inst", None),
        getattr(mtrand, "_rand", None),
        getattr(sys.modules.get("torch"), "default_generator", None),
    ]


def _kind(module: str, name: str) -> Any:
    """A class, if its module is loaded."""
    return getattr(sys.modules.get(module), name, None)


def _kinds() -> list[type]:
    names = (
        ("numpy.random", "Generator"),
        ("numpy.random", "RandomState"),
        ("torch", "Generator"),
        ("gymnasium.spaces", "Space"),
    )
    loaded = [kind for name in names if (kind := _kind(*name)) is not None]
    return [random.Random, *loaded]


def reduce(obj: Any) -> tuple[Any, ...] | None:
    """How to pickle a generator so that it is seeded anew; None if it is none."""
    if isinstance(obj, random.SystemRandom) or not isinstance(obj, tuple(_kinds())):
        return None
    torch_generator = _kind("torch", "Generator")
    if torch_generator is not None and isinstance(obj, torch_generator):
        return _torch_generator, (str(obj.device),)
    return _copied, (pickle.dumps(obj, 5),)


def _copied(data: bytes) -> Any:
    return _set(pickle.loads(data))


def _torch_generator(device: str) -> Any:
    import torch

    return _set(torch.Generator(device))


def _set(generator: Any) -> Any:
    """Seed it anew."""
    seed = _fresh()
    if hasattr(generator, "bit_generator"):
        bits = generator.bit_generator
        bits.state = type(bits)(seed).state
    elif hasattr(generator, "manual_seed"):
        generator.manual_seed(seed >> 65)
    elif isinstance(generator, random.Random):
        generator.seed(seed)
    else:  # numpy's older one, and spaces
        generator.seed(seed >> 97)
    return generator
