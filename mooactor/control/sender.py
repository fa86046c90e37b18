# SPDX-License-Identifier: MIT
"""Records out: sent now, with the next flush, or when no lock can be held any more.

`Sender` knows the records that wait for company in the outboxes of `messenger`, and
those that finalizers have left.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from operator import call
from typing import Any

from mooactor.control import envelope
from mooactor.control.links import Links
from mooactor.control.messenger import Messenger, Peer, sent


class Sender:
    """One per process. Threads: any."""

    def __init__(
        self, messenger: Messenger, links: Links, arm: Callable[[], None]
    ) -> None:
        """`arm`: have `flush` called soon, even if no thread waits."""
        self._messenger = messenger
        self._links = links
        self._arm = arm
        self.dirty: set[Peer] = set()  # with records that wait for company
        # Records that finalizers have left: process, kind, number and payload.
        self.afterwards: deque[tuple[int, int, int, bytes]] = deque()
        # Entered again by a signal handler that posts.
        self._posting = threading.RLock()
        self.ended = False  # the session is over here: records are not needed

    def queue(self, peer: Peer, record: bytes) -> None:
        """Send a record with the next flush, or at once if enough has gathered."""
        if peer.queue(record):
            self.dirty.add(peer)

    def post(
        self,
        process_id: int,
        kind: int,
        number: int,
        payload: bytes = b"",
        flags: int = 0,
    ) -> None:
        """Send one control record now, behind those queued for that process; none to a
        process that is known to be dead."""
        if self._links.is_gone(process_id):
            return
        record = envelope.pack_record(kind, number, payload, flags)
        self._messenger.peer(process_id).send(record)

    def post_beside(
        self, process_id: int, kind: int, number: int, payload: bytes
    ) -> None:
        """As `post`, with the next record for that process or with the next flush."""
        if not self._links.is_gone(process_id):
            record = envelope.pack_record(kind, number, payload)
            self.queue(self._messenger.peer(process_id), record)
            self._arm()

    def post_once(
        self,
        process_id: int,
        kind: int,
        number: int,
        payload: bytes,
        flags: int,
        unsent: list[Any],
    ) -> None:
        """As `post`; empties `unsent` in the same step, if it sends it."""
        if self._links.is_gone(process_id):
            return
        record = envelope.pack_record(kind, number, payload, flags)
        send = self._messenger.peer(process_id).sending(record)
        del unsent[:]  # with no call in between
        sent(send(), record)

    def queue_once(
        self,
        process_id: int,
        kind: int,
        number: int,
        payload: bytes,
        flags: int,
        unsent: list[Any],
    ) -> None:
        """As `post_once`, with the next record for that process or with the next
        flush."""
        if self._links.is_gone(process_id):
            return
        record = envelope.pack_record(kind, number, payload, flags)
        peer = self._messenger.peer(process_id)
        queue = peer.queueing(record)
        del unsent[:]  # with no call in between
        if peer.waits_after(queue(), record):
            self.dirty.add(peer)
            self._arm()

    def post_later(
        self, process_id: int, kind: int, number: int, payload: bytes = b""
    ) -> None:
        """Post with the next flush. For finalizers, which must take no lock."""
        self.afterwards.append((process_id, kind, number, payload))
        self._arm()

    def flush(self) -> None:
        """Send every record that waits for company."""
        self.dirty.clear()  # a hint; the messenger knows the waiting records
        self._messenger.flush()
        self.post_what_is_due()

    def post_what_is_due(self) -> None:
        """Post the records that finalizers have left behind."""
        afterwards = self.afterwards
        while afterwards:
            with self._posting:
                if not afterwards:
                    return  # another thread was quicker
                due = afterwards[0]
                steps: list[Callable[[], object]] = [afterwards.popleft]
                if not self._links.is_gone(due[0]):
                    record = envelope.pack_record(*due[1:])
                    steps.append(self._messenger.peer(due[0]).sending(record))
                at_once = map(call, steps)
                if afterwards and afterwards[0] is due:
                    # One call, which no signal handler cuts in two: a record that is
                    # lost keeps a value for ever, one sent twice frees it too early.
                    deque(at_once, 0)

    def post_all_that_is_due(self) -> None:
        """The same; returns when other threads have posted theirs, too."""
        self.post_what_is_due()
        with self._posting:
            pass
