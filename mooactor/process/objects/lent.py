# SPDX-License-Identifier: MIT
"""Memory that was lent to a process of another host, in a record that may be lost.

A lease ends when its receiver gives it back, or dies. A receiver that never got the
record does neither. So the sender notes what it attaches to records for other hosts,
until its receiver has asked for the data. After a break of the connection it sends what
is left, behind all that was sent before (LENT); the receiver names those that have not
come, and never will, and the sender ends their leases, unless data was asked for by
then. A list that is lost in turn is sent again after the next break.

Something that is attached during a break, and whose record is sent only after the list,
is lost, too: its receiver treats it as data whose sender was cut off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from mooactor.control import bodies, envelope
from mooactor.control.links import Links
from mooactor.control.sender import Sender
from mooactor.process.objects.future import Reply
from mooactor.process.objects.living import Living
from mooactor.tensors.plane import DataPlane

_IN_A_RECORD = 1024
_LOOKED_AT = 2  # for each that is noted: so most of those noted are in use


class Lent:
    """That of one process, in a session of several hosts.

    Threads: any, for `note` and `process_lost`; the housekeeper's for
    `connection_broke`, the poller's for the rest.
    """

    def __init__(self, plane: DataPlane, links: Links, sender: Sender) -> None:
        self._plane = plane
        self._links = links
        self._sender = sender
        self._of: dict[int, deque[bytes]] = {}  # by receiver
        self._came: Living[Reply] = Living()

    def __len__(self) -> int:
        return sum(map(len, list(self._of.values())))

    # -- as the sender -----------------------------------------------------

    def note(self, descriptors: Iterable[bytes], receiver: int) -> None:
        """They are about to be sent."""
        if self._links.is_on_this_host(receiver):
            return
        noted = self._of.get(receiver)
        if noted is None:
            noted = self._of.setdefault(receiver, deque())
        for descriptor in descriptors:
            noted.append(descriptor)
            self._look(noted)
        # Looked at after it was noted: a later death has a notice of its own.
        if self._links.is_gone(receiver):
            self._of.pop(receiver, None)

    def _look(self, noted: deque[bytes]) -> None:
        """Drop the oldest ones if they are in use, else look at them again later."""
        for _ in range(_LOOKED_AT):
            try:
                oldest = noted[0]
                if self._plane.is_unclaimed(oldest):
                    noted.rotate(-1)
                else:
                    noted.remove(oldest)
            except (IndexError, ValueError):
                return  # another thread was quicker

    def connection_broke(self, receiver: int, *, stood: bool) -> None:
        """Ours to that process. Not `stood`: it never came up, so nothing was sent."""
        noted = self._of.get(receiver)
        if noted is None:
            return
        left = list(filter(self._plane.is_unclaimed, list(noted)))
        if not stood:
            self._plane.take_back(left)
            return
        for start in range(0, len(left), _IN_A_RECORD):
            body = bodies.pack_attached(left[start : start + _IN_A_RECORD], b"")
            self._sender.post(receiver, envelope.LENT, 0, body)

    def process_lost(self, process_id: int) -> None:
        """It is dead, and its leases have ended."""
        self._of.pop(process_id, None)

    # -- as the receiver ---------------------------------------------------

    def has_come(self, reply: Reply, descriptors: list[bytes], sender: int) -> None:
        """The payload of a record of that process, and what it lent us."""
        if not self._links.is_on_this_host(sender):
            reply.lent = tuple(descriptors)
            self._came.add(reply)

    # -- records -----------------------------------------------------------

    def on_record(self, record: envelope.Record) -> None:
        """A list, or the answer to one."""
        descriptors, _ = bodies.split_attached(record.payload)
        sender = record.sender
        if record.flags & envelope.GONE:
            noted = self._of.get(sender, deque())
            missing = set(descriptors).intersection(list(noted))
            self._plane.take_back(missing)
            return
        here = {lease for reply in self._came.all() for lease in reply.lent}
        lost = [lease for lease in descriptors if lease not in here]
        if lost:
            body = bodies.pack_attached(lost, b"")
            self._sender.post(sender, envelope.LENT, 0, body, envelope.GONE)
