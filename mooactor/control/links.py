# SPDX-License-Identifier: MIT
"""A caller's side of an actor: its present process, and its unanswered calls.

`Links` has those of all actors that this process knows. A process that has a link to an
actor is told of its deaths.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mooactor.control import incarnations
from mooactor.control.keys import actor_of, every_incarnation
from mooactor.control.messenger import Messenger, Peer
from mooactor.errors import (
    ActorDied,
    ActorRestarted,
    ActorUnavailable,
    Cause,
    MooError,
    PlacementError,
)

DEFAULT_MAX_PENDING = 1024
# Without one call sent for so long it is stuck, and the order is no matter any more.
_STUCK_S = 2.0


class Resending:
    """Calls with retries are being sent again: new ones of other threads wait, so that
    all start in the order in which they were made."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._over = threading.Event()
        self.sent = 0

    def wait(self) -> None:
        """Until it is over. It takes milliseconds, or seconds on a busy machine. Not in
        the thread that does it."""
        before = -1
        while threading.get_ident() != self._thread and self.sent != before:
            before = self.sent
            if self._over.wait(_STUCK_S):
                return

    def end(self) -> None:
        """All are sent."""
        self._over.set()


@dataclass(eq=False, repr=False, slots=True)
class Link:
    """One per (process, actor). It follows the actor from incarnation to incarnation.

    ``calls`` has the ids of calls sent and not answered. ``peer`` leads to the present
    process, or is None; it is None once the actor is gone for good. Only `Links` sets
    it, the incarnation and the cause of a link that it has.
    """

    actor_id: int
    incarnation: int
    label: str
    limit: int = DEFAULT_MAX_PENDING
    calls: set[int] = field(default_factory=set)
    peer: Peer | None = None
    cause: Cause | None = None  # set once it is gone for good
    died_of: Cause | None = None  # that of the process before the present one
    concurrency: int = 1 << 30  # calls that it runs at once, once that is known
    has_one_thread: bool = False  # for its sync methods: it is an async actor
    overflow: str = "wait"
    foreign: bool = False
    resending: Resending | None = None
    rounds: int = 0  # how often calls were sent again over it
    over: bool = False  # it is gone for good, and calls are being ended, or were

    @classmethod
    def to_nowhere(cls, actor_id: int, incarnation: int, label: str) -> Link:
        """The link to an actor of another session: no call is ever sent over it."""
        link = cls(actor_id, incarnation, label)
        link.cause = Cause("unknown")
        link.foreign = True
        return link

    @contextmanager
    def sending_again(self) -> Iterator[None]:
        """New calls wait meanwhile, except those of this thread.

        One that has read ``rounds``, and then found that it need not wait, finds a
        higher number if this begins before it is sent, and makes a new start.
        """
        self.resending = mine = Resending()
        self.rounds += 1
        try:
            yield
        finally:
            self.resending = None
            mine.end()

    @property
    def outstanding(self) -> int:
        """The number of calls sent and not answered."""
        return len(self.calls)

    @property
    def process_id(self) -> int:
        """The id of the actor's present process."""
        return self.actor_id + self.incarnation

    def gone(self, delivered: bool | None = False) -> MooError:
        """The error of a call to an actor that is gone for good, or never was."""
        assert self.cause is not None
        if self.foreign:
            message = (
                f"{self.label} cannot be called: it belongs to another session, an "
                "earlier session of this program or another program's; spawn it in "
                "this one"
            )
            return ActorUnavailable(message, delivered=False)
        if self.cause.kind == "unknown":
            message = f"{self.label} cannot be called: {self.cause}"
            return ActorUnavailable(message, delivered=False)
        exception = self.cause.exception
        if isinstance(exception, PlacementError) and exception.turned_away:
            return PlacementError(str(exception), delivered=False, turned_away=True)
        return _died(self.label, self.cause, delivered)

    def restarted(self, cause: Cause, delivered: bool | None) -> ActorRestarted:
        """The error of a call that was under way when the actor died."""
        message = (
            f"{self.label} died during the call ({cause}) and was restarted; "
            "call again, or use .options(retries=…) if running twice is harmless"
        )
        return ActorRestarted(message + _tail(cause), cause=cause, delivered=delivered)

    def died_with_result(self, cause: Cause) -> ActorDied:
        """The error of a call that has run, and whose result went with the actor."""
        more = "; the call has run, and its result was not fetched"
        if self.cause is not None:
            return _died(self.label, cause, True, more)
        message = f"{self.label} died ({cause}) and was restarted{more}; call again"
        return ActorRestarted(message + _tail(cause), cause=cause, delivered=True)

    def cut_off(self, why: str, delivered: bool | None) -> ActorUnavailable:
        """The error of a call that was under way when the connection broke."""
        if delivered is False:
            message = f"{self.label} cannot be reached: {why}; call again later"
        else:
            message = (
                f"{self.label} was cut off during the call: {why}; call again, or use "
                ".options(retries=…) if running twice is harmless"
            )
        return ActorUnavailable(message, delivered=delivered)


