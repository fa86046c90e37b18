# SPDX-License-Identifier: MIT
"""Deaths of actors: `monitor` tells of them, `link` lets two actors die together."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from mooactor import errors
from mooactor.actors.handle import handle_of
from mooactor.actors.ref import refuse_on_loop
from mooactor.process import protocol
from mooactor.process.exits import cause_of
from mooactor.process.protocol import Link, Unlink
from mooactor.process.supervision import Died, Event, Restarted, Started, Stopped


class Monitor(Iterator[Event], AsyncIterator[Event]):
    """Iterate over it, plainly or with ``async for``; see `monitor`."""

    def __init__(self, handle: Any) -> None:
        runtime, link = handle_of(handle)._where()
        self._runtime = runtime
        self._actor_id = link.actor_id
        self._label = link.label
        self._events: deque[Event] = deque()
        self._notify: Callable[[], None] | None = None
        self._over = False
        self._last = False
        self._number = runtime.agent.add_monitor(self._actor_id, self._on_event)

    def _on_event(self, message: protocol.Event) -> None:
        self._events.append(_event(message))
        self._last = message.last
        if self._notify is not None:
            self._notify()

    def _next(self) -> Event:
        event = self._events.popleft()
        if self._last and not self._events:
            self.close()
        return event

    def __next__(self) -> Event:
        """The next event, waiting for it; the iteration ends with the last one."""
        if self._over and not self._events:
            raise StopIteration
        if not self._events:
            refuse_on_loop(f"an event of {self._label}")
            self._runtime.poller.wait(lambda: self._events or self._runtime.closed)
        if not self._events:
            self._refuse_if_forked()
            raise StopIteration
        return self._next()

    async def __anext__(self) -> Event:
        while not self._events:
            if self._over or self._runtime.closed:
                self._refuse_if_forked()
                raise StopAsyncIteration
            await self._arrival()
        return self._next()

    async def _arrival(self) -> None:
        event, self._notify = self._runtime.poller.event()
        if not self._events:
            await event.wait()

    def _refuse_if_forked(self) -> None:
        if self._runtime.forked and not self._over:
            raise self._runtime.over(f"the events of {self._label}")

    def close(self) -> None:
        """Stop listening."""
        if not self._over:
            self._over = True
            if self._runtime.closed:
                return
            self._runtime.agent.remove_monitor(self._actor_id, self._number)

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def monitor(handle: Any) -> Monitor:
    """Events of an actor: `Started`, `Died`, `Restarted`, `Stopped`, each once.

    The last event before the call comes first, so a late call misses no state.

    Raises:
      ActorUnavailable: there is no such actor in this session.
    """
    return Monitor(handle)


def _event(message: protocol.Event) -> Event:
    actor, incarnation = message.actor, message.incarnation
    if message.what == "started":
        return Started(actor, incarnation)
    if message.what == "restarted":
        return Restarted(actor, incarnation)
    assert message.record is not None
    kind = Died if message.what == "died" else Stopped
    return kind(actor, incarnation, cause_of(message.record))


def link(a: Any, b: Any) -> None:
    """Let two actors die together: if one dies, the other is killed at once.

    A death is every end but a `stop` or an exit with code 0; `kill` is one. The cause
    of the second death has the kind ``"link"``, names the first actor, and has its
    cause as `origin`. Links are in both directions and go on through other actors: if
    a is linked with b and b with c, all three die together. Restart policies and
    supervisors hold for each of them as after any other death, and the link holds on
    after a restart. It ends when one of the two is over for good. To hear of a death
    and live on, use `monitor` instead.

    Raises:
      ActorUnavailable: one of the two has ended for good, or is of another session.
    """
    reply = _ask(Link, a, b)
    if reply is not None:
        over = (a, b)[reply]
        raise errors.ActorUnavailable(
            f"{handle_of(over)._label} has ended and cannot be linked; spawn it again"
        )


def unlink(a: Any, b: Any) -> None:
    """End the link between two actors; does nothing if there is none."""
    _ask(Unlink, a, b)


def _ask(kind: type[Link | Unlink], a: Any, b: Any) -> Any:
    runtime, one = handle_of(a, "a")._where()
    _, other = handle_of(b, "b")._where()
    return runtime.agent.ask(kind(one.actor_id, other.actor_id)).value
