# SPDX-License-Identifier: MIT
"""The bytes that go over ZeroMQ: their layout, and the parsers.

Nothing here unpickles, and the session key is compared before anything else is looked
at. All integers are little-endian; process ids, call ids, object numbers and tokens
have 8 bytes.

**Message.** One ZeroMQ message carries one *envelope*, a prefix of 28 bytes, and then
*records* back to back, so that several small calls share one send and one wake-up::

    bytes   0-1        2        3     4-19         20-27
           +----------+--------+-----+------------+---------------------+
           | "MO"     | version|epoch| session key| sender's process id |
           +----------+--------+-----+------------+---------------------+

``epoch`` is 0 within a host. Between hosts it counts the sender's connections to this
receiver, from 1 and after 255 again from 1: see `ways` and `epochs`.

**Record.** A head of 20 bytes, then ``body_bytes`` of body::

    bytes   0      1       2          3       4-7          8-15     16-19
           +------+-------+----------+-------+------------+--------+---------+
           | kind | flags | priority | chain | body_bytes | number | value   |
           +------+-------+----------+-------+------------+--------+---------+
              u8     u8      i8         u8       u32          u64     float32

``chain`` counts the actor ids in the body of a CALL. The kind defines ``number`` and
``value``; ``value`` is 0 where the table has none.

======== ==================== ============ ============================================
kind     from -> to           number       body
======== ==================== ============ ============================================
CALL     caller -> actor      call id      name length (1), method name, chain (8 each),
                                           deadline (8, float64) unless ``value`` is 0,
                                           payload; ``value``: seconds left, 0: no limit
REPLY    actor -> caller      call id      payload: a result, an item or an error
CANCEL   caller -> actor      call id      nothing
CREDIT   consumer -> producer call id      nothing; ``value``: room for so many items
STOP     anyone -> actor      0            nothing
FORWARD  caller -> actor      call id      target, token
         actor -> caller      call id      the same, with PROMISED
FETCH    borrower -> owner    object       target, token, request; unless that is 0:
         owner -> borrower    object       the same, with PROMISED
BORROW   lender -> owner      object       holder, hold
RELEASE  holder -> owner      object       hold
PROBE    waiter -> actor      call id      initiator, its wait (8), place in that (4),
                                           the path so far: UTF-8, parts between zeros;
                                           with ROOM the number is the sum of the ids of
                                           all calls to the actor that are outstanding
VALUE    holder -> receiver   token        payload; with KEEP the tree's number in front
REDIRECT owner -> receiver    token        holder, tree
ASK      receiver -> holder   token        owner, tree
         holder -> receiver   token        nothing, with PROMISED: it will be here
TAKEN    receiver -> owner    token        nothing
RETRY    receiver -> owner    token        the holder that did not send it
         receiver -> caller   token        nothing
DROP     owner -> holder      tree         nothing
LOST     process -> itself    process id   nothing
AUDIT    owner -> holder      0            (object, hold), any number of times
WATCH    receiver -> owner    process id   nothing
PROBED   receiver -> owner    0            what a probe of GPU memory found, for
                                           `tensors.cuda.peer_access`
BROKE    anyone -> anyone     call id      the sender's next call id; replies to
                                           calls of the receiver's up to the former may
                                           be lost, and other records; no call with a
                                           lower id than the latter is wanted any more
         process -> itself    process id   the call id that was sent to that process
UNSURE   process -> any other process id   nothing: the connection to that one broke
CAME     process -> itself    0            nothing
GOAWAY   actor -> caller      call id      nothing: it ends, its answers have been sent,
                                           and no call of the receiver's with a higher
                                           id was begun
PULL     owner -> holder      0            objects, any number of them
KNOWS    receiver -> sender   0            keys that it has now, see `script`: UTF-8,
                                           zeros between them
======== ==================== ============ ============================================

`bodies` packs these bodies and takes them apart, payloads included.

**Deadlines.** The processes of a host share the clock `time.perf_counter`. A call
between them has one deadline for both: once the caller sees that it has passed, the
callee does not begin the call. An actor on another host counts the seconds left, from
when it reads the record.

**Epochs.** A process numbers its connections to each other one, and every message has
the number; `ways` has the sending side. Once a message of a later connection has come,
what still comes of an earlier one is dropped: it would be out of order, and both sides
have given it up. So is what comes of a process that this one was told is dead: its host
was cut off for so long that it counts as lost, and it must not act any more.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from hmac import compare_digest
from time import perf_counter
from typing import Any, NamedTuple

from mooactor.control.bodies import MalformedMessage as MalformedMessage
from mooactor.errors import AuthError, MooError, VersionMismatch

VERSION = 15
KEY_BYTES = 16
PREFIX_BYTES = 28

# Kinds of records.
CALL = 1  # caller -> actor
REPLY = 2  # actor -> caller: one result, one stream item or the end of a stream
CANCEL = 3  # caller -> actor
CREDIT = 4  # consumer -> producer: room for `value` more stream items
STOP = 5  # anyone -> actor: finish what is queued, then end
FORWARD = 6  # caller -> actor: send the result of a call to a third process, too
FETCH = 7  # borrower -> owner: send the value of an object when it is there
BORROW = 8  # lender -> owner: another process now holds this object as well
RELEASE = 9  # holder -> owner: no longer held here
PROBE = 10  # deadlock detection: "the sender waits for you"
VALUE = 11  # producer -> consumer: the value of a Ref that a queued call waits for
# A value that goes to several processes of another host crosses once; see `broadcast`.
REDIRECT = 12  # owner -> receiver: take a value from a third process
ASK = 13  # receiver -> holder: send the value that you were given to keep
TAKEN = 14  # receiver -> owner: it has come
RETRY = 15  # receiver -> owner, or the caller that handed it on: it does not come
DROP = 16  # owner -> holder: nobody will ask for it any more
LOST = 17  # a process to itself: another one is gone
AUDIT = 18  # owner -> holder: have you got these holds? See `objects.audit`
WATCH = 19  # to the owner of memory: it was granted to this process on request
PROBED = 20  # to the owner of GPU memory: whether this process can open or read it
BROKE = 21  # the sender's connection before this one broke; see `process.peers`
UNSURE = 22  # to any other: my connection to that process broke; see `objects.audit`
CAME = 23  # a process to itself: a value that a queued call waits for, or its loss
GOAWAY = 24  # actor -> caller: it ends; see `process.deaths`
PULL = 25  # a producer that ends to holders: fetch these results; see `objects.results`
KNOWS = 26  # who got definitions of the script to whoever sent them; see `script`
_KINDS = frozenset(range(CALL, KNOWS + 1))

# Flags. The low bits are shared, the others belong to CALL or to REPLY.
ATTACHED = 1  # the payload begins with data-plane descriptors
EMPTY = 2  # CALL, REPLY: no payload: no arguments, or the result None
KWARGS = 4  # CALL: the payload is (args, kwargs), not args
STREAM = 8  # CALL: a generator; REPLY: one item of it
ROOM = 4  # PROBE: the sender waits for room in the actor's mailbox
ONE_WAY = 16  # CALL: errors are logged by the actor, the caller does not wait
REFS = 32  # CALL: some arguments are placeholders, filled by FORWARDed values
WHOLE = 64  # CALL, with REFS: the one value is all of (args, kwargs)
ERROR = 4  # REPLY: the payload is an exception
LAST = 16  # REPLY: the stream ends here
STAYS = 64  # REPLY: the sender keeps the value; its borrow comes before its Refs'
# VALUE: it cannot be had from here, with ERROR: nor from its owner
GONE = 32
KEEP = 64  # VALUE, REDIRECT: others will ask for it; in VALUE, its number comes first
ARGUMENTS = 16  # VALUE: it is all arguments of a call
PROMISED = 64  # FORWARD, FETCH, as an answer: the value will be sent
BORROWS = 128  # CALL, REPLY, VALUE: the payload begins with the borrows of its Refs

_EPOCHS = 255
_LEAST_S, _MOST_S = 1e-3, 1e9  # of the seconds left
_COPIED_BYTES = 256  # of a payload, for which that is quicker than a view
_new_tuple = tuple.__new__
_PREFIX = struct.Struct("<2sBB16sQ")
_unpack_prefix = _PREFIX.unpack_from
_HEAD = struct.Struct("<BBbBIQf")
HEAD_BYTES = _HEAD.size
_DEADLINE = struct.Struct("<d")
pack_head = _HEAD.pack
_unpack_head = _HEAD.unpack_from


class LateMessage(MooError):
    """A message of a connection that has broken; it was dropped."""


class Record(NamedTuple):
    """One parsed record. ``payload`` is a view into the message, or a copy if small.

    ``value`` of a CALL is its deadline on the clock of this host, 0 if it has none.
    ``memo`` has the results so far, in case handling has to begin again.
    """

    sender: int
    kind: int
    flags: int
    priority: int
    call_id: int
    value: float
    name: bytes
    chain: tuple[int, ...]
    payload: memoryview | bytes
    memo: dict[str, Any]


def prefix(key: bytes, sender: int, epoch: int = 0) -> bytes:
    """The first bytes of every message that process `sender` sends over one
    connection."""
    return _PREFIX.pack(b"MO", VERSION, epoch, key, sender)


def next_epoch(epoch: int) -> int:
    """The epoch of the connection after one that has broken."""
    return epoch % _EPOCHS + 1


def is_later(epoch: int, other: int) -> bool:
    """Whether `epoch` is one after `other`, and not before: of two within half a
    round."""
    return 0 < (epoch - other) % _EPOCHS <= _EPOCHS // 2


def pack_record(
    kind: int,
    call_id: int,
    payload: bytes = b"",
    flags: int = 0,
    value: float = 0.0,
) -> bytes:
    """One record of any kind but CALL."""
    return pack_head(kind, flags, 0, 0, len(payload), call_id, value) + payload


def pack_deadline(timeout: float) -> tuple[float, bytes, float]:
    """Of a call that ends in `timeout` seconds: when that is, and for its record the
    deadline and ``value``."""
    deadline = perf_counter() + timeout
    return deadline, _DEADLINE.pack(deadline), min(max(timeout, _LEAST_S), _MOST_S)


def open_envelope(message: bytes, key: bytes) -> tuple[int, int]:
    """Check magic, version and key; return the sender's process id, and the epoch.

    Raises:
      MalformedMessage, VersionMismatch, AuthError: the message must be dropped.
    """
    if len(message) < PREFIX_BYTES:
        raise MalformedMessage("not a mooactor message")
    magic, version, epoch, theirs, sender = _unpack_prefix(message)
    if magic != b"MO":
        raise MalformedMessage("not a mooactor message")
    if not compare_digest(theirs, key):
        raise AuthError("a message without this session's key was dropped")
    if version != VERSION:
        raise VersionMismatch(
            f"a peer speaks protocol {version}, this process {VERSION}; "
            "install the same mooactor on both sides"
        )
    return sender, epoch


def read_records(
    message: bytes,
    key: bytes,
    into: list[Record] | deque[Record],
    admit: Callable[[int, int], bool] | None = None,
) -> None:
    """Open the envelope of a message and append its records.

    Args:
      admit: whether a message of another host, by its sender and epoch, still counts.

    Raises:
      LateMessage: it does not.
      MalformedMessage: at the first invalid record; those before it were valid, and are
        there.
      VersionMismatch, AuthError: as `open_envelope` does.
    """
    sender, epoch = open_envelope(message, key)
    if epoch and admit is not None and not admit(sender, epoch):
        raise LateMessage("a message of an earlier connection was dropped")
    end, stop = len(message), PREFIX_BYTES
    while stop < end:
        if end - stop < HEAD_BYTES:
            raise MalformedMessage("a record head is cut short")
        kind, flags, priority, hops, size, call_id, value = _unpack_head(message, stop)
        start = stop + HEAD_BYTES
        stop = start + size
        if stop > end or kind not in _KINDS:
            raise MalformedMessage(f"record kind {kind} with {size} bytes of body")
        name: bytes = b""
        chain: tuple[int, ...] = ()
        if kind == CALL:
            name, chain, start = _call_body(message, start, stop, hops)
            if value:
                if stop - start < _DEADLINE.size:
                    raise MalformedMessage("a call's deadline is cut short")
                if epoch:
                    value += perf_counter()
                else:
                    (value,) = _DEADLINE.unpack_from(message, start)
                start += _DEADLINE.size
        payload: memoryview | bytes
        if stop - start <= _COPIED_BYTES:
            payload = message[start:stop]
        else:
            payload = memoryview(message)[start:stop]
        fields: tuple[Any, ...] = (
            sender,
            kind,
            flags,
            priority,
            call_id,
            value,
            name,
            chain,
            payload,
            {},
        )
        # As Record(…) does, without a call of Python's in between.
        into.append(_new_tuple(Record, fields))


def _call_body(
    message: bytes, offset: int, stop: int, hops: int
) -> tuple[bytes, tuple[int, ...], int]:
    if offset >= stop:
        raise MalformedMessage("a call without a method name")
    start = offset + 1
    offset = start + message[offset]
    if offset + 8 * hops > stop:
        raise MalformedMessage("a call's name or chain is cut short")
    name = message[start:offset]
    if not hops:
        return name, (), offset
    return name, struct.unpack_from(f"<{hops}Q", message, offset), offset + 8 * hops


class Epochs:
    """Of one process, as receiver. In the poller's thread; `forget` in any."""

    def __init__(self, is_gone: Callable[[int], bool]) -> None:
        """`is_gone`: whether a process is known to be dead."""
        self._is_gone = is_gone
        self._present: dict[int, int] = {}
        self.late = 0  # messages that were dropped

    def admit(self, sender: int, epoch: int) -> bool:
        """Whether a message counts: it is of the present connection, or a new one, and
        of a process that lives."""
        present = self._present.get(sender, epoch)
        if is_later(present, epoch) or self._is_gone(sender):
            self.late += 1
            return False
        self._present[sender] = epoch
        return True

    def forget(self, process_id: int) -> None:
        """That process is gone, and its id is not used twice."""
        self._present.pop(process_id, None)
