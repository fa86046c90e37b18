# SPDX-License-Identifier: MIT
"""The reliability of a channel, without sockets: messages become numbered pieces, and
pieces become messages again, each once and in order.

A message is its length (4 bytes) and its bytes. All messages of one direction form one
stream of bytes, which is cut into pieces of at most `PIECE_BYTES`: many small messages
share a piece, a large one takes many. At most `WINDOW` pieces are under way; the
receiver acknowledges by telling how many it has taken in all (cumulative
acknowledgement, as in TCP, RFC 9293). A piece is taken once the messages that it has
completed were fetched to be handled, so a receiver that is slow slows the sender down.

A connection delivers a prefix of its pieces in order, and may break at any time. Each
new connection begins with both sides telling how many pieces they have taken; the
sender goes on from there (go-back-n). So one connection never has a gap, and a piece
that comes again is dropped by its number.

Invariants:

* A piece is kept until it is acknowledged.
* The bytes that wait behind the window are bounded: `MAX_QUEUED`, and beside these one
  message. So none is refused while at most `MAX_QUEUED` bytes wait. Messages that are
  *patient* do not count: their sender has a bound of its own.
* A message in parts is sent from these; it is never put together.
* A receiver keeps the messages of at most `WINDOW` pieces, and one that is incomplete;
  what it allocates has arrived.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator

from mooactor.control.messages import Data as Data

PIECE_BYTES = 1 << 16
WINDOW = 32  # pieces
MAX_QUEUED = 1 << 26  # bytes
MAX_MESSAGE = 1 << 30  # bytes
_LENGTH = struct.Struct("<I")


class Violation(Exception):
    """The other side does not keep to the protocol."""


class Overflow(Exception):
    """Too many bytes wait for the other side."""


class Outflow:
    """The sending half of one side."""

    def __init__(self) -> None:
        self._queue: deque[memoryview] = deque()  # bytes that no piece has yet
        self.posted = 0  # bytes, of all messages with their lengths
        self._cut = 0  # of these, bytes that are in pieces
        # Where in the stream the message that waits beside the others begins and ends.
        self._beside = 0, 0
        self._patient: deque[tuple[int, int]] = deque()  # likewise, of each
        self._patient_bytes = 0  # of these
        self._window: deque[Data] = deque()  # pieces that are not acknowledged
        self._acknowledged = 0  # pieces
        self._next = 0  # the piece to be sent next over this connection

    @property
    def queued(self) -> int:
        """Bytes that wait behind the window."""
        return self.posted - self._cut

    @property
    def taken(self) -> int:
        """Bytes of what was posted that the other side has told to have taken."""
        return self._cut - sum(map(len, self._window))

    @property
    def all_sent(self) -> bool:
        """Whether this connection has got all that was posted."""
        return not self._queue and self._next == self._end

    @property
    def all_taken(self) -> bool:
        """Whether the other side has told that it has all that was posted."""
        return not self._queue and not self._window

    @property
    def _end(self) -> int:
        return self._acknowledged + len(self._window)

    def post(self, *parts: Data, patient: bool = False) -> None:
        """Queue a message, in one part or in several. Large parts are not copied: they
        must not change.

        Raises:
          Overflow: too much waits already, and it is not patient; nothing was queued.
          ValueError: it is larger than `MAX_MESSAGE`.
        """
        size = sum(map(len, parts))
        if size > MAX_MESSAGE:
            raise ValueError(f"a message of {size} bytes; {MAX_MESSAGE} fit")
        if patient:
            self._patient.append((self.posted, self.posted + _LENGTH.size + size))
            self._patient_bytes += _LENGTH.size + size
        else:
            self._check_room(_LENGTH.size + size)
        head = _LENGTH.pack(size)
        if size <= PIECE_BYTES:
            self._queue.append(memoryview(b"".join((head, *parts))))
        else:
            self._queue += map(memoryview, (head, *filter(len, parts)))
        self.posted += _LENGTH.size + size

    def _check_room(self, size: int) -> None:
        begin, end = self._beside
        beside = max(0, end - max(begin, self._cut))  # bytes of it that wait
        counted = self.queued - self._patient_waiting()
        if counted - beside + size <= MAX_QUEUED:
            return
        if counted > MAX_QUEUED:
            raise Overflow(f"{counted} bytes wait to be read")
        self._beside = self.posted, self.posted + size

    def _patient_waiting(self) -> int:
        while self._patient and self._patient[0][1] <= self._cut:
            begin, end = self._patient.popleft()
            self._patient_bytes -= end - begin
        sent = max(0, self._cut - self._patient[0][0]) if self._patient else 0
        return self._patient_bytes - sent

    def pieces(self) -> Iterator[tuple[int, Data]]:
        """The pieces to be sent now, with their numbers: as many as the window allows,
        each once over this connection."""
        while self._next < self._end or self._refill():
            number = self._next
            self._next += 1
            yield number, self._window[number - self._acknowledged]

    def _refill(self) -> bool:
        if not self._queue or len(self._window) >= WINDOW:
            return False
        self._window.append(self._cut_one())
        return True

    def _cut_one(self) -> Data:
        parts: list[memoryview] = []
        room = PIECE_BYTES
        while self._queue and room:
            first = self._queue[0]
            parts.append(first[:room])
            if len(first) <= room:
                self._queue.popleft()
            else:
                self._queue[0] = first[room:]
            room -= len(parts[-1])
        self._cut += PIECE_BYTES - room
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def acknowledge(self, taken: int) -> None:
        """The other side has taken so many pieces in all. An old count says nothing.

        Raises:
          Violation: so many were never sent.
        """
        if taken > self._end:
            raise Violation(f"it acknowledged {taken} pieces of {self._end}")
        while self._acknowledged < taken:
            self._window.popleft()
            self._acknowledged += 1
        self._next = max(self._next, self._acknowledged)

    def resume(self, taken: int) -> None:
        """A new connection has begun, and the other side has taken so many pieces.

        Raises:
          Violation: it acknowledged more before, or so many were never sent.
        """
        if taken < self._acknowledged:
            raise Violation(f"it took {taken} pieces and acknowledged more before")
        self.acknowledge(taken)
        self._next = self._acknowledged


class Inflow:
    """The receiving half of one side."""

    def __init__(self, most: int = MAX_MESSAGE) -> None:
        """`most`: bytes of a message."""
        self._most = most
        self._arrived = 0  # pieces
        self._incoming = bytearray()
        # Messages, each with the number of the piece that has completed it.
        self._waiting: deque[tuple[int, bytes]] = deque()

    def __len__(self) -> int:
        """Messages that wait to be fetched."""
        return len(self._waiting)

    @property
    def taken(self) -> int:
        """Pieces of which no message waits."""
        return self._waiting[0][0] if self._waiting else self._arrived

    def arrive(self, number: int, data: bytes) -> None:
        """A piece has come.

        Raises:
          Violation: a piece before it is missing, or its bytes are invalid, or it was
            sent too early.
        """
        if number < self._arrived:
            return  # it came before, over an earlier connection
        if number > self._arrived:
            raise Violation(f"piece {number} came where {self._arrived} was due")
        if number - self.taken >= WINDOW:
            raise Violation(f"piece {number} came when {self.taken} were taken")
        if not 0 < len(data) <= PIECE_BYTES:
            raise Violation(f"a piece of {len(data)} bytes came")
        self._arrived += 1
        self._incoming += data
        for message in self._messages():
            self._waiting.append((number, message))

    def fetch(self) -> bytes:
        """The next message."""
        return self._waiting.popleft()[1]

    def _messages(self) -> Iterator[bytes]:
        at = 0
        while len(self._incoming) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._incoming, at)
            if size > self._most:
                raise Violation(
                    f"it announced a message of {size} bytes; {self._most} are taken"
                )
            start = at + _LENGTH.size
            if len(self._incoming) - start < size:
                break
            with memoryview(self._incoming) as view:
                message = bytes(view[start : start + size])
            yield message
            at = start + size
        del self._incoming[:at]
