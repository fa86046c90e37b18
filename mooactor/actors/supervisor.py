# SPDX-License-Identifier: MIT
"""`Supervisor`: an actor that starts other actors, restarts and stops them together."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, cast, overload

from mooactor import errors
from mooactor.actors.decorator import actor
from mooactor.actors.handle import Handle
from mooactor.actors.spawn import Child, on
from mooactor.process import checks, protocol
from mooactor.process.checks import shown
from mooactor.process.current import current_runtime
from mooactor.process.supervision import Strategy, Supervision
from mooactor.times import GRACE_S

P = ParamSpec("P")
T = TypeVar("T")


def child(cls: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Child[T]:
    """An actor for a `Supervisor` to spawn; ``moo.on(…).child(…)`` also chooses its
    name, its placement and more.

    Raises:
      TypeError: it is no class, or the constructor would refuse the arguments.
    """
    return on(cls).child(*args, **kwargs)


@actor
class Supervisor:
    """Starts its children in order, restarts those that die, and stops them with
    itself.

    ::

        learner = moo.on(Learner, name="learner").child(1e-4)
        players = [moo.on(Player, num_cpus=1).child(i) for i in range(8)]
        team = moo.spawn(
            moo.Supervisor, [learner, *players], strategy="rest_for_one", max=5
        )
        team.child(learner).step(batch)  # a handle, typed Learner

    A child starts when the constructor of the one before it has returned. The
    supervisor counts as started (`monitor`, or the turn of the next child, if it is a
    child itself) when all its children run.

    When a child dies, some are started anew, each by its own constructor call and with
    its last snapshot, if it takes some. Those that live are killed first, in reverse
    order. Handles and names stay valid, and calls under way end with `ActorRestarted`,
    unless they have ``retries=``. The strategy says which ones:

    * ``"one_for_one"``: the child that died. Its siblings do not notice.
    * ``"one_for_all"``: all children, of which none is of use without the others.
    * ``"rest_for_one"``: the child that died and those after it in the order, which
      depend on those before them.

    A constructor that raises is a death like any other. More than `max` restarts
    `within` so many seconds are too many: the supervisor gives up and dies, with a
    cause of the kind ``"child"``. Deaths that belong to one restart count once. If the
    supervisor has a supervisor, or a ``restart=`` policy, it comes back with all its
    children, whose handles stay valid, too. Otherwise they end with it. The same holds
    if the supervisor's own process dies.

    A child that was stopped with `stop`, or killed with `kill`, stays away, and its
    siblings go on. One that ended well, or is never restarted, starts anew only if its
    supervisor does, as a new actor. `stop` of the supervisor stops the children in
    reverse order, one after the other.

    The host's agent decides and acts. So a restart takes milliseconds, whatever the
    supervisor does.

    Args:
      children: made by `child`, or by ``moo.on(…).child(…)``. A supervisor may be one.
      strategy: see above.
      max: the number of restarts that are allowed `within` the last so many seconds.
      backoff: seconds before the first restart in that time; each further one that
        restarts the same child doubles them, up to `longest_backoff`.
      jitter: the part of each back-off that is left to chance, from 0 to 1, so that
        many that failed together do not come back together.
      in_order: whether a child waits for the constructor of the one before it, and
        stops after those behind it. False starts and stops all at once, for large pools
        whose members do not need each other.

    Raises:
      TypeError, ValueError: an argument makes no sense; the message names it. `spawn`
        raises it at once.
    """

    def __init__(
        self,
        children: Sequence[Child[Any]] = (),
        *,
        strategy: Strategy = "one_for_one",
        max: int = 3,
        within: float = 60.0,
        backoff: float = 0.0,
        longest_backoff: float = 60.0,
        jitter: float = 0.5,
        in_order: bool = True,
    ) -> None:
        self._rules = Supervision(
            strategy, max, within, backoff, longest_backoff, jitter, in_order
        )
        self._children = _by_key(children)
        self._keys = {one._mark: key for key, one in self._children.items()}
        self._handles: dict[str, Handle] = {}

    @classmethod
    def __moo_check__(cls, *args: Any, **kwargs: Any) -> None:
        """Refuse wrong arguments before anything is sent. A subclass may have a
        constructor that must not run here."""
        if cls.__init__ is Supervisor.__init__:
            cls(*args, **kwargs)

    # -- hooks of the runtime ----------------------------------------------

    def on_start(self) -> None:
        """Take over the children of an earlier incarnation, and spawn the others."""
        known = self._known()
        for key in dict.fromkeys([*self._children, *known]):
            handle = _handle_of(known[key]) if key in known else None
            if key not in known:
                handle = self._children[key]._start(key)
            if handle is not None:
                self._handles[key] = handle

    def _known(self) -> dict[str, int]:
        """The agent's word on the children of this supervisor, by key: the id of one
        that lives or comes back, 0 for one that somebody has ended."""
        request = protocol.Supervise(self._rules)
        return cast(dict[str, int], current_runtime().agent.ask(request).value)

    def on_stop(self) -> None:
        """Stop the children, the last one first, or all at once."""
        agent = current_runtime().agent
        children = cast(list[int], agent.ask(protocol.CloseTeam()).value)[::-1]
        began, together = time.monotonic(), not self._rules.in_order
        for actor_id in children if together else ():
            agent.tell(protocol.StopChild(actor_id))
        for actor_id in children:
            passed = time.monotonic() - began if together else 0.0
            left = max(0.0, self._patience(actor_id) - passed)
            try:
                agent.ask(protocol.StopChild(actor_id), left)
            except errors.CallTimeout:
                agent.ask(protocol.Kill(actor_id))

    def _patience(self, actor_id: int) -> float:
        for key, handle in self._handles.items():
            if handle._actor_id == actor_id and key in self._children:
                return self._children[key]._patience()
        return GRACE_S  # it was added to an earlier incarnation

    # -- calls -------------------------------------------------------------

    @overload
    def child(self, which: Child[T]) -> T: ...
    @overload
    def child(self, which: str) -> Any: ...
    def child(self, which: Any) -> Any:
        """The handle of a child, by its name or by what it was made from. It may be
        about to start: calls to it wait.

        Raises:
          ActorUnavailable: the supervisor has no such child.
        """
        checks.kind("which", which, Child | str, "a Child or a name")
        if isinstance(which, Child):
            handle = self._handles.get(self._keys.get(which._mark, which._key))
        else:
            handle = self._handles.get(which)
        if handle is None:
            names = ", ".join(self._handles) or "none"
            raise errors.ActorUnavailable(
                f"the supervisor has no child {which!r}; its children: {names}"
            )
        return handle

    def children(self) -> list[Any]:
        """The handles of all children, in their order."""
        return list(self._handles.values())

    def add(self, child: Child[T]) -> T:
        """Start another child, the last in the order, and return its handle. A child
        of the same name may be replaced once it is over.

        Raises:
          ValueError: there is such a child, or another actor has its name.
          PlacementError: no host has the resources for it.
        """
        checks.kind("child", child, Child, "a Child, as moo.child(…) makes it")
        key = child._key
        if self._known().get(key):
            raise ValueError(f"the supervisor has a child {key!r} already")
        handle = child._start(key)
        self._children[key], self._handles[key] = child, handle
        self._keys[child._mark] = key
        return handle  # type: ignore[return-value]


def _handle_of(actor_id: int) -> Handle | None:
    """None: it has ended by now."""
    found = current_runtime().agent.ask(protocol.GetHandle(actor_id)).value
    return pickle.loads(found) if isinstance(found, bytes) and found else None


def _by_key(children: Any) -> dict[str, Child[Any]]:
    if isinstance(children, Child) or not isinstance(children, Sequence):
        raise TypeError(
            f"{shown('children', children)} must be a list of children, as "
            "moo.child(…) makes them"
        )
    found: dict[str, Child[Any]] = {}
    marks: set[str] = set()
    for index, one in enumerate(children):
        what = "a Child, as moo.child(…) makes it"
        checks.kind(f"children[{index}]", one, Child, what)
        # The same in each incarnation of the supervisor, which may make its children.
        key = one.name or f"{one.label}#{index}"
        if key in found or one._mark in marks:
            raise ValueError(
                f"children[{index}]: there is a child {key!r} already; give each "
                "a name of its own, or make it with another moo.child(…)"
            )
        found[key] = one
        marks.add(one._mark)
    return found
