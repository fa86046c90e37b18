# SPDX-License-Identifier: MIT
"""A process's side of its lifeline: requests to the host's agent, and its news.

Messages carry plain values only (see `control.plain`); large ones go as parcels, whose
descriptors are handed on. All that one read has brought is acted on, also if acting on
one of the messages raises.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

from mooactor import errors
from mooactor.control.lifeline import Lifeline, LifelineClosed, Message, Received
from mooactor.process.objects.future import Future

#: Why a session has ended whose agent did not say that it would.
AGENT_DIED = "the host's agent died"


class AgentClient:
    """Talks to the agent. ``on_…`` may be set as handlers of its own messages."""

    def __init__(
        self,
        lifeline: Lifeline,
        wait: Callable[[Future, float | None], bool],
        wake: Callable[[], None],
    ) -> None:
        """`wait` for a future, so many seconds; `wake` waiting threads."""
        self._lifeline = lifeline
        self._wait = wait
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
        self._monitors: dict[int, Callable[[Message], None]] = {}
        # Of those that wait for others to share memory with them, by number.
        self._refusals: WeakValueDictionary[int, Future] = WeakValueDictionary()
        self.on_log: Callable[[Message], None] | None = None
        self._on_stop_request: Callable[[], None] | None = None
        self._stop_requested = False
        self.grace_s: float | None = None  # of the end, if the agent has said it
        self.on_death: Callable[[Message], None] | None = None
        self.on_agent_lost: Callable[[], None] | None = None
        self.on_survey: Callable[[], Message] | None = None
        self.on_located: Callable[[Message], None] | None = None
        self.on_unreached: Callable[[Message], None] | None = None

    def tell(self, /, fds: Sequence[int] = (), **message: Any) -> None:
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
        self,
        wait_s: float | None = 60.0,
        /,
        fds: Sequence[int] = (),
        **message: Any,
    ) -> Message:
        """Send a request and wait `wait_s` seconds for the reply; None: for ever.

        Raises:
          CallTimeout: no answer in time.
          ActorUnavailable: the session is over.
          InternalError: the agent refused the request.
        """
        future = Future()
        rid = next(self._ids)
        self._requests[rid] = future
        try:
            self.tell(fds, rid=rid, **message)
            if not self._wait(future, wait_s):
                if self.ended:
                    raise self.session_ended()
                raise errors.CallTimeout(
                    f"the agent did not answer within {wait_s} s; this host is "
                    "overloaded, or the agent is stopped"
                )
            reply: Message = future.unwrap()
            if "failed" in reply:
                raise errors.InternalError(
                    f"the agent refused the request {message['op']!r}: "
                    f"{reply['failed']}"
                )
            return reply
        finally:
            self._requests.pop(rid, None)

    def shared_segment(
        self, name: str, size: int, members: int, refusal: Future
    ) -> list[int]:
        """Descriptors of the learner group's memory, the same for all processes, and
        of its agent's bell.

        It is sparse: `size` bytes of address space, pages as they are touched. The
        caller owns the descriptors. While it waits for others, it keeps `refusal`,
        which ends with the same `PlacementError` as theirs if one of the `members`
        processes that are to share the memory is refused.

        Raises:
          PlacementError: processes of another host share it already.
        """
        number = next(self._ids)
        self._refusals[number] = refusal  # the news may come close behind the reply
        reply = self.ask(
            op="segment", name=name, size=size, members=members, waiting=number
        )
        if reply.get("error") == "several hosts":
            raise errors.PlacementError(reply["note"])
        descriptors: list[int] = reply["descriptors"]
        return descriptors

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
        for message, fds in received:
            try:
                self._act_on(message, fds)
            except BaseException as error:
                raised = raised or error
        if raised is not None:
            raise raised

    def _act_on(self, message: Message, fds: list[int]) -> None:
        if fds:
            message["descriptors"] = fds
        action = getattr(self, f"_ev_{message.get('ev')}", None)
        if action is None:
            print(f"mooactor: the agent sent {message!r:.200}", file=sys.stderr)
        else:
            action(message)

    def _ev_reply(self, message: Message) -> None:
        future = self._requests.pop(message["rid"], None)
        if future is not None:
            future.set_value(message)
            self._wake()
        else:
            for fd in message.get("descriptors", ()):
                os.close(fd)

    def wait(self, future: Future, seconds: float) -> bool:
        """Wait for `future`; False if it takes longer."""
        return self._wait(future, seconds)

    def _ev_several_hosts(self, message: Message) -> None:
        refusal = self._refusals.pop(message["number"], None)
        if refusal is not None:  # else it waits no more
            refusal.set_error(errors.PlacementError(message["note"]))

    def _ev_surveyed(self, message: Message) -> None:
        if self.on_survey is not None:
            self.tell(op="survey", number=message["number"], **self.on_survey())

    def _ev_joined(self, message: Message) -> None:
        if self.joined.set_value(message):
            self.broker_heard.set_value(message)
            self._wake()

    _ev_refused = _ev_not_joined = _ev_joined

    def _ev_ended(self, message: Message) -> None:
        by = message["by"]
        self.because, self.was_lost = f"{by} ended it", True
        print(f"mooactor: {by} ends the session", file=sys.stderr, flush=True)

    def _ev_broker_lost(self, message: Message) -> None:
        self.broker_news[message["broker"]] = message["why"]
        if self.broker_heard.set_value(message):
            self._wake()

    def _ev_lost_snapshot(self, message: Message) -> None:
        print(f"mooactor: {message['why']}", file=sys.stderr, flush=True)

    def _ev_log(self, message: Message) -> None:
        if self.on_log is not None:
            self.on_log(message)

    def when_asked_to_stop(self, action: Callable[[], None]) -> None:
        """Call `action` when the agent asks this process to stop, or now if it has
        already; perhaps twice."""
        self._on_stop_request = action
        if self._stop_requested:
            action()

    def _ev_stop(self, message: Message) -> None:
        self._stop_requested = True
        self.grace_s = message.get("grace")
        if self._on_stop_request is not None:
            self._on_stop_request()
            self._wake()

    def _ev_event(self, message: Message) -> None:
        sink = self._monitors.get(message["monitor"])
        if sink is not None:
            sink(message)
            self._wake()

    def _agent_lost(self) -> None:
        self.was_lost = True
        self._ev_joined({"ev": "not_joined", "why": "the host's agent is gone"})
        if not self.ended and self.on_agent_lost is not None:
            self.on_agent_lost()

    def add_monitor(self, actor_id: int, sink: Callable[[Message], None]) -> int:
        """Have events of an actor passed to `sink`; returns the monitor's number."""
        number = next(self._ids)
        self._monitors[number] = sink
        reply = self.ask(op="monitor", id=actor_id, monitor=number)
        if not reply["value"]:
            del self._monitors[number]
            raise errors.ActorUnavailable(
                "this session has no such actor; it has ended, or its handle is of "
                "another session"
            )
        return number

    def remove_monitor(self, actor_id: int, number: int) -> None:
        """End a monitor of `add_monitor`; does nothing if it has ended."""
        if self._monitors.pop(number, None) is not None and not self.ended:
            self.tell(op="unmonitor", id=actor_id, monitor=number)

    def _ev_died(self, message: Message) -> None:
        if self.on_death is not None:
            self.on_death(message)

    def _ev_located(self, message: Message) -> None:
        if self.on_located is not None:
            self.on_located(message)

    def _ev_unreached(self, message: Message) -> None:
        if self.on_unreached is not None:
            self.on_unreached(message)

    def disown(self) -> None:
        """In the child of a fork: the line is the parent's, and so is its end."""
        self._lifeline.close()

    def close(self) -> None:
        self._lifeline.close()