class Links:
    """The actors that this process knows, by id. Threads: any."""

    def __init__(
        self,
        process_id: int,
        driver: int,
        messenger: Messenger,
        watch: Callable[[int, int], None],
    ) -> None:
        """`driver`: its process. `watch`: ask to be told of an actor's deaths, by id
        and incarnation."""
        self.process_id = process_id
        self._driver = driver
        self.messenger = messenger
        self._watch = watch
        self._links: dict[int, Link] = {}
        # Held while a peer, an incarnation or a cause is set, and for nothing else: a
        # signal handler that calls may wait for a thread that needs it.
        self._moving = threading.RLock()

    def __len__(self) -> int:
        return len(self._links)

    def link(
        self,
        actor_id: int,
        incarnation: int,
        label: str,
        *,
        watch: bool,
        perhaps_old: bool = False,
    ) -> Link:
        """The link to an actor; `watch` unless this process spawned it. `perhaps_old`:
        the incarnation is from a handle, and may be dead for long."""
        link = self._links.get(actor_id)
        if link is None:
            if perhaps_old:
                now = incarnations.latest(self.messenger.directory, actor_id)
                incarnation = max(incarnation, now)
            new = Link(actor_id, incarnation, label)
            link = self._links.setdefault(actor_id, new)
            if link is new and watch:
                self._watch(actor_id, incarnation)
        return link

    def of_process(self, process_id: int) -> Link | None:
        """The link to the actor whose present process that is."""
        link = self._links.get(actor_of(process_id))
        found = link is not None and link.process_id == process_id
        return link if found else None

    def watch(self, process_id: int) -> None:
        """Ask for news of that process's death: then its holds on our values are free.
        The driver is not watched: its end is the session's."""
        if process_id in (self.process_id, self._driver):
            return
        if actor_of(process_id) in self._links:
            return  # every process with a link is told
        number = process_id & 0xFFFF
        incarnation = 0 if process_id == every_incarnation(process_id) else number
        label = f"process {process_id:016x}"
        self.link(actor_of(process_id), incarnation, label, watch=True)

    def known_alive(self) -> int:
        """The number of known actors that are not known to be gone for good."""
        return sum(link.cause is None for link in list(self._links.values()))

    def is_gone(self, process_id: int) -> bool:
        """Whether a process is known to be dead, or an actor in `every_incarnation`."""
        link = self._links.get(actor_of(process_id))
        if link is None:
            return False
        return link.cause is not None or link.incarnation > process_id & 0xFFFF

    def refuse_lost_directory(self, link: Link) -> None:
        """Before the first call: ZeroMQ would look for a removed socket for ever.

        Raises ActorUnavailable: the session's directory is gone.
        """
        directory = self.messenger.directory
        if link.peer is None and not os.path.isdir(directory):
            raise ActorUnavailable(
                f"{link.label} cannot be reached: {directory}, the directory of the "
                "session's sockets, was removed by another program; moo.shutdown() "
                "and moo.init() start another session",
                delivered=False,
            )

    def peer_of(self, link: Link) -> Peer:
        """The way to an actor's present process. If that is replaced meanwhile, it is
        that to the old one, and the link does not keep it."""
        peer = link.peer
        if peer is None:
            incarnation = link.incarnation
            # This may wait for the agent: not with the lock.
            peer = self.messenger.peer(link.actor_id + incarnation)
            with self._moving:
                if link.incarnation == incarnation and link.cause is None:
                    link.peer = peer
        return peer

    def follow(self, link: Link, incarnation: int, cause: Cause) -> None:
        """The actor's process is dead, for that cause, and this is its next one."""
        with self._moving:
            link.died_of = cause
            link.peer = None  # first: callers read both without the lock
            link.incarnation = incarnation

    def end(self, link: Link, cause: Cause) -> None:
        """The actor is gone for good."""
        with self._moving:
            link.peer = None
            link.cause = cause

    def labels(self) -> dict[int, str]:
        """The label of each actor, by the id of its present process."""
        return {link.process_id: link.label for link in list(self._links.values())}


def _died(
    label: str, cause: Cause, delivered: bool | None, more: str = ""
) -> ActorDied:
    message = f"{label} is dead: {cause}{more}"
    error = ActorDied(message + _tail(cause), cause=cause, delivered=delivered)
    if cause.exception is not None:
        error.__cause__ = cause.exception
    return error


def _tail(cause: Cause) -> str:
    if not cause.stderr:
        return ""
    return "\n  its last lines on stderr:\n    " + "\n    ".join(cause.stderr)
