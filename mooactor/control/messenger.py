# SPDX-License-Identifier: MIT
"""Sockets: one ROUTER inbox per process, and a DEALER to each peer.

Requests and replies alike arrive in the inbox, so a process waits on one socket
only. Sending never blocks: libzmq's own thread queues and connects, also to a peer
whose inbox does not exist yet. Bounds are kept above, by counting calls.

pyzmq makes and closes the sockets. Messages move in and out in C (cext/mail),
because a signal handler may run inside pyzmq's `send` and `recv`: an exception of it
would lose the message, and a call of it would find a lock held.
"""

from __future__ import annotations

import math
import os
import threading
from typing import Any

import zmq

from mooactor.control.envelope import KEY_BYTES, prefix
from mooactor.errors import MooError
from mooactor.tensors import extension

MAX_SOCKETS = 16384
# A process that starts has no inbox yet: libzmq tries again and again, waiting twice as
# long each time, up to a limit; messages may wait as long after the inbox is there. But
# a thousand that start together must not be tried more often than _TRIES a second.
_RECONNECT_MS = 1
_RECONNECT_MOST_MS = 8, 64
_TRIES = 4000

ffi = extension.ffi
lib = extension.lib
if lib is not None:
    _send, _queue, _ENOMEM = lib.moo_outbox_send, lib.moo_outbox_queue, lib.MOO_ENOMEM


def longest_retry_ms(peers: int) -> int:
    """The longest wait before a connection is tried again."""
    least, most = _RECONNECT_MOST_MS
    return min(most, max(least, math.ceil(peers * 1000 / _TRIES)))


class Peer:
    """The sending side towards one process, with the records not yet sent."""

    __slots__ = ("process_id", "_socket", "_inbox", "_outbox", "_waits")

    def __init__(
        self, process_id: int, socket: zmq.Socket[bytes], inbox: Any, head: bytes
    ) -> None:
        self.process_id = process_id
        self._socket = socket
        self._inbox = inbox
        out = ffi.new("moo_outbox **")
        handle = 0 if socket.closed else socket.underlying
        _check(lib.moo_outbox_open(inbox, handle, head, len(head), out))
        self._outbox = ffi.gc(out[0], lib.moo_outbox_free)
        self._waits = ffi.new("int *")

    def send(self, record: bytes) -> None:
        """Send `record` now, behind those that wait already."""
        if _send(self._outbox, record, len(record)) == _ENOMEM:
            raise MemoryError(f"no memory for a message of {len(record)} bytes")

    def queue(self, record: bytes) -> bool:
        """Keep `record` for the next flush; True if something now waits for it."""
        waits = self._waits
        if _queue(self._outbox, record, len(record), waits) == _ENOMEM:
            raise MemoryError(f"no memory for a message of {len(record)} bytes")
        return bool(waits[0])

    def flush(self) -> None:
        """Send the waiting records, of this and all other peers."""
        lib.moo_inbox_flush(self._inbox)

    def close(self, linger_ms: int) -> None:
        """Drop later records. Those sent before have `linger_ms` to leave."""
        lib.moo_outbox_close(self._outbox)
        self._socket.close(linger=linger_ms)


