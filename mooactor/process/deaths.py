# SPDX-License-Identifier: MIT
"""Deaths of actors: this process ends the calls to them, and forgets them.

Methods run in the housekeeper's thread. Invariants:

* Messages that an actor sent before it died are acted on before its calls fail: each
  death has a moment of grace. An actor that was stopped, and ended by itself, has
  answered all calls that it began, so their answers are waited for longer: on a busy
  machine libzmq's own thread may bring them later than the news of the end. The last
  record of such an actor is a GOAWAY (after that of HTTP/2, RFC 9113, section 6.8).
  It ends the wait: no answer comes behind it. If it was lost, the wait ends when the
  connection to the actor has been down for a while.
* Many actors that die together have their graces together, and all of their calls end
  before anything is tidied up after one of them. So the last death is known soon after
  the first.

The calls that an actor has started are known to its callers also after its death. The
actor maps one page of a file in the session's directory, with a slot for each caller:
the highest number of a call of that caller that had its turn. The number is written
before the method runs, and the kernel keeps the page after every end of the process.
Numbers of one caller rise in the order sent. So a caller on the same host knows of each
call that was not answered:

* A call with a higher number than the slot's has not run: ``delivered=False``.
* Any other had its turn, or was overtaken by one that had (calls of several priorities
  may be). How far it came is unknown: None.

A caller that finds no page (it is on another host, or too late) knows nothing: None.
But an actor that ends by itself tells its callers the same number.
"""

from __future__ import annotations

import math
import mmap
import os
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from mooactor.control.complaints import complain
from mooactor.control.envelope import Record
from mooactor.control.links import Link
from mooactor.errors import Cause
from mooactor.process.exits import cause_of
from mooactor.process.protocol import Died
from mooactor.tensors.failures import NO_ROOM, no_room_in

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime


_ASKED_FOR_S = 60.0  # after a death
_PAGE_BYTES = 4096
_WORDS = _PAGE_BYTES // 8
_FULL = 0  # this word is 1 if some caller has no slot
_UNREAD = 1
_FIRST = 2
_CALLER, _LATEST, _SLOT_WORDS = range(3)


def _path(directory: str, process_id: int) -> str:
    return f"{directory}/{process_id:016x}.started"


class StartedCalls:
    """The page of this process's actor; see the module."""

    def __init__(self, directory: str, process_id: int) -> None:
        # By caller: the word of its number, and that number. Reading a list is quicker
        # than reading the page.
        self._slots: dict[int, list[int]] = {}
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(_path(directory, process_id), flags, 0o600)
        try:
            # Room now, or an error now: a store without room would kill the process.
            os.posix_fallocate(fd, 0, _PAGE_BYTES)
            page = mmap.mmap(fd, _PAGE_BYTES)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise no_room_in(directory, error.errno) from None
            raise
        finally:
            os.close(fd)
        self._words = memoryview(page).cast("Q")

    def note(self, caller: int, call_id: int) -> None:
        """A call has its turn: its method runs next. In one thread at a time."""
        slot = self._slots.get(caller)
        if slot is None:
            slot = self._new_slot(caller)
        if call_id > slot[1]:
            slot[1] = call_id
            self._words[slot[0]] = call_id

    def latest_of(self, caller: int) -> int:
        """The highest number of a call of that caller that had its turn; 0: none."""
        slot = self._slots.get(caller)
        return 0 if slot is None else slot[1]

    def _new_slot(self, caller: int) -> list[int]:
        """The slot of a new caller; if there is none left, a word that nobody reads."""
        word = _FIRST + _SLOT_WORDS * len(self._slots)
        if word + _SLOT_WORDS > _WORDS:
            self._words[_FULL] = 1
            slot = [_UNREAD, 0]
        else:
            self._words[word + _CALLER] = caller
            slot = [word + _LATEST, 0]
        self._slots[caller] = slot
        return slot


class Turns(NamedTuple):
    """The word of a dead actor, or of its page, on the calls of one caller."""

    known: bool
    latest: int = 0
    final: bool = False  # the actor's own: it came behind all of its answers

    def delivered(self, call_id: int) -> bool | None:
        """Of a call that was not answered: False if it certainly did not run."""
        return False if self.known and call_id > self.latest else None


UNKNOWN = Turns(False)


def read_turns(directory: str, process_id: int, caller: int) -> Turns:
    """The word of a dead process's page on the calls of `caller`."""
    try:
        with open(_path(directory, process_id), "rb") as file:
            words = memoryview(file.read(_PAGE_BYTES)).cast("Q")
    except OSError:
        return UNKNOWN
    if len(words) != _WORDS:
        return UNKNOWN
    for slot in range(_FIRST, _WORDS - _SLOT_WORDS + 1, _SLOT_WORDS):
        if words[slot + _CALLER] == caller:
            return Turns(True, words[slot + _LATEST])
    return Turns(not words[_FULL])


