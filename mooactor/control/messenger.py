# SPDX-License-Identifier: MIT
"""Sockets: one ROUTER inbox per process, and a DEALER to each peer.

Requests and replies alike arrive in the inbox, so a process waits on one socket
only. Sending never blocks: libzmq's own thread queues and connects, also to a peer
whose inbox does not exist yet. Bounds are kept above, by counting calls.

Threads: `receive` and `wait` belong to whichever thread holds the pump's lock;
`send` and `flush` may be called from any thread, each peer has a lock of its own.
"""

from __future__ import annotations

import os
import threading
from typing import Any, NamedTuple

import zmq
from zmq.backend import zmq_poll

from mooactor.control.envelope import KEY_BYTES, prefix

_POLLIN = int(zmq.POLLIN)
_NOBLOCK = int(zmq.NOBLOCK)
_FLUSH_RECORDS = 64
_FLUSH_BYTES = 1 << 16
_RECONNECT_MS = 1
_RECONNECT_MAX_MS = 64


# The methods behind pyzmq's friendly ones, which check on every message what is the
# same on all of ours.
_send = zmq.backend.Socket.send
_recv = zmq.backend.Socket.recv


class Ready(NamedTuple):
    """What `Messenger.wait` found readable."""

    inbox: bool
    other: bool


_INBOX, _OTHER, _NOTHING = Ready(True, False), Ready(False, True), Ready(False, False)


class Peer:
    """The sending side towards one process, with the records not yet sent."""

    __slots__ = ("process_id", "_socket", "_lock", "_pending", "_bytes", "_prefix")

    def __init__(self, process_id: int, socket: zmq.Socket[bytes], head: bytes) -> None:
        self.process_id = process_id
        self._socket = socket
        self._lock = threading.Lock()
        self._prefix = head
        self._pending: list[bytes] = [head]
        self._bytes = 0

    def send(self, record: bytes) -> None:
        """Send `record` now, behind those that wait already."""
        with self._lock:
            if len(self._pending) > 1:
                self._pending.append(record)
                self._flush()
            elif not self._socket.closed:
                _send(self._socket, self._prefix + record, _NOBLOCK)

    def queue(self, record: bytes) -> bool:
        """Keep `record` for the next flush; True if something now waits for it."""
        with self._lock:
            self._pending.append(record)
            self._bytes += len(record)
            if len(self._pending) > _FLUSH_RECORDS or self._bytes > _FLUSH_BYTES:
                self._flush()
                return False
            return True

    def flush(self) -> None:
        """Send what waits, in one message."""
        if len(self._pending) > 1:
            with self._lock:
                self._flush()

    def _flush(self) -> None:
        # Lock held. A closed socket means a dead peer: its calls fail elsewhere.
        pending = self._pending
        if len(pending) == 1:
            return
        message = b"".join(pending)
        self._pending = [self._prefix]
        self._bytes = 0
        if not self._socket.closed:
            _send(self._socket, message, _NOBLOCK)

    def close(self, linger_ms: int) -> None:
        with self._lock:
            self._socket.close(linger=linger_ms)


class Messenger:
    """All ZeroMQ of one process. ``directory`` is private to this session."""

    def __init__(self, directory: str, process_id: int, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a session key has {KEY_BYTES} bytes, not {len(key)}")
        self.process_id = process_id
        self._directory = directory
        self._prefix = prefix(key, process_id)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(1)
        self._context.set(zmq.MAX_SOCKETS, 16384)
        self._inbox = self._context.socket(zmq.ROUTER)
        self._inbox.setsockopt(zmq.RCVHWM, 0)
        self._inbox.setsockopt(zmq.LINGER, 0)
        self._inbox.bind(self._address(process_id))
        self._inbox_only = [(self._inbox, _POLLIN)]
        self.inbox_fd = int(self._inbox.getsockopt(zmq.FD))
        self._peers: dict[int, Peer] = {}
        self._gone: set[int] = set()  # ids are not used twice
        self._lock = threading.Lock()

    def _address(self, process_id: int) -> str:
        return f"ipc://{self._directory}/{process_id:016x}"

    def peer(self, process_id: int) -> Peer:
        """The way to a process, connected on first use."""
        peer = self._peers.get(process_id)
        return peer if peer is not None else self._connect(process_id)

    def _connect(self, process_id: int) -> Peer:
        with self._lock:
            if process_id in self._gone:
                return self._nowhere(process_id)
            if process_id not in self._peers:
                socket = self._context.socket(zmq.DEALER)
                socket.setsockopt(zmq.SNDHWM, 0)
                socket.setsockopt(zmq.LINGER, 0)
                socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
                socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)
                socket.connect(self._address(process_id))
                self._peers[process_id] = Peer(process_id, socket, self._prefix)
            return self._peers[process_id]

    def _nowhere(self, process_id: int) -> Peer:
        """What is sent to who is gone is dropped; a socket would wait for ever."""
        socket = self._context.socket(zmq.DEALER)
        socket.close(linger=0)
        return Peer(process_id, socket, self._prefix)

    def known(self) -> list[int]:
        """The processes to which there is a way."""
        with self._lock:
            return list(self._peers)

    def forget(self, process_id: int) -> None:
        """Drop the connection to a process that is gone, now and for ever."""
        with self._lock:
            self._gone.add(process_id)
            peer = self._peers.pop(process_id, None)
        if peer is not None:
            peer.close(linger_ms=0)

    def receive(self) -> bytes | None:
        """The next message, without blocking."""
        # Asking first is three times cheaper than the exception of a vain recv.
        return self.take() if zmq_poll(self._inbox_only, 0) else None

    def take(self) -> bytes | None:
        """The next message, without asking first whether there is one.

        The socket may say that it is readable and then have nothing: when a peer
        was killed while its message was on the way.
        """
        try:
            # The connection's identity; who sent is in the envelope.
            _recv(self._inbox, zmq.NOBLOCK)
        except zmq.Again:
            return None
        message: bytes = _recv(self._inbox)
        return message

    def resynchronize(self) -> None:
        """After a malformed message: drop its further frames, if it had any.

        Whoever holds the key sends two frames a message, so only then is it needed.
        """
        while self._inbox.getsockopt(zmq.RCVMORE):
            self._inbox.recv()

    def watch(self, *descriptors: int) -> list[Any]:
        """What `wait` takes: the inbox and some descriptors."""
        return [*self._inbox_only, *((fd, _POLLIN) for fd in descriptors)]

    def wait(self, watched: list[Any], timeout_ms: int) -> Ready:
        """Sleep until the inbox or a descriptor is readable; -1 waits for ever."""
        ready = zmq_poll(watched, timeout_ms)
        if len(ready) == 1:
            return _INBOX if ready[0][0] is self._inbox else _OTHER
        if not ready:
            return _NOTHING
        return Ready(any(source is self._inbox for source, _ in ready), True)

    def close(self, linger_ms: int = 500) -> None:
        """Send what is queued, for at most `linger_ms`, and free everything."""
        with self._lock:
            peers, self._peers = list(self._peers.values()), {}
        for peer in peers:
            peer.flush()
            peer.close(linger_ms)
        self._inbox.close(linger=0)
        self._context.term()
        try:
            os.unlink(f"{self._directory}/{self.process_id:016x}")
        except FileNotFoundError:
            pass  # libzmq usually removes it itself
