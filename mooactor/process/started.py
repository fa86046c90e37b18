# SPDX-License-Identifier: MIT
"""The calls that an actor has started, known to its callers also after its death.

The actor maps one page of a file in the session's directory, with a slot for each
caller: the highest number of a call of that caller that had its turn. The number is
written before the method runs, and the kernel keeps the page after every end of the
process. Numbers of one caller rise in the order sent. So a caller on the same host
knows of each
call that was not answered:

* A call with a higher number than the slot's has not run: ``delivered=False``.
* Any other had its turn, or was overtaken by one that had (calls of several priorities
  may be). How far it came is unknown: None.

A caller that finds no page (it is on another host, or too late) knows nothing: None.
But an actor that ends by itself tells its callers the same number (see `deaths`).
"""

from __future__ import annotations

import mmap
import os
import time
from collections import deque
from typing import NamedTuple

from mooactor.tensors.failures import NO_ROOM, no_room_in

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
    """The page of this process's actor."""

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
