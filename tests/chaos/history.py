# SPDX-License-Identifier: MIT
"""Histories: what each participant of a chaos run did, in a file of its own.

A participant is one process: the driver, one incarnation of an actor, or the runner,
which injects the faults. An event is one line of JSON, written at once and appended, so
a process that is killed loses nothing that it had noted. All processes are on one
machine and share its monotonic clock, so the events of all have one order in time.

The words of the checker (tests/chaos/story.py reads them):

=========  =======================================  ====================================
event      facts                                    noted
=========  =======================================  ====================================
born       role, actor, incarnation, pid, started,  first, by each participant
           host
over                                                last, if it ends in good order
sent       call, to, client, method, retries,       before a call leaves; `via`: other
           timeout, tell, via, cancels, argument,   actors whose death may end it;
           expect, items                            `items`: of a stream
ended      call, how, value, error, delivered,      when its caller knows its end; how:
           text                                     "value", "error" or "dropped"
item       call, n, value                           when an item of a stream is taken
ran        call, method, got                        first, in the method
done       call, value                              last, in the method
spawned    actor, name, owned, host                 when `spawn` has returned
removing   actor, how                               before `moo.stop` or `moo.kill`
removed    actor                                    when it has returned
looking    look, name                               before `moo.lookup`
found      look, name, actor                        after it; "" if there was none
watching   watch, actor                             before `moo.monitor`
seen       watch, actor, kind, incarnation, cause   when an event of it is taken
unwatched  watch, actor                             when it has no more events
made       ref, value                               when a Ref has its value
reading    read, ref                                before the value is asked for
read       read, ref, how, value, error             when that has ended
closing                                             before the session's end
fault      kind, target, pid, until                 before a fault is injected
left       text                                     for each thing left behind
=========  =======================================  ====================================

And of learner groups (tests/chaos/agreements.py reads them), all with `group`:

==========  ======================================  ====================================
event       facts                                   noted
==========  ======================================  ====================================
joining                                             before a process joins
joined                                              when it is in
left-group                                          before it leaves
gave-up     error, text                             when an error ends its part
begins      op, kind, token, slot                   before an operation is queued
finished    op, how, got, even, members, epoch,     when its end is known; `got`: the
            error, text, taken_out                  tokens of the result, `even`: in all
                                                    its elements, `members`: those that
                                                    took part, `epoch`: if it was one
view        epoch, members                          after each round
adds        token, at, samples, exact               before a contribution is added
updates     model, version, total, got, least,      before a step of the optimizer;
            most                                    `got`: the sums by their places
step        model, version, digest, received,       after each round of an Accumulator
            stale, healed
==========  ======================================  ====================================
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

_SUFFIX = ".history"


class Event(NamedTuple):
    """Something that a participant did."""

    t: float  # seconds of the machine's monotonic clock
    who: str
    what: str
    facts: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.facts[name]
        except KeyError:
            raise AttributeError(f"{self.what} has no {name!r}: {self}") from None

    def __str__(self) -> str:
        facts = " ".join(f"{name}={value!r}" for name, value in self.facts.items())
        return f"{self.t:.6f} {self.who} {self.what} {facts}"


class History:
    """Appends events to the file of one participant. Any thread may note.

    Args:
      directory: where the files of all participants lie.
      who: the participant's name: it is new in each process.
    """

    def __init__(self, directory: str, who: str) -> None:
        self.who = who
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(os.path.join(directory, who + _SUFFIX), flags, 0o600)

    def note(self, what: str, **facts: Any) -> None:
        """Append one event, with the present time."""
        line = json.dumps([time.monotonic(), what, facts], separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def read(directory: str | Path) -> list[Event]:
    """The events of all participants, in the order of time."""
    events: list[Event] = []
    for path in Path(directory).glob("*" + _SUFFIX):
        events += _of_one(path)
    return sorted(events, key=lambda event: event.t)


def _of_one(path: Path) -> Iterator[Event]:
    who = path.name.removesuffix(_SUFFIX)
    text = path.read_bytes()
    # A line without its end was being written when the process was killed.
    for line in text.split(b"\n")[:-1]:
        t, what, facts = json.loads(line)
        yield Event(t, who, what, facts)


def write(directory: str | Path, events: Iterable[Event]) -> None:
    """As `read` reads them; for a history to be kept or looked at."""
    for event in events:
        line = json.dumps([event.t, event.what, event.facts])
        with open(Path(directory) / (event.who + _SUFFIX), "a") as file:
            file.write(line + "\n")
