# SPDX-License-Identifier: MIT
"""The line between a process and its host's agent: framed messages on an inherited
socket pair. Its end is the other side's death.

A frame is the length of its body (4 bytes), the number of descriptors that come with
it (1 byte), and the body: a message as `control.messages` encodes it. The descriptors
ride on the frame's first byte.

Invariants:

* Bodies are handed on as they came: whoever receives them has the `Decoder` of what may
  come, and a body that is malformed costs that one frame. An invalid head ends the
  line, because the start of the next frame is unknown.
* Every descriptor that arrives is returned with its frame or closed. A frame whose
  descriptors the kernel could not install (the receiver has no number left for them)
  comes without any.
* The bytes kept for a receiver that does not read are bounded; past that the line ends.
"""

from __future__ import annotations

import array
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Sequence

from mooactor.control.messages import Message, Unsendable, encode

MAX_FRAME = 1 << 24
MAX_DESCRIPTORS = 8
_MAX_KEPT = 1 << 26
_READS_AT_A_TIME = 64  # of 64 KiB: one sender must not hold up others
_SENT_TOGETHER = 1 << 16  # bytes, about
_HEAD = struct.Struct("<IB")

Received = tuple[bytes, list[int]]


class LifelineClosed(Exception):
    """The other side is gone."""


class Lifeline:
    """One end. `send` from any thread; `receive_nowait` from one at a time."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._lock = threading.Lock()
        self._incoming = bytearray()
        self._arrived: deque[list[int]] = deque()  # descriptors, one list per frame
        # Bytes to be sent; descriptors go with the first byte of their piece.
        self._outgoing: deque[tuple[bytearray, list[int]]] = deque()
        self._kept = 0
        self._broken = False  # the received bytes were invalid

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def kept(self) -> int:
        """Bytes that wait for the other side to read."""
        return self._kept

    # -- sending -----------------------------------------------------------

    def send(self, message: Message | bytes, fds: Sequence[int] = ()) -> None:
        """Send a message, waiting for room if need be. The receiver gets duplicates
        of `fds`.

        Raises:
          LifelineClosed: the other side is gone.
          Unsendable: see `control.messages`, or the message is too large.
        """
        frame = _frame(message, fds)
        with self._lock:
            self._keep(frame, fds)
            while self.flush():
                self._wait_for_room()

    def post(
        self, message: Message | bytes, fds: Sequence[int] = (), *, hold: bool = False
    ) -> bool:
        """Send as far as there is room and keep the rest; True if some is kept. With
        `hold` it waits for the next post, or `flush`, and leaves together with that.

        For the agent, which must never block on a process that does not read.

        Raises:
          LifelineClosed: the other side is gone, or has not read for far too long.
        """
        frame = _frame(message, fds)
        if self._kept + len(frame) > _MAX_KEPT:
            raise LifelineClosed("the other side does not read")
        self._keep(frame, fds)
        return True if hold else self.flush()

    def _keep(self, frame: bytearray, fds: Sequence[int]) -> None:
        # Duplicates: the caller may close its own before there is room.
        duplicates: list[int] = []
        try:
            for fd in fds:
                duplicates.append(os.dup(fd))
        except BaseException:
            _close(duplicates)
            raise
        self._kept += len(frame)
        last = self._outgoing[-1][0] if self._outgoing else None
        if last is not None and not duplicates and len(last) < _SENT_TOGETHER:
            last += frame  # one send for both
        else:
            self._outgoing.append((frame, duplicates))

    def drain(self, timeout_s: float) -> None:
        """Send the kept bytes before this end is closed, as far as there is time."""
        end = time.monotonic() + timeout_s
        try:
            while self.flush() and (left := end - time.monotonic()) > 0:
                self._wait_for_room(left)
        except LifelineClosed:
            pass  # nobody is there to miss it

    def _wait_for_room(self, timeout_s: float = 5.0) -> None:
        poller = select.poll()
        poller.register(self._socket, select.POLLOUT)
        poller.poll(timeout_s * 1000)

    def flush(self) -> bool:
        """Send the kept bytes; True if some are left."""
        try:
            while self._outgoing:
                self._send_some(*self._outgoing[0])
        except BlockingIOError:
            return True
        except OSError as error:
            raise LifelineClosed from error
        return False

    def _send_some(self, piece: bytearray, fds: list[int]) -> None:
        if fds:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
            sent = self._socket.sendmsg([piece[:1]], [rights])
            _close(fds)
            fds.clear()
        else:
            sent = self._socket.send(piece)
        del piece[:sent]
        self._kept -= sent
        if not piece:
            self._outgoing.popleft()

    # -- receiving ---------------------------------------------------------

    def receive_nowait(self) -> list[Received]:
        """Whole messages that are there, each with its descriptors, which the caller
        owns from here on.

        Raises:
          LifelineClosed: the other side is gone, or sent invalid bytes, and all earlier
            messages were returned.
        """
        closed = self._broken or self._fill()
        received = []
        while (one := self._next()) is not None:
            received.append(one)
        if len(self._arrived) > 1:  # only a frame under way has some
            self._break()
        if (closed or self._broken) and not received:
            raise LifelineClosed
        return received

    def _next(self) -> Received | None:
        if self._broken or len(self._incoming) < _HEAD.size:
            return None
        size, count = _HEAD.unpack_from(self._incoming)
        if size > MAX_FRAME or count > MAX_DESCRIPTORS:
            self._break()
            return None
        if len(self._incoming) < _HEAD.size + size:
            return None
        body = bytes(self._incoming[_HEAD.size : _HEAD.size + size])
        del self._incoming[: _HEAD.size + size]
        fds = self._arrived.popleft() if count and self._arrived else []
        if len(fds) != count:
            _close(fds)
            fds = []
        return body, fds

    def _break(self) -> None:
        """The received bytes are invalid: end the line."""
        self._broken = True
        self.give_up()

    def give_up(self) -> None:
        """Nothing can be sent any more: a poll finds the bytes that have arrived, and
        then the end."""
        try:
            self._socket.shutdown(socket.SHUT_RD)
        except OSError:
            pass  # it has ended already

    def _fill(self) -> bool:
        """Read what is there; True at the end of the line."""
        for _ in range(_READS_AT_A_TIME):
            try:
                data, ancillary, flags, _ = self._socket.recvmsg(
                    1 << 16, socket.CMSG_SPACE(4 * MAX_DESCRIPTORS)
                )
            except BlockingIOError:
                return False
            except OSError:
                return True
            fds = _descriptors(ancillary)
            if fds or flags & socket.MSG_CTRUNC:
                self._arrived.append(fds)
            if not data:
                return True
            self._incoming += data
        return False

    def close(self) -> None:
        """Close this end, and drop the bytes kept for the other side."""
        self._socket.close()
        for _, fds in self._outgoing:
            _close(fds)
        self._outgoing.clear()
        for fds in self._arrived:
            _close(fds)
        self._arrived.clear()


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload[: len(payload) // 4 * 4])
    return list(fds)


def _frame(message: Message | bytes, fds: Sequence[int]) -> bytearray:
    """`message` may be encoded already."""
    body = message if isinstance(message, bytes) else encode(message)
    if len(body) > MAX_FRAME or len(fds) > MAX_DESCRIPTORS:
        raise Unsendable(
            f"a message of {len(body)} bytes and {len(fds)} descriptors; the agent "
            f"takes {MAX_FRAME} and {MAX_DESCRIPTORS}"
        )
    return bytearray(_HEAD.pack(len(body), len(fds)) + body)


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
