# SPDX-License-Identifier: MIT
"""The end of a session, as its driver carries it out.

First it waits for its own calls, and for tells, for which nobody else waits. Only then
it asks the actors to stop, so that those which a call needs are there until it has
ended. Both together have the grace; its rest, or a second, is for the actors to stop
in.

Invariants:

* The end takes no longer than the grace and a second, even if actors hang.
* A session in which nothing is outstanding is not held up.
* Tells that are given up are reported, in one sentence on stderr.
* Ctrl-C ends each of the waits at once. It takes effect when the end is complete: no
  processes are left behind for it.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from enum import Enum
from time import perf_counter

from mooactor import errors
from mooactor.control.complaints import say
from mooactor.control.messages import LONGEST_S
from mooactor.process.losses import summary
from mooactor.process.objects.future import Future
from mooactor.process.protocol import Shutdown
from mooactor.process.runtime import Runtime
from mooactor.times import KILLED_S

#: The time that actors have to stop if the wait for calls has used the grace up.
_LEAST_S = 1.0
#: The same after Ctrl-C.
_HURRIED_S = 0.2
_LOOK_MS = 50  # the delay until a Ctrl-C is seen


class Awaited(Enum):
    """Calls that the end of a session waits for."""

    ALL = "calls and tells"
    TELLS = "tells"
    NOTHING = "nothing"

    @classmethod
    def after(cls, raised: type[BaseException] | None) -> Awaited:
        """The calls that an end waits for if `raised` caused the end.

        An error is no reason to lose a tell, which should have its effect even without
        its sender. Results of calls are not wanted any more. A user who presses Ctrl-C,
        which an asyncio program sees as a cancellation, wants the end now.
        """
        if raised is None or issubclass(raised, SystemExit):
            return cls.ALL
        import asyncio

        hurried = (KeyboardInterrupt, asyncio.CancelledError)
        return cls.NOTHING if issubclass(raised, hurried) else cls.TELLS


def ended_by() -> type[BaseException] | None:
    """The exception that ends the program, in an exit handler; None: there is none."""
    if hasattr(sys, "ps1"):
        return None  # it is of an earlier line of an interactive program
    return getattr(sys, "last_type", None)


class Hurry:
    """Ctrl-C while the session ends: it is kept in mind, and raises nothing."""

    def __init__(self) -> None:
        self.hurried = False

    @contextlib.contextmanager
    def watch(self, deliver: bool) -> Iterator[None]:
        """Take SIGINT over. With `deliver`, one that came goes to the program's own
        handler in the end."""
        before = None
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
        if before is None or before is signal.SIG_IGN:
            yield  # another thread's, not Python's, or of no interest
            return
        signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            if self.hurried and deliver:
                signal.raise_signal(signal.SIGINT)

    def _note(self, *_: object) -> None:
        self.hurried = True


class Ending:
    """One end of one session."""

    def __init__(
        self,
        parts: Runtime,
        agent: subprocess.Popen[bytes],
        grace_s: float,
        awaited: Awaited,
        hurry: Hurry,
    ) -> None:
        self._parts = parts
        self._agent = agent
        self._grace_s = grace_s if awaited is not Awaited.NOTHING else _HURRIED_S
        self._awaited = awaited
        self._hurry = hurry
        self._agent_lost = False

    def run(self) -> None:
        """Wait, have the actors stop, and return when the agent is gone."""
        parts, start = self._parts, perf_counter()
        if self._awaited is not Awaited.ALL:
            parts.results.ending = True
        parts.agent.on_agent_lost = self._lost
        parts.caller.close_streams()
        parts.flush()
        rest = self._wait_for_calls(start + self._grace_s)
        self._say(rest)
        parts.caller.give_up(rest)
        # Read once: a Ctrl-C after this moment shortens the grace told here.
        hurried = self._hurry.hurried
        self._shut_down(self._left(start + self._grace_s, hurried), rest, hurried)

    def _left(self, until: float, hurried: bool) -> float:
        """The seconds that actors have to stop in."""
        if hurried:
            return min(self._grace_s, _HURRIED_S)
        return max(until - perf_counter(), min(self._grace_s, _LEAST_S))

    def _lost(self) -> None:
        self._agent_lost = True
        self._parts.poller.wake()

    # -- calls -------------------------------------------------------------

    def _wait_for_calls(self, until: float) -> list[Future]:
        """The calls that have not ended by then, or at a Ctrl-C."""
        rest: list[Future] = []

        def done() -> bool:
            # Called with each message: it looks at each ended call once, and at all
            # calls only when none is left of the last look.
            while rest and rest[-1].state:
                rest.pop()
            rest.extend(() if rest else self._outstanding())
            return not rest or self._agent_lost or self._hurry.hurried

        if self._awaited is not Awaited.NOTHING:
            deadline = None if math.isinf(until) else until
            self._parts.poller.wait(done, deadline)
        return self._parts.caller.outstanding()

    def _outstanding(self) -> list[Future]:
        found = self._parts.caller.outstanding()
        if self._awaited is Awaited.TELLS:
            return [future for future in found if future.told]
        return found

    def _say(self, rest: list[Future]) -> None:
        """Report losses that would otherwise be silent. The Refs of calls report their
        own, so without a wait for calls none of them is named."""
        said = rest
        if self._awaited is not Awaited.ALL or self._hurry.hurried:
            said = [future for future in rest if future.told]
        if not said:
            return
        if self._parts.agent.because:
            why = self._parts.agent.because
        elif self._agent_lost:
            why = "the host's agent is gone"
        elif self._hurry.hurried or self._awaited is Awaited.NOTHING:
            why = "it was interrupted"
        else:
            why = (
                f"they took longer than {self._grace_s:g} s; moo.shutdown(grace=…) "
                "waits as long as you say"
            )
        say(f"mooactor: the end of the session gave up {summary(said)}: {why}")

    # -- actors ------------------------------------------------------------

    def _shut_down(self, grace_s: float, rest: list[Future], hurried: bool) -> None:
        """Have every actor stop. Those whose calls were given up are not waited for
        once the others have ended. `hurried`: `grace_s` knows of a Ctrl-C."""
        given_up = {future.link.actor_id for future in rest if future.link}
        self._tell(grace=grace_s, given_up=list(given_up))
        until = perf_counter() + grace_s + KILLED_S
        if self._agent.poll() is not None:
            return  # its pid may be another process's by now
        with self._poller() as poller:
            while self._agent.poll() is None:
                poller.poll(_LOOK_MS)
                if self._hurry.hurried and not hurried:
                    hurried = True
                    self._tell(grace=0.0, given_up=[])
                    until = perf_counter() + KILLED_S
                if perf_counter() > until:
                    self._agent.kill()

    def _tell(self, *, grace: float, given_up: list[int]) -> None:
        with contextlib.suppress(errors.ActorUnavailable):  # gone, and the actors too
            grace = min(grace, LONGEST_S)
            self._parts.agent.tell(Shutdown(grace, given_up))

    @contextlib.contextmanager
    def _poller(self) -> Iterator[select.poll]:
        """Its event is the agent's end. It has none if that is gone, and reaped by
        somebody else: `Popen.poll` knows then."""
        poller = select.poll()
        try:
            pidfd = os.pidfd_open(self._agent.pid)
        except OSError:  # or no descriptor is left: then the agent is looked for
            yield poller
            return
        try:
            poller.register(pidfd, select.POLLIN)
            yield poller
        finally:
            os.close(pidfd)