class Messenger:
    """All ZeroMQ of one process. ``directory`` is private to this session.

    ``inbox`` is the C side of the ROUTER, for `Poller`.
    """

    def __init__(
        self,
        directory: str,
        process_id: int,
        key: bytes,
        watched: tuple[int, ...] = (),
    ) -> None:
        """`watched`: descriptors whose readability ends a wait at the inbox, too."""
        if len(key) != KEY_BYTES:
            raise ValueError(f"a session key has {KEY_BYTES} bytes, not {len(key)}")
        self.process_id = process_id
        self.directory = directory
        self._prefix = prefix(key, process_id)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(1)
        self._context.set(zmq.MAX_SOCKETS, MAX_SOCKETS)
        self._inbox = self._context.socket(zmq.ROUTER)
        self._inbox.setsockopt(zmq.RCVHWM, 0)
        self._inbox.setsockopt(zmq.LINGER, 0)
        self._inbox.bind(self._address(process_id))
        self.inbox = _open_inbox(self._inbox, watched)
        self._taken = lib.moo_inbox_taken(self.inbox)
        self.inbox_fd = int(self._inbox.getsockopt(zmq.FD))
        self._peers: dict[int, Peer] = {}
        self._gone: set[int] = set()  # ids are not used twice
        # Entered again by a signal handler that sends while we connect.
        self._lock = threading.RLock()

    def _address(self, process_id: int) -> str:
        return f"ipc://{self.directory}/{process_id:016x}"

    def peer(self, process_id: int) -> Peer:
        """The way to a process, connected on first use."""
        peer = self._peers.get(process_id)
        return peer if peer is not None else self._connect(process_id)

    def _connect(self, process_id: int) -> Peer:
        with self._lock:
            if process_id in self._gone:
                return self._nowhere(process_id)
            socket = self._context.socket(zmq.DEALER)
            socket.setsockopt(zmq.SNDHWM, 0)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
            most_ms = longest_retry_ms(len(self._peers) + 1)
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, most_ms)
            socket.connect(self._address(process_id))
            new = Peer(process_id, socket, self.inbox, self._prefix)
            peer = self._peers.setdefault(process_id, new)
            if peer is not new:
                new.close(linger_ms=0)
            return peer

    def _nowhere(self, process_id: int) -> Peer:
        """A way on which records to a dead process are dropped; a socket would wait."""
        socket = self._context.socket(zmq.DEALER)
        socket.close(linger=0)
        return Peer(process_id, socket, self.inbox, self._prefix)

    def put(self, record: bytes) -> None:
        """Send `record` to this process itself."""
        message = self._prefix + record
        lib.moo_inbox_put(self.inbox, message, len(message))

    def known(self) -> list[int]:
        """The processes to which there is a way."""
        return list(self._peers)

    def forget(self, process_id: int) -> None:
        """Drop the connection to a process that is gone, now and for ever."""
        with self._lock:
            self._gone.add(process_id)
            peer = self._peers.pop(process_id, None)
        if peer is not None:
            peer.close(linger_ms=0)

    def holds(self, serial: int) -> bool:
        """Whether a message is still in the queue: it was not dispatched."""
        taken: int = self._taken[0]
        return taken < serial

    def flush(self) -> None:
        """Send all records that wait for company."""
        lib.moo_inbox_flush(self.inbox)

    def close(self, linger_ms: int = 500) -> None:
        """Send the queued records, for at most `linger_ms`, and free everything."""
        self.flush()
        with self._lock:
            peers, self._peers = list(self._peers.values()), {}
        for peer in peers:
            peer.close(linger_ms)
        lib.moo_inbox_close(self.inbox)
        self._inbox.close(linger=0)
        self._context.term()
        try:
            os.unlink(f"{self.directory}/{self.process_id:016x}")
        except FileNotFoundError:
            pass  # libzmq usually removes it itself


def _open_inbox(socket: zmq.Socket[bytes], watched: tuple[int, ...]) -> Any:
    if lib.moo_zmq_find() != lib.MOO_OK:
        raise MooError(
            "mooactor uses the libzmq that pyzmq has loaded, and cannot find it: "
            "install a wheel of pyzmq (pip install --force-reinstall pyzmq)"
        )
    out = ffi.new("moo_inbox **")
    main = threading.main_thread().ident or 0
    _check(lib.moo_inbox_open(socket.underlying, watched, len(watched), main, out))
    return ffi.gc(out[0], lib.moo_inbox_free)


def _check(code: int) -> None:
    if code == lib.MOO_ENOMEM:
        raise MemoryError("no memory for a socket")
    if code != lib.MOO_OK:
        raise OSError(ffi.errno, os.strerror(ffi.errno))
