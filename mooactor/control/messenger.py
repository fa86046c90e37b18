# SPDX-License-Identifier: MIT
"""Sockets: one ROUTER inbox per process, and a DEALER to each peer.

Requests and replies alike arrive in the inbox, so a process waits on one socket
only. Sending never blocks: libzmq's own thread queues and connects, also to a peer
whose inbox does not exist yet. Bounds are kept above, by counting calls.

In a session of several hosts the ROUTER listens on TCP as well (see `reach`), with
CURVE: all listeners of the session share a key pair that is derived from the session
key, and so do all connectors. A stranger does not know the listeners' public key, so he
cannot even begin a handshake, and nothing of his reaches a parser; a connector with
another key pair than the session's is refused by `zap.Gate`, and too many half-open
connections are turned away by `arrivals`. Both are served by the housekeeper, not by a
thread of their own, which would need the GIL as well: while another thread holds it,
new connections wait, and are tried again. Those that stand do not need it.

The way to a process that is not known to be on this host is *held* until it is located:
records wait in its outbox. `ways` has the connections to other hosts.

pyzmq makes and closes the sockets. Messages move in and out in C (cext/mail),
because a signal handler may run inside pyzmq's `send` and `recv`: an exception of it
would lose the message, and a call of it would find a lock held.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import zmq

from mooactor.control.envelope import KEY_BYTES, prefix
from mooactor.control.reach import Reach
from mooactor.errors import MooError
from mooactor.tensors import extension
from mooactor.times import ADMISSION_MS

if TYPE_CHECKING:  # a session on one machine needs none of this
    from mooactor.control.curve import Gate
    from mooactor.control.unauthenticated import Arrivals
    from mooactor.control.ways import Keeper, Way, Ways

MAX_SOCKETS = 16384
_BACKLOG = 1024  # connections that libzmq has not accepted yet
_CURVE_BYTES = 256  # more than encryption adds to a part
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


def _check_sent(code: int, record: bytes) -> None:
    if code == _ENOMEM:
        raise MemoryError(f"no memory for a message of {len(record)} bytes")


class Peer:
    """The sending side towards one process, with the records not yet sent."""

    __slots__ = ("process_id", "_socket", "_inbox", "_outbox", "_waits")

    def __init__(self, process_id: int, inbox: Any, head: bytes) -> None:
        """Records are dropped until `hold` or `connect` is called."""
        self.process_id = process_id
        self._socket: zmq.Socket[bytes] | None = None
        self._inbox = inbox
        out = ffi.new("moo_outbox **")
        _check(lib.moo_outbox_open(inbox, 0, head, len(head), out))
        self._outbox = ffi.gc(out[0], lib.moo_outbox_free)
        self._waits = ffi.new("int *")

    def send(self, record: bytes) -> None:
        """Send `record` now, behind those that wait already."""
        _check_sent(_send(self._outbox, record, len(record)), record)

    def queue(self, record: bytes) -> bool:
        """Keep `record` for the next flush; True if something now waits for it."""
        waits = self._waits
        _check_sent(_queue(self._outbox, record, len(record), waits), record)
        return bool(waits[0])

    def flush(self) -> None:
        """Send the waiting records, of this and all other peers."""
        lib.moo_inbox_flush(self._inbox)

    def hold(self) -> None:
        """Let go of the socket, and keep records until `connect`."""
        lib.moo_outbox_hold(self._outbox)
        self._socket = None

    def connect(
        self, socket: zmq.Socket[bytes], head: bytes, part_bytes: int = 0
    ) -> bool:
        """Send what was kept, and all that follows, over `socket`, which is this peer's
        from here on; each message begins with `head`. False: it was closed.

        Raises:
          MemoryError: it is held still.
        """
        self._socket = socket
        code = lib.moo_outbox_connect(self._outbox, socket.underlying, head, part_bytes)
        if code in (lib.MOO_ECLOSED, _ENOMEM):
            self._socket = None
        if code == _ENOMEM:
            raise MemoryError("no memory for the messages that wait for a connection")
        return bool(code != lib.MOO_ECLOSED)

    def lead(self, record: bytes) -> None:
        """Send `record` before what was kept. Of a peer that is held, or closed."""
        code = lib.moo_outbox_lead(self._outbox, record, len(record))
        _check_sent(code, record)

    def drop(self) -> None:
        """Drop what was kept."""
        lib.moo_outbox_drop(self._outbox)

    @property
    def connected(self) -> bool:
        """Whether it has a socket."""
        return self._socket is not None

    @property
    def kept(self) -> int:
        """The number of records that wait for a connection."""
        return int(lib.moo_outbox_held(self._outbox))

    def close(self, linger_ms: int) -> None:
        """Drop later records. Those sent before have `linger_ms` to leave."""
        lib.moo_outbox_close(self._outbox)
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close(linger=linger_ms)


class Messenger:
    """All ZeroMQ of one process. ``directory`` is private to this session.

    ``inbox`` is the C side of the ROUTER, for `Poller`. ``address`` is where processes
    of other hosts connect to, None in a session on one machine.
    """

    #: The connections to other hosts; None in a session on one machine.
    ways: Ways | None = None
    _locate: Callable[[int], None]

    def __init__(
        self,
        directory: str,
        process_id: int,
        key: bytes,
        watched: tuple[int, ...] = (),
        reach: Reach | None = None,
    ) -> None:
        """`watched`: descriptors whose readability ends a wait at the inbox, too.

        Raises:
          MooError: it cannot listen as `reach` says.
        """
        if len(key) != KEY_BYTES:
            raise ValueError(f"a session key has {KEY_BYTES} bytes, not {len(key)}")
        self.process_id = process_id
        self.directory = directory
        self._key = key
        self._prefix = prefix(key, process_id)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(1)
        self._context.set(zmq.MAX_SOCKETS, MAX_SOCKETS)
        self._inbox = self._context.socket(zmq.ROUTER)
        self._inbox.setsockopt(zmq.RCVHWM, 0)
        self._inbox.setsockopt(zmq.LINGER, 0)
        self._inbox.bind(self._address(process_id))
        self._gate: Gate | None = None
        self._arrivals: Arrivals | None = None
        self.address: str | None = None
        if reach is not None:
            try:
                self.address = self._listen(reach)
            except BaseException:
                self._close_sockets()
                raise
        self.inbox = _open_inbox(self._inbox, watched)
        self._taken = lib.moo_inbox_taken(self.inbox)
        self.inbox_fd = int(self._inbox.getsockopt(zmq.FD))
        self._peers: dict[int, Peer] = {}
        self._gone: set[int] = set()  # ids are not used twice
        self._closed = False
        # Entered again by a signal handler that sends while we connect.
        self._lock = threading.RLock()

    def _listen(self, reach: Reach) -> str:
        """Listen for other hosts; returns the address for them. libzmq copies options
        when it binds: the socket of this host, bound before, has none of these."""
        from mooactor.control import addresses, curve
        from mooactor.control.reach import listen
        from mooactor.control.unauthenticated import Arrivals
        from mooactor.control.ways import PART_BYTES, expect_dead_paths

        self._gate = curve.Gate(self._context, self._key)
        curve.make_server(self._inbox, self._key)
        self._inbox.setsockopt(zmq.HANDSHAKE_IVL, ADMISSION_MS)
        self._inbox.setsockopt(zmq.MAXMSGSIZE, PART_BYTES + _CURVE_BYTES)
        self._inbox.setsockopt(zmq.BACKLOG, _BACKLOG)
        expect_dead_paths(self._inbox)
        self._arrivals = Arrivals(self._context, self._inbox)
        address = listen(self._inbox, reach)
        _, self._arrivals.unauthenticated.port = addresses.parse(address)
        return address

    def open_ways(
        self,
        keeper: Keeper,
        locate: Callable[[int], None],
        broke: Callable[[int, str, bool | None], None],
        stands: Callable[[int], None],
    ) -> None:
        """From here on processes of other hosts can be reached; see `Ways`.

        `locate`: find out where a process is, and call `located`. From any thread.
        """
        from mooactor.control.ways import Ways

        assert self._gate is not None and self._arrivals is not None
        keeper.watch(self._gate.fileno(), self._gate.serve)
        self._arrivals.watch(keeper)
        self._locate = locate
        self.ways = Ways(
            self._context, self.process_id, self._key, keeper, broke, stands
        )

    @property
    def strangers(self) -> int:
        """The number of connections that were refused: for their keys, or because there
        were too many that had shown none."""
        if self._gate is None or self._arrivals is None:
            return 0
        return self._gate.refused + self._arrivals.unauthenticated.turned_away

    def _address(self, process_id: int) -> str:
        return f"ipc://{self._path(process_id)}"

    def _path(self, process_id: int) -> str:
        return f"{self.directory}/{process_id:016x}"

    def peer(self, process_id: int) -> Peer:
        """The way to a process, connected on first use."""
        peer = self._peers.get(process_id)
        return peer if peer is not None else self._connect(process_id)

    def _connect(self, process_id: int) -> Peer:
        with self._lock:
            new = Peer(process_id, self.inbox, self._prefix)
            if self._closed or process_id in self._gone:
                return new  # drops all; a socket would wait for ever, or cannot be
            new.hold()
            if self.ways is None or self._is_here(process_id):
                self._connect_here(new)
            else:
                self._locate(process_id)  # `located` waits for our lock
            peer = self._peers.setdefault(process_id, new)
            if peer is not new:
                new.close(linger_ms=0)
            return peer

    def _is_here(self, process_id: int) -> bool:
        """Whether a process has its inbox on this host; one that starts has none."""
        return process_id == self.process_id or os.path.exists(self._path(process_id))

    def _connect_here(self, peer: Peer) -> None:
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        most_ms = longest_retry_ms(len(self._peers) + 1)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, most_ms)
        socket.connect(self._address(peer.process_id))
        if not peer.connect(socket, self._prefix):
            socket.close(linger=0)

    def located(
        self, process_id: int, host: str, address: str | None, is_caller: bool = False
    ) -> None:
        """A process is on `host`, at `address`; None: on this one. One that is about
        to call this one is connected before there is anything to send. In the
        housekeeper's thread."""
        assert self.ways is not None
        with self._lock:
            peer = self._peers.get(process_id)
            if peer is None and is_caller and process_id not in self._gone:
                peer = Peer(process_id, self.inbox, self._prefix)
                peer.hold()
                self._peers[process_id] = peer
            if peer is None:
                return
            if address is not None:
                self.ways.open(peer, host, address)
            elif not peer.connected:
                self._connect_here(peer)

    def is_located(self, process_id: int) -> bool:
        """Whether it is known where a process is; if not, that is found out."""
        peer = self.peer(process_id)
        return peer.connected or self.way_to(process_id) is not None

    def is_on_this_host(self, process_id: int) -> bool:
        """Whether a process is known to be on this host, and was sent to."""
        peer = self._peers.get(process_id)
        if peer is None or not peer.connected:
            return False
        return self.way_to(process_id) is None

    def way_to(self, process_id: int) -> Way | None:
        """The way to a process of another host, once it is located."""
        return None if self.ways is None else self.ways.known(process_id)

    def was_reached(self, process_id: int) -> bool:
        """Whether anything may have been sent to a process that is not forgotten."""
        if self.ways is None:
            return True
        way, peer = self.way_to(process_id), self._peers.get(process_id)
        if way is not None:
            return way.up or way.epoch > 1
        return peer is not None and peer.connected

    def was_cut_off(self, process_id: int) -> bool:
        """Whether the connection to a process of another host has broken, and there is
        no other one yet."""
        way = self.way_to(process_id)
        return way is not None and not way.up and way.epoch > 1

    def can_reach(self, process_id: int) -> bool:
        """False if what is sent to a process now would wait in vain, as far as is
        known: its inbox is gone, or the connection to it has broken."""
        way = self.way_to(process_id)
        if way is not None:
            return not self.was_cut_off(process_id)
        peer = self._peers.get(process_id)
        is_sought = peer is None or not peer.connected
        return is_sought or os.path.exists(self._path(process_id))

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
            if self.ways is not None:
                self.ways.forget(process_id)
            peer = self._peers.pop(process_id, None)
            if peer is not None:
                peer.close(linger_ms=0)

    def is_gone(self, process_id: int) -> bool:
        """Whether a process was forgotten."""
        return process_id in self._gone

    def holds(self, serial: int) -> bool:
        """Whether a message is still in the queue: it was not dispatched."""
        taken: int = self._taken[0]
        return taken < serial

    def flush(self) -> None:
        """Send all records that wait for company."""
        lib.moo_inbox_flush(self.inbox)

    def waiting(self) -> int:
        """The number of records that wait for a connection."""
        if self.ways is None:
            return 0
        return sum(peer.kept for peer in list(self._peers.values()))

    def close(self, linger_ms: int = 500) -> None:
        """Send the queued records, for at most `linger_ms`, and free everything. Those
        that wait for a connection are dropped."""
        self.flush()
        with self._lock:
            self._closed = True  # threads that still send make no more sockets
            peers, self._peers = list(self._peers.values()), {}
        if self.ways is not None:
            self.ways.close(linger_ms)
        for peer in peers:
            peer.close(linger_ms)
        lib.moo_inbox_close(self.inbox)
        self._close_sockets()

    def _close_sockets(self) -> None:
        if self._arrivals is not None:
            self._arrivals.close()
        self._inbox.close(linger=0)
        if self._gate is not None:
            self._gate.close()
        self._context.term()
        try:
            os.unlink(self._path(self.process_id))
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
