# SPDX-License-Identifier: MIT
"""What this process does when actors have died: it ends their calls, and forgets them.

Methods run in the housekeeper's thread. Invariants:

* What an actor sent before it died is acted on before its calls fail: each death has a
  moment of grace. An actor that was stopped has answered all calls that it began, so
  their answers are waited for longer: on a busy machine libzmq's own thread may bring
  them later than the news of the end.
* Many actors that die together have their graces together, and all of their calls end
  before anything is tidied up after one of them. So the last death is known soon after
  the first.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from mooactor.control import envelope
from mooactor.control.lifeline import Message
from mooactor.control.links import Link
from mooactor.errors import Cause
from mooactor.process.exits import cause_of
from mooactor.process.objects.table import every_incarnation
from mooactor.process.started import Turns, read_turns

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime

_GRACE_S = 0.008
_ANSWERS_S = 5.0  # from the notice on: for answers that were sent before a stop


class Death(NamedTuple):
    """The end of one process of an actor's."""

    due: float  # when its grace is over
    latest: float  # when it ends even if answers are missing
    link: Link
    incarnation: int
    following: int | None  # the incarnation that comes next; None: it is gone for good
    cause: Cause

    @property
    def process_id(self) -> int:
        return self.link.actor_id + self.incarnation


class Deaths:
    """Those of which the agent has told this process."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: deque[Death] = deque()  # for the end of their graces

    def on_notice(self, message: Message) -> None:
        """The agent says that an actor's process is gone."""
        runtime, incarnation = self._runtime, message["incarnation"]
        link = runtime.link(message["id"], incarnation, "an actor", watch=False)
        if link.cause is not None or incarnation < link.incarnation:
            return
        cause, following = cause_of(message["record"]), message["following"]
        if following is None:
            link.cause = cause
            link.peer = None
        due = perf_counter() + _GRACE_S
        latest = due + (_ANSWERS_S if cause.kind == "stopped" else 0.0)
        death = Death(due, latest, link, incarnation, following, cause)
        self._waiting.append(death)
        runtime.housekeeper.at(due, self._conclude)

    def _conclude(self) -> None:
        """The grace of one is over: see to all of which that is so."""
        now, over = perf_counter(), []
        while self._waiting and self._waiting[0].due <= now:
            over.append(self._waiting.popleft())
        if not over:
            return
        runtime = self._runtime
        runtime.pump.try_drain()
        known = [(death, self._turns_of(death)) for death in over]
        for death, turns in known:
            if now < death.latest and runtime.caller.awaits_answer(death.link, turns):
                over.remove(death)
                self._look_again(death)
            else:
                self._end_calls(death, turns)
        runtime.pump.wake()
        for death in over:
            self._tidy_up(death)
        runtime.pump.wake()

    def _look_again(self, death: Death) -> None:
        due = perf_counter() + _GRACE_S
        self._waiting.append(death._replace(due=due))
        self._runtime.housekeeper.at(due, self._conclude)

    def _turns_of(self, death: Death) -> Turns:
        runtime = self._runtime
        return read_turns(runtime.directory, death.process_id, runtime.process_id)

    def _end_calls(self, death: Death, turns: Turns) -> None:
        link, caller = death.link, self._runtime.caller
        if death.following is None:
            caller.fail_all(link, lambda: link.gone(delivered=None), turns)
        elif death.incarnation >= link.incarnation:
            link.incarnation = death.following
            link.peer = None
            caller.retry_or_fail(link, death.cause, turns)

    def _tidy_up(self, death: Death) -> None:
        runtime, old = self._runtime, death.process_id
        runtime.messenger.forget(old)
        runtime.forget_grants(old)
        dead = every_incarnation(old) if death.following is None else old
        runtime.objects.process_lost(dead)
        runtime.audit.lender_lost(dead)
        runtime.spread.process_lost(old)
        runtime.relay.process_lost(old)
        runtime.plane.peer_lost(old)
        if runtime.server is not None:
            # The mailbox belongs to whoever dispatches.
            runtime.messenger.put(envelope.pack_record(envelope.LOST, old))
