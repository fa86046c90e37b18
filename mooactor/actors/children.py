# SPDX-License-Identifier: MIT
"""`Child`: an actor as a supervisor is told of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args

from mooactor.process import checks
from mooactor.process.supervision import When
from mooactor.times import GRACE_S

if TYPE_CHECKING:
    from mooactor.actors.handle import Handle
    from mooactor.actors.spawn import Spec

T = TypeVar("T")


class Child(Generic[T]):
    """One child of a `Supervisor`: a class, its constructor's arguments, and when it is
    restarted. Made by `child`, or by `Spec.child`. A value that can be pickled."""

    def __init__(
        self,
        spec: Spec[..., T],
        label: str,
        name: str | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._spec = spec
        self._args, self._kwargs = args, kwargs
        self._restart: When = "always"
        self._grace: float | None = None
        self.name = name
        self.label = label
        self._mark = os.urandom(8).hex()  # pickled copies are the same child

    def options(
        self, *, restart: When | None = None, grace: float | None = None
    ) -> Child[T]:
        """The same child with other options; those left out stay.

        Args:
          restart: ``"always"``: after every death, the default. ``"on_failure"``: not
            if it exited with code 0. ``"never"``: its death is no failure, and
            concerns no other child.
          grace: seconds to finish its calls and its `on_stop` when the supervisor
            stops; then it is killed. By default 3, and for a supervisor what its own
            children may need.

        Raises:
          TypeError, ValueError: an option makes no sense; the message names it.
        """
        changed: Child[T] = Child.__new__(Child)
        changed.__dict__.update(self.__dict__)
        if restart is not None:
            checks.one_of("restart", restart, get_args(When))
            changed._restart = restart
        if grace is not None:
            changed._grace = checks.amount("grace", grace)
        return changed

    def _patience(self) -> float:
        """How long its stop may take, in seconds."""
        if self._grace is not None:
            return self._grace
        own = _children_among(self._args, self._kwargs)
        return GRACE_S + sum(child._patience() for child in own)

    @property
    def _key(self) -> str:
        """Under which a supervisor keeps one that it was not made with."""
        return f"{self.label}#{self._mark}" if self.name is None else self.name

    def _start(self, key: str) -> Handle:
        """In the process of its supervisor, which knows it by this key."""
        member = {"key": key, "when": self._restart}
        return self._spec._spawn_child(self._args, self._kwargs, member)

    def __repr__(self) -> str:
        return f"<Child {self.label if self.name is None else self.name}>"


def _children_among(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Child[Any]]:
    """Those of a child that is a supervisor itself."""
    given = kwargs.get("children", args[0] if args else ())
    if not isinstance(given, list | tuple):
        return []
    return [child for child in given if isinstance(child, Child)]
