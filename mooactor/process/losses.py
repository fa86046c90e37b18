# SPDX-License-Identifier: MIT
"""Losses: calls under way whose process has died, or whose connection has broken.

Each ends with an error that says what is known of it, or is sent again, if it has
retries left. The rules are those of `caller`.

Invariant: **no tell is lost in silence**, though nobody waits for it. An actor answers
each one that it takes, without a value, and prints an exception of the method. So its
future here is pending until it has run; one that fails here was never run, or died with
the actor, and this process says so on stderr: those that failed for one reason
together, in one sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from mooactor import errors
from mooactor.control.complaints import say
from mooactor.control.links import Link
from mooactor.process.calls import LATER, Repeatable
from mooactor.process.deaths import Turns
from mooactor.process.objects.future import Future
from mooactor.process.pending import PendingReplies

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime


class Losses:
    """Those of one process's calls. In the housekeeper's thread, or the poller's."""

    def __init__(
        self,
        parts: Runtime,
        pending: dict[int, Future],
        replies: PendingReplies,
        start: Callable[..., None],
    ) -> None:
        """`pending`: the calls that have not ended, by id. `start`: see `Caller`."""
        self._parts = parts
        self._pending = pending
        self._replies = replies
        self._start = start

    def _calls_of(self, link: Link) -> list[Future]:
        return [o for o in list(self._pending.values()) if o.link is link]

    def awaits_answer(self, link: Link, turns: Turns) -> bool:
        """Whether a call that its actor may have begun is not answered here yet. Of the
        answers that have come, only data may be under way."""
        futures = (self._pending.get(call_id) for call_id in list(link.calls))
        return any(
            future is not None
            and not future.state
            and self._may_be_answered(future.call_id, turns)
            for future in futures
        )

    def _may_be_answered(self, call_id: int, turns: Turns) -> bool:
        if turns.final:
            return call_id in self._replies
        return turns.delivered(call_id) is not False

    def fail_all(self, link: Link, turns: Turns) -> None:
        """The actor of a link is gone for good: end all calls over it, each with an
        error of its own."""
        assert link.cause is not None
        lost = Lost(link, link.cause)
        for future in self._calls_of(link):
            why = link.gone(delivered=None)
            if why.delivered is None:
                why.delivered = turns.delivered(future.call_id)
            if self._replies.drop(future.call_id):
                why.delivered = True  # it ran, and its result did not get here
            self._end(future, link, why.delivered, why, lost)
        link.calls.clear()
        self._parts.values.producer_lost(link, partial(link.gone, None))
        self._parts.results.producer_lost(link, link.cause)
        lost.say()

    def end_late(
        self, link: Link, future: Future, call_id: int, delivered: bool | None
    ) -> None:
        """Its actor is gone for good, and the notice may not have seen this call. It
        knows more of earlier ones, and ends them."""
        if self._pending.get(call_id) is not future:
            return
        assert link.cause is not None
        lost = Lost(link, link.cause)
        if self._replies.drop(call_id):
            delivered = True
        self._end(future, link, delivered, link.gone(delivered), lost)
        lost.say()

    def retry_or_fail(self, link: Link, cause: errors.Cause, turns: Turns) -> None:
        """The process of a link died, and another will follow: send calls with retries
        left again, and end the others."""
        lost = Lost(link, cause)
        futures = self._calls_of(link)
        link.calls.clear()
        for future in futures:
            delivered = turns.delivered(future.call_id)
            if self._replies.drop(future.call_id):
                delivered = True
            if not self._retried(link, future, delivered):
                error = link.restarted(cause, delivered)
                self._end(future, link, delivered, error, lost)
        self._parts.values.producer_lost(link, partial(link.restarted, cause, None))
        self._parts.results.producer_lost(link, cause)
        lost.say()

    def send_early(self, link: Link) -> None:
        """A connection broke, and records wait for the next one. Send the calls with
        retries left again now: so they start before those that are made from here on.
        `connection_broke`, or a death, counts that. Within `Link.sending_again`.
        """
        for future in self._calls_of(link):
            call_id = future.call_id
            if _may_repeat(future) and not self._replies.is_last_here(call_id):
                self._replies.drop(call_id)
                forget(self._pending, call_id, link)
                future.request = future.request._replace(early=True).lost(None)
                self.send_again(link, future)

    def connection_broke(
        self, link: Link, why: str, delivered: bool | None, latest: int
    ) -> None:
        """A connection with the process of a link broke, and the process lives: calls
        under way may be lost. Send those with retries left again, and end the others,
        but not those whose record has come.

        Args:
          delivered: False if nothing of them was sent.
          latest: calls with higher ids are not concerned.
        """
        lost = Lost(link, f"{link.label}: {why}")
        with link.sending_again():
            for future in self._calls_of(link):
                call_id = future.call_id
                if delivered is None and _was_early(future):
                    future.request = future.request.counted()
                    continue
                if call_id > latest or self._replies.is_last_here(call_id):
                    continue
                # Of a stream, some may have come.
                ran = True if self._replies.drop(call_id) else delivered
                if not self._retried(link, future, ran):
                    self._end(future, link, ran, link.cut_off(why, ran), lost)
        lost.say()

    def _retried(self, link: Link, future: Future, delivered: bool | None) -> bool:
        """Whether a call that was lost is made again."""
        if not _may_repeat(future):
            return False
        forget(self._pending, future.call_id, link)
        future.request = future.request.counted().lost(delivered)
        self.send_again(link, future)
        return True

    def send_again(self, link: Link, future: Future) -> None:
        """Make a call once more; an error of that is its result."""
        request: Repeatable = future.request
        resending = link.resending
        if resending is not None:
            resending.sent += 1
        form = request.form._replace(waits=LATER)
        try:
            self._start(link, future, form, request.args, request.kwargs)
        except BaseException as error:
            future.set_error(error)

    def _end(
        self,
        future: Future,
        link: Link,
        delivered: bool | None,
        error: errors.MooError,
        lost: Lost,
    ) -> None:
        lost.add(future, delivered)
        future.set_error(error)
        forget(self._pending, future.call_id, link)


