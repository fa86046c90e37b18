# SPDX-License-Identifier: MIT
"""Records out: sent now, with the next flush, or when no lock can be held any more.

`Sender` knows the records that wait for company in the outboxes of `messenger`, and
those that finalizers have left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from mooactor.control import envelope
from mooactor.control.links import Links
from mooactor.control.messenger import Messenger, Peer


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
        self.afterwards: deque[Callable[[], object]] = deque()  # left by finalizers
        self.ended = False  # the session is over here: records are not needed

    def queue_record(self, peer: Peer, record: bytes) -> None:
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
        unsent: list[Any] | None = None,
    ) -> bool:
        """Send one control record now, behind those queued for that process. False: it
        is known to be dead, and none was sent. Empties `unsent` right before."""
        if self._links.is_gone(process_id):
            return False
        record = envelope.pack_record(kind, number, payload, flags)
        peer = self._messenger.peer(process_id)
        if unsent:
            unsent.clear()
        peer.send(record)
        return True

    def queue(
        self,
        process_id: int,
        kind: int,
        number: int,
        payload: bytes = b"",
        flags: int = 0,
        unsent: list[Any] | None = None,
    ) -> bool:
        """As `post`, with the next record for that process or with the next flush."""
        if self._links.is_gone(process_id):
            return False
        record = envelope.pack_record(kind, number, payload, flags)
        peer = self._messenger.peer(process_id)
        if unsent:
            unsent.clear()
        self.queue_record(peer, record)
        self._arm()
        return True

    def post_later(
        self, process_id: int, kind: int, number: int, payload: bytes = b""
    ) -> None:
        """Post with the next flush. For finalizers; it may be sent twice."""
        self.later(partial(self.post, process_id, kind, number, payload))

    def later(self, action: Callable[[], object]) -> None:
        """Do something with the next flush, perhaps twice. For finalizers, which must
        take no lock."""
        self.afterwards.append(action)
        self._arm()

    def flush(self) -> None:
        """Send every record that waits for company."""
        self.dirty.clear()  # a hint; the messenger knows the waiting records
        self._messenger.flush()
        self.do_what_is_due()

    def do_what_is_due(self) -> None:
        """Do what finalizers have left behind."""
        afterwards = self.afterwards
        while afterwards:
            try:
                due = afterwards[0]
            except IndexError:
                return  # another thread was quicker
            due()
            if afterwards and afterwards[0] is due:  # with no call in between
                del afterwards[0]
