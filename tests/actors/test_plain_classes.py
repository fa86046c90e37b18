# SPDX-License-Identifier: MIT
"""Decorated classes stay ordinary classes, all without a runtime."""

from __future__ import annotations

import copy
import doctest
import pickle
from dataclasses import dataclass
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Counter

pytestmark = pytest.mark.usefixtures("session")


@moo.actor
class Documented:
    """Adds.

    >>> Documented().add(1, 2)
    3
    """

    @moo.method
    def add(self, a: int, b: int) -> int:
        """Return the sum."""
        return a + b


@moo.actor
@dataclass
class Point:
    x: int
    y: int = 2


def test_a_decorated_class_is_the_same_class() -> None:
    class Plain:
        pass

    class Doubles(Counter):
        def add(self, amount: int = 1) -> int:
            return super().add(2 * amount)

    assert moo.actor(Plain) is Plain
    assert moo.actor(max_concurrency=2)(Plain) is Plain
    counter = Counter(3)
    assert counter.add(2) == 5
    assert list(counter.up_to(3)) == [0, 1, 2]
    assert Doubles(1).add(2) == 5
    point = Point(1)
    assert pickle.loads(pickle.dumps(point)) == copy.deepcopy(point) == point
    assert Documented.add.__doc__ == "Return the sum."
    (tests,) = doctest.DocTestFinder(recurse=False).find(Documented)
    assert doctest.DocTestRunner().run(tests) == (0, 1)


def test_inherited_static_and_class_methods_can_be_called(spawn: Any) -> None:
    class Base:
        def inherited(self) -> str:
            return "base"

        @staticmethod
        def static(x: int) -> int:
            return x + 1

        @classmethod
        def named(cls) -> str:
            return cls.__name__

    class Derived(Base):
        pass

    handle = spawn(Derived)
    assert handle.inherited() == "base"
    assert handle.static(1) == 2
    assert handle.named() == "Derived"


def test_only_classes_are_decorated_or_spawned(session: Any) -> None:
    with pytest.raises(TypeError, match="for classes"):
        moo.actor(len)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="made of a class"):
        moo.spawn(len)  # type: ignore[arg-type]
