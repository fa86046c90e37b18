# SPDX-License-Identifier: MIT
"""Decorated classes stay ordinary classes, all without a runtime."""

from __future__ import annotations

import abc
import copy
import doctest
import pickle
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pytest

import mooactor as moo
from tests.actors.counter import Counter

T = TypeVar("T")


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

    def norm(self) -> int:
        return self.x**2 + self.y**2


@moo.actor
class Box(Generic[T]):
    def __init__(self, item: T) -> None:
        self.item = item

    def get(self) -> T:
        return self.item


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self) -> float: ...


@moo.actor
class Square(Shape):
    def __init__(self, side: float) -> None:
        self.side = side

    def area(self) -> float:
        return self.side**2


def test_the_decorator_returns_the_same_class() -> None:
    class Plain:
        pass

    assert moo.actor(Plain) is Plain
    assert moo.actor(max_concurrency=2)(Plain) is Plain


def test_it_can_be_instantiated_and_called() -> None:
    counter = Counter(3)
    assert counter.add(2) == 5
    assert list(counter.up_to(3)) == [0, 1, 2]


def test_it_can_be_subclassed_and_super_works() -> None:
    class Doubles(Counter):
        def add(self, amount: int = 1) -> int:
            return super().add(2 * amount)

    assert Doubles(1).add(2) == 5


def test_it_can_be_pickled_and_copied() -> None:
    point = Point(1)
    assert pickle.loads(pickle.dumps(point)) == point
    assert copy.deepcopy(point) == point


def test_doctests_run() -> None:
    tests = doctest.DocTestFinder().find(Documented)
    results = [doctest.DocTestRunner().run(test) for test in tests]
    assert sum(r.attempted for r in results) == 1
    assert sum(r.failed for r in results) == 0


def test_a_decorated_method_is_the_function_itself() -> None:
    assert Documented.add.__doc__ == "Return the sum."
    assert Documented().add(1, b=2) == 3


def test_an_abstract_class_cannot_be_instantiated() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Shape()  # type: ignore[abstract]


@pytest.mark.parametrize(
    ("make", "call", "expected"),
    [
        (lambda spawn: spawn(Point, 3), lambda h: h.norm(), 13),
        (lambda spawn: spawn(Box, "item"), lambda h: h.get(), "item"),
        (lambda spawn: spawn(Square, 1.5), lambda h: h.area(), 2.25),
        (lambda spawn: spawn(Documented), lambda h: h.add(1, b=1), 2),
    ],
)
def test_the_same_classes_are_actors(
    spawn: Any, make: Any, call: Any, expected: Any
) -> None:
    assert call(make(spawn)) == expected


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


@pytest.mark.parametrize(
    "options", [{"max_concurrency": 0}, {"max_pending": 0}, {"overflow": "explode"}]
)
def test_options_that_make_no_sense_are_refused(options: Any) -> None:
    with pytest.raises(ValueError, match="max_|overflow"):
        moo.actor(**options)


def test_only_classes_are_decorated_or_spawned(session: Any) -> None:
    with pytest.raises(TypeError, match="for classes"):
        moo.actor(len)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="made of a class"):
        moo.spawn(len)  # type: ignore[arg-type]