def bury(directory: str, process_id: int) -> None:
    """For the agent: this process is dead. Callers may still ask for its page, so that
    goes with the first death that comes a while later."""
    now = time.monotonic()
    _buried.append((now, _path(directory, process_id)))
    while _buried and _buried[0][0] < now - _ASKED_FOR_S:
        try:
            os.unlink(_buried.popleft()[1])
        except FileNotFoundError:
            pass  # it died before it had one


_buried: deque[tuple[float, str]] = deque()


_GRACE_S = 0.008
_ANSWERS_S = 30.0  # from the notice on: for answers that were sent before a stop
_CUT_OFF_S = 1.0  # as long, once the connection to the actor is known to be down


class Death(NamedTuple):
    """The end of one process of an actor's."""

    due: float  # when its grace is over
    latest: float  # when it ends even if answers are missing
    silent: float  # from when on no more answers come, only data of those that came
    link: Link
    incarnation: int
    following: int | None  # the incarnation that comes next; None: it is gone for good
    cause: Cause

    @property
    def process_id(self) -> int:
        return self.link.actor_id + self.incarnation


class Deaths:
    """Those of which the agent has told this process."""

    def __init__(self, parts: Runtime) -> None:
        self._parts = parts
        self._now = parts.housekeeper.clock.now
        self._waiting: deque[Death] = deque()  # for the end of their graces
        self._last_words: dict[int, Turns] = {}  # by process; kept while it is known

    def on_notice(self, message: Died) -> None:
        """The agent says that an actor's process is gone."""
        incarnation = message.incarnation
        link = self._parts.links.link(message.id, incarnation, "an actor", watch=False)
        if link.cause is not None or incarnation < link.incarnation:
            return
        cause, following = cause_of(message.record), message.following
        if following is None:
            self._parts.links.end(link, cause)
        due = self._now() + _GRACE_S
        has_answered = cause.kind in ("stopped", "owner") and cause.exitcode == 0
        latest = due + (_ANSWERS_S if has_answered else 0.0)
        death = Death(due, latest, math.inf, link, incarnation, following, cause)
        self._waiting.append(death)
        self._parts.housekeeper.at(due, self._conclude)

    def on_goaway(self, record: Record) -> None:
        """An actor ends, and has answered what it began. In the poller's thread."""
        process_id = record.sender
        self._last_words[process_id] = Turns(True, record.call_id, final=True)
        # After we kept it: see `_conclude`.
        if self._parts.messenger.is_gone(process_id):
            self._last_words.pop(process_id, None)

    def _conclude(self) -> None:
        """The grace of one is over: conclude all whose grace is over."""
        now, over = self._now(), []
        while self._waiting and self._waiting[0].due <= now:
            over.append(self._waiting.popleft())
        if not over:
            return
        self._parts.poller.try_drain()
        known = [(death, self._turns_of(death)) for death in over]
        for death, turns in known:
            if now < death.latest and self._awaits_answer(death, turns, now):
                over.remove(death)
                self._look_again(death)
            else:
                self._end_calls(death, turns)
        self._parts.poller.wake()
        for death in over:
            try:
                self._parts.tidy_up(death)
            except Exception as error:  # the others have theirs all the same
                complain("mooactor: a death was not tidied up after:", error)
            self._last_words.pop(death.process_id, None)
        self._parts.poller.wake()

    def _awaits_answer(self, death: Death, turns: Turns, now: float) -> bool:
        if now >= death.silent:
            turns = turns._replace(final=True)
        reached = self._parts.messenger.was_reached(death.process_id)
        return reached and self._parts.caller.losses.awaits_answer(death.link, turns)

    def _look_again(self, death: Death) -> None:
        due, silent = self._now() + _GRACE_S, death.silent
        if self._parts.messenger.was_cut_off(death.process_id):
            silent = min(silent, due + _CUT_OFF_S)  # from the first such look on
        self._waiting.append(death._replace(due=due, silent=silent))
        self._parts.housekeeper.at(due, self._conclude)

    def _turns_of(self, death: Death) -> Turns:
        process_id = death.process_id
        last_words = self._last_words.get(process_id)
        if last_words is not None:
            return last_words
        return read_turns(
            self._parts.directory, process_id, self._parts.links.process_id
        )

    def _end_calls(self, death: Death, turns: Turns) -> None:
        link, losses = death.link, self._parts.caller.losses
        if death.following is None:
            with link.sending_again():  # none are; but a call that is sent now waits
                link.over = True
                losses.fail_all(link, turns)
        elif death.incarnation >= link.incarnation:
            with link.sending_again():
                self._parts.links.follow(link, death.following, death.cause)
                losses.retry_or_fail(link, death.cause, turns)