def forget(pending: dict[int, Future], call_id: int, link: Link | None) -> None:
    """A call's future is done, and no reply is awaited. Can be done twice."""
    if link is not None:
        link.calls.discard(call_id)
    pending.pop(call_id, None)


def _may_repeat(future: Future) -> bool:
    request: Repeatable | None = future.request
    return request is not None and request.attempts_left > 0 and not future.state


def _was_early(future: Future) -> bool:
    return future.request is not None and bool(future.request.early)


_MOST_LABELS = 5


def say_refused(future: Future, link: Link, error: errors.MooError) -> None:
    """This one was not sent; nothing is said of a call that is no tell."""
    if future.told:
        say(f"mooactor: a tell to {link.label} is lost: {errors.text_of(error)}")


class Lost:
    """The tells lost by one death, or one broken connection."""

    def __init__(self, link: Link, cause: errors.Cause | str) -> None:
        """`cause`: of the death; or what happened to the connection."""
        self._link = link
        self._cause = cause
        self._kind = "" if isinstance(cause, str) else cause.kind
        self._surely = self._perhaps = 0

    def add(self, future: Future, delivered: bool | None) -> None:
        """Count it, if it is a tell and had not ended. It did not run if `delivered`
        is False, or if the actor never came to serve calls."""
        if not future.told or future.state:
            return
        if delivered is False or self._kind == "exception":
            self._surely += 1
        elif self._kind != "killed":
            # A user who kills an actor in the middle of a method intends the loss.
            self._perhaps += 1

    def say(self) -> None:
        """Say how many there were, if any."""
        label, parts = self._link.label, []
        if self._surely:
            parts.append(f"{number(self._surely, 'tell')} to {label} did not run")
        if self._perhaps:
            many = number(self._perhaps, "tell")
            parts.append(f"{many} to {label} may not have run to the end")
        if parts:
            say(f"mooactor: {', and '.join(parts)}: {self._why()}")

    def _why(self) -> str:
        if isinstance(self._cause, str):
            return self._cause
        known = self._kind != "unknown"
        end = "died" if known else "cannot be found"
        return f"{self._link.label} {end} ({self._cause})"


def summary(futures: Iterable[Future]) -> str:
    """``3 tells to Logger and 1 call to Learner``; empty of none."""
    found = Counter(
        ("tell" if one.told else "call", one.link.label if one.link else "an actor")
        for one in futures
    )
    parts = [
        f"{number(count, what)} to {label}"
        for (what, label), count in found.most_common(_MOST_LABELS)
    ]
    if rest := found.total() - sum(c for _, c in found.most_common(_MOST_LABELS)):
        parts.append(f"{rest} more")
    *first, last = parts or [""]
    return f"{', '.join(first)} and {last}" if first else last


def number(count: int, what: str) -> str:
    """``1 tell``, ``2 tells``."""
    return f"{count} {what}{'s' * (count != 1)}"
