# SPDX-License-Identifier: MIT
"""A process's side of its lifeline: requests to the host's agent, and its news.

The messages are those of `protocol`; large values go as parcels, whose descriptors are
handed on. All that one read has brought is acted on, also if acting on one of the
messages raises.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from mooactor import errors
from mooactor.control.lifeline import Lifeline, LifelineClosed, Received
from mooactor.control.messages import Malformed, Message
from mooactor.process import protocol
from mooactor.process.objects.future import Future
from mooactor.process.protocol import NEWS, Event, Reply, Request, Stop

M = TypeVar("M", bound=Message)

#: Why a session has ended whose agent did not say that it would.
AGENT_DIED = "the host's agent died"


class AgentClient:
    """Talks to the agent. `on` sets the handlers of its messages."""

    def __init__(
        self,
        lifeline: Lifeline,
        wait: Callable[[Future, float | None], bool],
        wake: Callable[[], None],
    ) -> None:
        """`wait` for a future, so many seconds; `wake` waiting threads."""
        self._lifeline = lifeline
        self.wait = wait
        self._wake = wake
        # The agent's news that a broker has taken the session, or that none can.
        self.joined = Future()
        self.broker_heard = Future()  # that, or that one does not answer
        self.broker_news: dict[str, str] = {}  # why not, by address
        self.ended = False  # the session is over here: its agent may end, too
        self.because = ""  # what ended it, if that is known and not this program
        self.was_lost = False  # it has ended, or is about to, by no deed of this one
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._requests: dict[int, Future] = {}
        self._monitors: dict[int, Callable[[Event], None]] = {}
        self._on_stop_request: Callable[[], None] | None = None
        self._stop_requested = False
        self.grace_s: float | None = None  # of the end, if the agent has said it
        self.on_agent_lost: Callable[[], None] | None = None
        self._actions: dict[type[Message], Callable[[Any], object]] = {
            protocol.Joined: self._joined,
            protocol.Refused: self._joined,
            protocol.NotJoined: self._joined,
            protocol.Ended: self._ended,
            protocol.BrokerLost: self._broker_lost,
            protocol.LostSnapshot: self._lost_snapshot,
            Stop: self._stop,
            Event: self._event,
        }

    def on(self, kind: type[M], action: Callable[[M], object]) -> None:
        """Call `action` with each message of that kind, from now on."""
        self._actions[kind] = action

    def tell(self, message: Request, fds: Sequence[int] = ()) -> None:
        """Send a message to the host's agent, which gets duplicates of `fds`.

        Raises:
          ActorUnavailable: the session is over.
        """
        try:
            self._lifeline.send(message, fds)
        except LifelineClosed:
            self.was_lost = True
            raise errors.session_ended(self.because or AGENT_DIED) from None

    def session_ended(self, delivered: bool | None = None) -> errors.ActorUnavailable:
        """The error of what the end of the session cuts short. It says what ended the
        session, if that is known by now."""
        return errors.session_ended(self.because, delivered)

    def ask(
        self, request: Request, wait_s: float | None = 60.0, fds: Sequence[int] = ()
    ) -> Reply:
        """Send a request and wait `wait_s` seconds for the reply; None: for ever.

        Raises:
          CallTimeout: no answer in time.
          ActorUnavailable: the session is over.
          InternalError: the agent refused the request.
        """
        return self._ask(request, wait_s, fds)[0]

    def _ask(
        self, request: Request, wait_s: float | None = 60.0, fds: Sequence[int] = ()
    ) -> tuple[Reply, list[int]]:
        """The reply, and the descriptors that came with it."""
        future = Future()
        rid = request.rid = next(self._ids)
        self._requests[rid] = future
        try:
            self.tell(request, fds)
            if not self.wait(future, wait_s):
                if self.ended:
                    raise self.session_ended()
                raise errors.CallTimeout(
                    f"the agent did not answer within {wait_s} s; this host is "
                    "overloaded, or the agent is stopped"
                )
            reply, received = future.unwrap()
            if reply.failed is not None:
                raise errors.InternalError(
                    f"the agent refused the request {type(request).__name__!r}: "
                    f"{reply.failed}"
                )
            return reply, received
        finally:
            self._requests.pop(rid, None)

    def group_memory(self, group: str, share: str | None) -> list[int]:
        """Descriptors of the memory of a learner group, and of its agent's bell: the
        same for all processes of this host with this `share`; None: for this one alone.

        The memory is sparse: address space, and pages as they are touched. The caller
        owns the descriptors.
        """
        _, fds = self._ask(protocol.Segment(group, share))
        if not fds:
            raise errors.MooError("this process has no descriptor left for the memory")
        return fds

    def read(self) -> None:
        """Act on the agent's messages. From any thread; one at a time."""
        if not self._lock.acquire(False):
            return
        try:
            self._act_on_all(self._lifeline.receive_nowait())
        except LifelineClosed:
            self._agent_lost()
        finally:
            self._lock.release()

    def _act_on_all(self, received: list[Received]) -> None:
        raised: BaseException | None = None
        for data, fds in received:
            try:
                self._act_on(data, fds)
            except BaseException as error:
                raised = raised or error
        if raised is not None:
            raise raised

    def _act_on(self, data: bytes, fds: list[int]) -> None:
        try:
            message = NEWS.decode(data)
        except Malformed as error:
            print(f"mooactor: the agent sent {data!r:.200}: {error}", file=sys.stderr)
            return
        if isinstance(message, Reply):
            self._reply(message, fds)
        else:
            action = self._actions.get(type(message))
            if action is not None:
                action(message)

    def _reply(self, message: Reply, fds: list[int]) -> None:
        future = self._requests.pop(message.rid, None)
        if future is not None:
            future.set_value((message, fds))
            self._wake()
            return
        for fd in fds:
            os.close(fd)

    def _joined(self, message: Message) -> None:
        if self.joined.set_value(message):
            self.broker_heard.set_value(message)
            self._wake()

    def _ended(self, message: protocol.Ended) -> None:
        by = message.by
        self.because, self.was_lost = f"{by} ended it", True
        print(f"mooactor: {by} ends the session", file=sys.stderr, flush=True)

    def _broker_lost(self, message: protocol.BrokerLost) -> None:
        self.broker_news[message.broker] = message.why
        if self.broker_heard.set_value(message):
            self._wake()

    def _lost_snapshot(self, message: protocol.LostSnapshot) -> None:
        print(f"mooactor: {message.why}", file=sys.stderr, flush=True)

    def when_asked_to_stop(self, action: Callable[[], None]) -> None:
        """Call `action` when the agent asks this process to stop, or now if it has
        already; perhaps twice."""
        self._on_stop_request = action
        if self._stop_requested:
            action()

    def _stop(self, message: Stop) -> None:
        self._stop_requested = True
        self.grace_s = message.grace
        if self._on_stop_request is not None:
            self._on_stop_request()
            self._wake()

    def _event(self, message: Event) -> None:
        sink = self._monitors.get(message.monitor)
        if sink is not None:
            sink(message)
            self._wake()

    def _agent_lost(self) -> None:
        self.was_lost = True
        self._joined(protocol.NotJoined("the host's agent is gone"))
        if not self.ended and self.on_agent_lost is not None:
            self.on_agent_lost()

    def add_monitor(self, actor_id: int, sink: Callable[[Event], None]) -> int:
        """Have events of an actor passed to `sink`; returns the monitor's number."""
        number = next(self._ids)
        self._monitors[number] = sink
        if not self.ask(protocol.Monitor(actor_id, number)).value:
            del self._monitors[number]
            raise errors.ActorUnavailable(
                "this session has no such actor; it has ended, or its handle is of "
                "another session"
            )
        return number

    def remove_monitor(self, actor_id: int, number: int) -> None:
        """End a monitor of `add_monitor`; does nothing if it has ended."""
        if self._monitors.pop(number, None) is not None and not self.ended:
            self.tell(protocol.Unmonitor(actor_id, number))

    def disown(self) -> None:
        """In the child of a fork: the line is the parent's, and so is its end."""
        self._lifeline.close()

    def close(self) -> None:
        self._lifeline.close()
