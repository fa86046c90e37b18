# SPDX-License-Identifier: MIT
"""Tells: calls for which nobody waits.

Invariant: **no tell is lost in silence.** An actor answers each one that it takes,
without a value, and prints an exception of the method. So its future here is pending
until it has run; one that fails here was never run, or died with the actor, and this
process
says so on stderr: those that failed for one reason together, in one sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from mooactor import errors
from mooactor.control.complaints import say
from mooactor.control.links import Link
from mooactor.process.objects.future import Future

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
