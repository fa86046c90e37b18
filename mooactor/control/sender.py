# SPDX-License-Identifier: MIT
"""Records out: sent now, with the next flush, or when no lock can be held any more.

`Sender` knows the records that wait for company in the outboxes of `messenger`, and
those that finalizers have left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from mooactor.control import envelope
from mooactor.control.links import Links
from mooactor.control.messenger import Messenger, Peer


class Sender:
    """One per process. Threads: any."""

    def __init__(
        self, messenger: Messenger, links: Links, arm: Callable[[], None]
    ) -> None:
        """`arm`: have `flush` called, and the inbox read, soon, even if no thread
        waits."""
        self._messenger = messenger
        self._links = links
        self.arm = arm
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
        *,
        gather: bool = False,
    ) -> bool:
        """Send one control record, behind those queued for that process: now, or to
        `gather`, with the next one or with the next flush. False: that process is known
        to be dead, and none was sent."""
        if self._links.is_gone(process_id):
            return False
        record = envelope.pack_record(kind, number, payload, flags)
        peer = self._messenger.peer(process_id)
        if gather:
            self.queue_record(peer, record)
            self.arm()
        else:
            peer.send(record)
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
        self.arm()

    def flush(self) -> None:
        """Send every record that waits for company."""
        self.dirty.clear()  # a hint; the messenger knows the waiting records
        self._messenger.flush()
        self.do_what_is_due()

    def do_what_is_due(self) -> None:
        """Do what finalizers have left behind."""
        afterwards = self.afterwards
        while afterwards:
            due = afterwards[0]
            due()
            if afterwards and afterwards[0] is due:  # with no call in between
                del afterwards[0]
