# SPDX-License-Identifier: MIT
"""The line between a process and its host's agent: framed messages on an inherited
socket pair. Its end is the other side's death.

Nobody else can reach it (it has no name), so frames are plain pickles of dicts. A
frame is its length (4 bytes) and the pickle; descriptors ride on the first byte.
"""

from __future__ import annotations

import array
import os
import pickle
import select
import socket
import threading
from typing import Any

_MAX_FRAME = 1 << 30
Message = dict[str, Any]


class LifelineClosed(Exception):
    """The other side is gone."""


class Lifeline:
    """One end. `send` from any thread; `receive_nowait` from one at a time."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._lock = threading.Lock()
        self._incoming = bytearray()
        self._fds: list[int] = []
        self._outgoing = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Send a message, waiting for room if need be.

        Raises:
          LifelineClosed: the other side is gone.
        """
        with self._lock:
            self._outgoing += _frame(message)
            while self.flush():
                self._wait_for_room()

    def post(self, message: Message, fd: int | None = None) -> bool:
        """Send as far as there is room and keep the rest; True if some is kept.

        For the agent, which must never block on a process that does not read. `fd`
        is duplicated into the receiver.
        """
        self._outgoing += _frame(message)
        if fd is not None:
            self._pass_descriptor(fd)
        return self.flush()

    def _pass_descriptor(self, fd: int) -> None:
        # It rides on one byte, so what waits before that byte must be out first.
        head = bytes(self._outgoing[:1])
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))
        try:
            while True:
                try:
                    self._socket.sendmsg([head], [rights])
                    break
                except BlockingIOError:
                    self._wait_for_room()
        except OSError as error:
            raise LifelineClosed from error
        del self._outgoing[:1]

    def _wait_for_room(self) -> None:
        poller = select.poll()
        poller.register(self._socket, select.POLLOUT)
        poller.poll(5000)

    def flush(self) -> bool:
        """Send what `post` kept; True if some is still kept."""
        try:
            while self._outgoing:
                sent = self._socket.send(self._outgoing)
                del self._outgoing[:sent]
        except BlockingIOError:
            return True
        except OSError as error:
            raise LifelineClosed from error
        return False

    def receive_nowait(self) -> list[tuple[Message, int | None]]:
        """All whole messages that are there, each with its descriptor or None.

        Raises:
          LifelineClosed: the other side is gone and all it sent was returned.
        """
        closed = self._fill()
        messages = []
        while len(self._incoming) >= 4:
            size = int.from_bytes(self._incoming[:4], "little")
            if size > _MAX_FRAME:
                raise LifelineClosed("a frame of impossible size")
            if len(self._incoming) < 4 + size:
                break
            message = pickle.loads(self._incoming[4 : 4 + size])
            del self._incoming[: 4 + size]
            fd = self._fds.pop(0) if message.get("fd") else None
            messages.append((message, fd))
        if closed and not messages:
            raise LifelineClosed
        return messages

    def _fill(self) -> bool:
        """Read what is there; True at the end of the line."""
        while True:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(
                    1 << 16, socket.CMSG_SPACE(64)
                )
            except BlockingIOError:
                return False
            except OSError:
                return True
            for level, kind, payload in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds = array.array("i")
                    fds.frombytes(payload[: len(payload) // 4 * 4])
                    self._fds += fds
            if not data:
                return True
            self._incoming += data

    def close(self) -> None:
        self._socket.close()
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()


def _frame(message: Message) -> bytes:
    body = pickle.dumps(message, 5)
    return len(body).to_bytes(4, "little") + body
