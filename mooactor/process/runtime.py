# SPDX-License-Identifier: MIT
"""One process's part in a session: its sockets, its calls under way, its objects.

The driver has one and every actor's process has one. The caller's side is here; what
an actor does with a call is in `worker`. Messages are dispatched by whichever thread
leads the pump, so the methods ``_on_…`` run one at a time.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import struct
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol

from mooactor import errors
from mooactor.control import codec, envelope
from mooactor.control.keys import actor_of
from mooactor.control.messenger import Messenger, Peer
from mooactor.process.calls import (
    PAIR,
    CallOptions,
    Placeholder,
    Request,
    context,
    pack_tokens,
)
from mooactor.process.deadlock import DeadlockDetector
from mooactor.process.lifeline import Lifeline, LifelineClosed, Message
from mooactor.process.links import Link
from mooactor.process.objects import ObjectTable, Stored
from mooactor.process.outcome import Outcome, Reply, Waiter
from mooactor.process.pump import Pump
from mooactor.process.supervised import cause_of
from mooactor.tensors.plane import DataPlane
from mooactor.tensors.public import set_current

_DEATH_GRACE_S = 0.008
_U64 = struct.Struct("<Q")


class Server(Protocol):
    """The callee's side, in processes that hold an actor."""

    def on_call(self, sender: int, record: envelope.Record) -> None: ...
    def on_cancel(self, sender: int, call_id: int) -> None: ...
    def on_credit(self, sender: int, call_id: int, items: int) -> None: ...
    def on_stop(self, sender: int) -> None: ...
    def on_forward(self, sender: int, call_id: int, pair: bytes) -> bool: ...
    def on_process_lost(self, process_id: int) -> None: ...
    def awaited_by(self, sender: int, call_id: int) -> list[tuple[str, Outcome]]: ...


class Runtime:
    """See the module. `close` ends it; afterwards every wait has ended, too."""

    def __init__(
        self,
        directory: str,
        key: bytes,
        process_id: int,
        lifeline: Lifeline,
        *,
        memory_limit: int | None = None,
    ) -> None:
        self.directory = directory
        self.key = key
        self.process_id = process_id
        self.actor_id = actor_of(process_id)
        self.lifeline = lifeline
        self.lifeline_fd = lifeline.fileno()
        self.messenger = Messenger(directory, process_id, key)
        self.pump = Pump(self.messenger, self)
        self.objects = ObjectTable()
        self.deadlocks = DeadlockDetector(self)
        self.server: Server | None = None
        self.closed = False
        self.on_log: Callable[[Message], None] | None = None
        self.on_stop_request: Callable[[], None] | None = None
        self.on_agent_lost: Callable[[], None] | None = None
        self.plane = DataPlane(directory, process_id, key, memory_limit=memory_limit)
        set_current(self.plane)
        self._pid = os.getpid()
        self._pending: dict[int, Outcome] = {}
        self._streams: dict[int, Any] = {}
        self._values: dict[int, Outcome] = {}
        self._forwarded: dict[int, tuple[Outcome, int]] = {}
        self._links: dict[int, Link] = {}
        self._requests: dict[int, Outcome] = {}
        self._request_fds: dict[int, int] = {}
        self._monitors: dict[int, Callable[[Message], None]] = {}
        self._ids = itertools.count(1)
        self._dropped = 0
        self._dropped_said = -1.0
        self._dirty: set[Peer] = set()
        self._link_lock = threading.Lock()
        self._lifeline_lock = threading.Lock()
        self._afterwards: deque[tuple[int, int, int]] = deque()

    # -- the data plane ----------------------------------------------------

    def attach(self, data: bytes, buffers: codec.Buffers, process_id: int) -> bytes:
        """A payload with its large buffers exported to one process.

        Raises:
          OutOfMemory: nothing was exported.
        """
        export, descriptors = self.plane.export, []
        try:
            for buffer in buffers:
                descriptors.append(export(buffer, process_id))
        except BaseException:
            for descriptor in descriptors:
                self.plane.revoke(descriptor)
            raise
        return envelope.pack_attached(descriptors, data)

    def result_of(self, record: envelope.Record) -> Reply:
        """The payload of a REPLY or VALUE, its attached memory taken over."""
        reply = self.reply_of(record)
        try:
            reply.take_over()
        except Exception as error:
            payload = codec.encode_error(error, "the receiver")
            return Reply(payload, [], True, self.plane)
        return reply

    def reply_of(self, record: envelope.Record) -> Reply:
        """A record's payload, ready to be decoded or dropped.

        Raises:
          MalformedMessage: its attachments do not fit.
        """
        descriptors: list[bytes] = []
        payload: Any = record.payload
        if record.flags & envelope.ATTACHED:
            descriptors, payload = envelope.split_attached(payload)
        elif record.flags & envelope.EMPTY:
            payload = None
        failed = record.kind in (envelope.REPLY, envelope.VALUE) and bool(
            record.flags & envelope.ERROR
        )
        return Reply(payload, descriptors, failed, self.plane)

    # -- links -------------------------------------------------------------

    def link(self, actor_id: int, incarnation: int, label: str, *, watch: bool) -> Link:
        """The link to an actor; `watch` unless this process spawned it."""
        link = self._links.get(actor_id)
        if link is None:
            with self._link_lock:
                link = self._links.get(actor_id)
                if link is None:
                    link = Link(actor_id, incarnation, label)
                    self._links[actor_id] = link
                    if watch:
                        self.tell_agent(
                            op="watch", id=actor_id, incarnation=incarnation
                        )
        return link

    def peer_of(self, link: Link) -> Peer:
        peer = link.peer
        if peer is None:
            peer = link.peer = self.messenger.peer(link.process_id)
        return peer

    # -- calls -------------------------------------------------------------

    def call(
        self,
        link: Link,
        outcome: Outcome,
        name: bytes,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        flags: int,
        options: CallOptions,
        blocking: bool,
        prepared: Stored | None = None,
        awaited: bool = False,
    ) -> None:
        """Send a call whose result will be `outcome`.

        With `blocking` the caller is about to wait for it: the chain of waiting
        actors travels along, and the message leaves at once; the chain also with
        `awaited`. `prepared` holds arguments encoded already, for calls of a group.
        """
        if link.cause is not None:
            raise link.gone()
        if link.outstanding >= link.limit:
            self._wait_for_room(link, options)
        caller = context.get()
        chain = b""
        timeout = options.timeout
        if caller is not None:
            timeout = _remaining(timeout, caller.deadline)
            if awaited or (blocking and caller.serial):
                self.deadlocks.refuse_cycle(link, caller)
                chain = envelope.pack_chain((*caller.chain[-63:], caller.actor_id))
        if not args and not kwargs:
            payload = b""
            flags |= envelope.EMPTY
        elif prepared is not None:
            payload, attached = prepared.payload_for(link.process_id)
            flags |= envelope.ATTACHED if attached else 0
            flags |= envelope.KWARGS
        else:
            payload, flags = self._encode_arguments(link, args, kwargs, flags)
        call_id = next(self._ids)
        outcome.call_id = call_id
        outcome.link = link
        if options.retries and outcome.request is None:
            outcome.request = Request(
                name, args, kwargs, flags, options, options.retries
            )
        body = name + chain + payload if chain else name + payload
        record = envelope.pack_head(
            envelope.CALL,
            flags,
            options.priority,
            len(chain) >> 3,
            len(body),
            call_id,
            timeout or 0.0,
        )
        self._pending[call_id] = outcome
        link.outstanding += 1
        peer = link.peer
        if peer is None:
            if link.cause is not None:
                self._fail_pending(link, lambda: link.gone(delivered=False))
                return
            peer = self.peer_of(link)
        if blocking or link.outstanding == 1:
            peer.send(record + body)
        elif peer.queue(record + body):
            self._dirty.add(peer)
            self.pump.arm()
        if link.peer is not peer:
            self._sent_too_late(link, outcome, call_id)

    def _sent_too_late(self, link: Link, outcome: Outcome, call_id: int) -> None:
        """The actor died while we sent, and the notice may not have seen the call."""
        if link.cause is not None:
            self._fail_pending(link, lambda: link.gone(delivered=None))
        elif self._pending.pop(call_id, None) is not None:
            link.outstanding = max(0, link.outstanding - 1)
            outcome.set_error(
                errors.ActorUnavailable(
                    f"{link.label} died just now and is being restarted; call again",
                    delivered=False,
                )
            )

    def _wait_for_room(self, link: Link, options: CallOptions) -> None:
        if link.overflow == "raise" or asyncio._get_running_loop() is not None:
            raise errors.Overloaded(
                f"{link.label} has {link.outstanding} calls outstanding from here, its "
                "bound (max_pending); wait for some of them first",
                delivered=False,
            )
        self.flush()
        deadline = None if options.timeout is None else perf_counter() + options.timeout
        roomy = self.pump.wait(
            lambda: link.outstanding < link.limit or link.cause is not None, deadline
        )
        if not roomy:
            raise errors.CallTimeout(
                f"no room in the mailbox of {link.label} within {options.timeout} s",
                delivered=False,
            )
        if link.cause is not None:
            raise link.gone()

    def _encode_arguments(
        self, link: Link, args: tuple[Any, ...], kwargs: dict[str, Any], flags: int
    ) -> tuple[bytes, int]:
        tokens: list[tuple[int, int]] = []
        if any(isinstance(arg, Outcome) for arg in args):
            args = tuple(self._placed(arg, link, tokens) for arg in args)
        if kwargs:
            kwargs = {k: self._placed(v, link, tokens) for k, v in kwargs.items()}
        with _lending(self, link.process_id):
            try:
                if kwargs:
                    data, buffers = codec.encode((args, kwargs))
                    flags |= envelope.KWARGS
                else:
                    data, buffers = codec.encode_args(args)
            except errors.MooError:
                raise
            except Exception as error:
                raise _unpicklable(link.label, args, kwargs, error) from error
        if buffers:
            data = self.attach(data, buffers, link.process_id)
            flags |= envelope.ATTACHED
        if tokens:
            data = pack_tokens(tokens, data)
            flags |= envelope.REFS
        return data, flags

    def prepare(
        self, label: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Stored | None:
        """Encode the arguments of a call to several actors once; None if each call
        has to encode them for itself, because there are Refs among them."""
        if any(isinstance(arg, Outcome) for arg in (*args, *kwargs.values())):
            return None
        try:
            data, buffers = codec.encode((args, kwargs))
        except Exception as error:
            raise _unpicklable(label, args, kwargs, error) from error
        return self.store(data, buffers)

    def store(self, data: bytes, buffers: codec.Buffers) -> Stored:
        """Keep an encoded value, its large parts in shared memory."""
        return Stored(data, buffers, self.plane)

    def next_id(self) -> int:
        return next(self._ids)

    # -- Refs as arguments -------------------------------------------------

    def _placed(self, arg: Any, link: Link, tokens: list[tuple[int, int]]) -> Any:
        """A Ref becomes a placeholder, and its value is sent on its way."""
        if not isinstance(arg, Outcome):
            return arg
        token = secrets.randbits(63)
        producer = self.send_value(arg, link.process_id, token)
        tokens.append((token, producer))
        return Placeholder(token)

    def send_value(self, ref: Outcome, target: int, token: int) -> int:
        """Have the value of `ref` sent to process `target` as `token`.

        Returns the process id of whoever sends it: its producer, or this one.
        """
        home = getattr(ref, "home", None)
        if home is not None and home.owner != self.process_id and not ref.state:
            pair = PAIR.pack(target, token)
            self._post(home.owner, envelope.FETCH, home.object_id, pair)
            return int(home.owner)
        if home is not None and home.owner == self.process_id:
            stored = self.objects.stored(home.object_id)
            if stored is not None:
                self._send_payload(target, token, *stored.payload_for(target))
                return self.process_id
        link = ref.link
        if not ref.state and link is not None and link.cause is None:
            self._forwarded[token] = (ref, target)
            self.peer_of(link).flush()
            self._post(
                link.process_id,
                envelope.FORWARD,
                ref.call_id,
                PAIR.pack(target, token),
            )
            ref.listen(lambda: self._forward_failure(token))
            return int(link.process_id)
        ref.listen(lambda: self._send_result(ref, target, token))
        return self.process_id

    def _send_result(self, ref: Outcome, target: int, token: int) -> None:
        try:
            value = ref.unwrap()
            with _lending(self, target):
                data, buffers = codec.encode(value)
            if buffers:
                data = self.attach(data, buffers, target)
        except BaseException as error:
            payload = codec.encode_error(error, f"process {os.getpid()}")
            flags = envelope.ERROR
            self._post(target, envelope.VALUE, token, payload, flags)
            return
        self._send_payload(target, token, data, bool(buffers))

    def _send_payload(
        self, target: int, token: int, payload: bytes, attached: bool
    ) -> None:
        flags = envelope.ATTACHED if attached else 0
        self._post(target, envelope.VALUE, token, payload, flags)

    def _forward_failure(self, token: int) -> None:
        """The producer cannot forward what did not come to be: tell the target."""
        entry = self._forwarded.get(token)
        if entry is not None and entry[0].failure() is not None:
            del self._forwarded[token]
            self._send_result(entry[0], entry[1], token)

    def value_outcome(self, token: int, producer: int) -> Outcome:
        """The value that will come as `token`, sent by process `producer`."""
        outcome = self._values.get(token)
        if outcome is None:
            outcome = self._values[token] = Outcome()
        if not outcome.state and producer != self.process_id:
            outcome.link = self.link(
                actor_of(producer), producer & 0xFFFF, "the producer", watch=True
            )
        return outcome

    def forget_value(self, token: int) -> None:
        self._values.pop(token, None)

    def fetch(self, owner: int, object_id: int, label: str) -> Outcome:
        """Ask the owner of an object for its value."""
        token = secrets.randbits(63)
        outcome = self.value_outcome(token, owner)
        self._post(owner, envelope.FETCH, object_id, PAIR.pack(self.process_id, token))
        outcome.listen(lambda: self.forget_value(token))
        return outcome

    # -- lending: Refs inside other values ---------------------------------

    def lend(self, object_id: int, owner: int, borrower: int) -> None:
        """Note with the owner that `borrower` is about to hold an object, too."""
        if owner == self.process_id:
            self.objects.borrow(object_id, borrower, 1)
            self.pump.arm()
        else:
            self._post(owner, envelope.BORROW, object_id, _U64.pack(borrower))

    def post_later(self, process_id: int, kind: int, number: int) -> None:
        """Post with the next flush. For finalizers, which must take no lock."""
        self._afterwards.append((process_id, kind, number))
        if self.pump._helper is not None:
            self.pump.arm()

    # -- waiting -----------------------------------------------------------

    def wait(self, outcome: Outcome, timeout: float | None = None) -> bool:
        """Block until `outcome` is done; False if `timeout` seconds passed first."""
        if outcome.state:
            return True
        if self._dirty or self._afterwards:
            self.flush()
        deadline = None if timeout is None else perf_counter() + timeout
        caller = context.get()
        if caller is not None:
            if caller.deadline is not None:
                deadline = min(deadline or caller.deadline, caller.deadline)
            if caller.serial:
                return self.deadlocks.wait(outcome, deadline, caller)
        return self.wait_plainly(outcome, deadline)

    def wait_plainly(self, outcome: Outcome, deadline: float | None) -> bool:
        if self.pump._lead_lock.locked():
            waiter = Waiter()
            outcome.listen(waiter.notify)
        else:
            waiter = None
        try:
            return self.pump.wait(lambda: outcome.state, deadline, waiter)
        finally:
            if waiter is not None:
                outcome.unlisten(waiter.notify)

    def flush(self) -> None:
        """Send every record that waits for company."""
        if self._dirty:
            dirty, self._dirty = self._dirty, set()
            for peer in dirty:
                peer.flush()
        while self._afterwards:
            self._post(*self._afterwards.popleft())
        self.objects.sweep()

    def queue_record(self, peer: Peer, record: bytes) -> None:
        if peer.queue(record):
            self._dirty.add(peer)

    def is_idle(self) -> bool:
        """Whether nothing is due that nobody waits for."""
        return not (
            self._pending
            or self._values
            or len(self.objects)
            or self._dirty
            or self._afterwards
        )

    def _post(
        self,
        process_id: int,
        kind: int,
        number: int,
        payload: bytes = b"",
        flags: int = 0,
    ) -> None:
        record = envelope.pack_record(kind, number, payload, flags)
        self.messenger.peer(process_id).send(record)

    def post(
        self,
        process_id: int,
        kind: int,
        number: int,
        payload: bytes = b"",
        flags: int = 0,
    ) -> None:
        """Send one control record now, behind what is queued for that process."""
        self._post(process_id, kind, number, payload, flags)

    def cancel(self, outcome: Outcome) -> bool:
        """Give a call up: its outcome is `Cancelled` now, the callee is told."""
        error = errors.Cancelled("the call was cancelled by its caller")
        if not outcome.set_error(error):
            return False
        self.abandon(outcome)
        return True

    def abandon(self, outcome: Outcome) -> None:
        """Tell the callee that nobody wants a call's result any more. Its reply still
        comes, and settles the count of outstanding calls."""
        link = outcome.link
        if link is not None and outcome.call_id in self._pending:
            self._post(link.process_id, envelope.CANCEL, outcome.call_id)

    # -- messages in -------------------------------------------------------

    def dispatch(self, message: bytes) -> None:
        """Act on one message; a malformed one is reported and dropped."""
        try:
            sender = envelope.open_envelope(message, self.key)
            for record in envelope.records(message):
                self._on_record(sender, record)
        except (
            envelope.MalformedMessage,
            errors.AuthError,
            errors.VersionMismatch,
        ) as error:
            self.messenger.resynchronize()
            self._report_dropped(error)
        except Exception:
            # From a peer with the key, so a bug in it or in us: say so and live on.
            print("mooactor: a message could not be handled:", file=sys.stderr)
            traceback.print_exc()

    def _report_dropped(self, error: errors.MooError) -> None:
        """Say so, but once a second at most: a stranger may send a flood."""
        self._dropped += 1
        now = perf_counter()
        if now - self._dropped_said > 1.0:
            self._dropped_said = now
            count = f"{self._dropped} messages" if self._dropped > 1 else "a message"
            print(f"mooactor: dropped {count}: {error}", file=sys.stderr)
            self._dropped = 0

    def _on_record(self, sender: int, record: envelope.Record) -> None:
        kind = record.kind
        if kind == envelope.REPLY:
            self._on_reply(record)
        elif kind == envelope.CALL and self.server is not None:
            self.server.on_call(sender, record)
        else:
            self._on_control(sender, record)

    def _on_reply(self, record: envelope.Record) -> None:
        call_id, flags = record.call_id, record.flags
        if flags & envelope.STREAM:
            channel = self._pending.get(call_id)
            if channel is not None:
                reply = self.result_of(record)
                channel.on_item(reply)  # type: ignore[attr-defined]
            else:
                self.reply_of(record)
            return
        outcome = self._pending.pop(call_id, None)
        if outcome is None:
            self.reply_of(record)  # late: what is attached gives its memory back
            return
        link = outcome.link
        link.outstanding -= 1
        outcome.link = None
        if flags & envelope.EMPTY:
            done = outcome.set_value(None)
        else:
            done = outcome.set_raw(self.result_of(record))
        if done and self.pump._leader_thread != threading.get_ident():
            self.pump.wake()

    def _on_control(self, sender: int, record: envelope.Record) -> None:
        kind, number, server = record.kind, record.call_id, self.server
        if kind == envelope.VALUE:
            self._on_value(number, record)
        elif kind == envelope.FORWARD:
            self._on_forward(sender, record)
        elif kind == envelope.FETCH:
            self._on_fetch(number, *_pair(record.payload))
        elif kind == envelope.BORROW:
            self.objects.borrow(number, *_one(record.payload), 1)
        elif kind == envelope.RELEASE:
            self.objects.borrow(number, sender, -1)
        elif kind == envelope.PROBE:
            self.deadlocks.on_probe(sender, number, bytes(record.payload))
        elif server is not None:
            if kind == envelope.CANCEL:
                server.on_cancel(sender, number)
            elif kind == envelope.CREDIT:
                server.on_credit(sender, number, int(record.value))
            elif kind == envelope.STOP:
                server.on_stop(sender)

    def _on_value(self, token: int, record: envelope.Record) -> None:
        outcome = self._values.get(token)
        if outcome is None:
            outcome = self._values[token] = Outcome()
        outcome.set_raw(self.result_of(record))
        outcome.link = None
        self.pump.wake()

    def _on_forward(self, sender: int, record: envelope.Record) -> None:
        """From a caller: forward a result. From a producer: whether it will."""
        pair = bytes(record.payload)
        target, token = _pair(pair)
        entry = self._forwarded.pop(token, None)
        if entry is None:
            known = self.server is not None and self.server.on_forward(
                sender, record.call_id, pair
            )
            flags = 0 if known else envelope.GONE
            self._post(sender, envelope.FORWARD, record.call_id, pair, flags)
        elif record.flags & envelope.GONE:
            ref = entry[0]
            ref.listen(lambda: self._send_result(ref, target, token))
        else:
            self._forwarded[token] = entry  # kept until it is done, for its failure
            entry[0].listen(lambda: self._settle_forward(token))

    def _settle_forward(self, token: int) -> None:
        """The producer forwards; only a failure is still ours to tell."""
        self._forward_failure(token)
        self._forwarded.pop(token, None)

    def _on_fetch(self, object_id: int, target: int, token: int) -> None:
        stored = self.objects.stored(object_id)
        outcome = self.objects.outcome(object_id)
        if stored is not None:
            self._send_payload(target, token, *stored.payload_for(target))
        elif outcome is not None:
            found = outcome
            found.listen(lambda: self._send_result(found, target, token))
        else:
            error = errors.ActorUnavailable("the value of this Ref is gone")
            payload = codec.encode_error(error, "its owner")
            self._post(target, envelope.VALUE, token, payload, envelope.ERROR)

    # -- the agent ---------------------------------------------------------

    def tell_agent(self, **message: Any) -> None:
        """Send a message to the host's agent.

        Raises:
          ActorUnavailable: the session is over.
        """
        try:
            self.lifeline.send(message)
        except LifelineClosed:
            raise errors.ActorUnavailable(
                "the session is over: its agent is gone"
            ) from None

    def ask_agent(self, wait_s: float | None = 60.0, /, **message: Any) -> Message:
        """Send a request and wait `wait_s` seconds for the reply.

        Raises:
          CallTimeout: no answer in time.
          ActorUnavailable: the session is over.
        """
        outcome = Outcome()
        rid = next(self._ids)
        self._requests[rid] = outcome
        try:
            self.tell_agent(rid=rid, **message)
            if not self.wait(outcome, wait_s):
                raise errors.CallTimeout(f"the agent did not answer within {wait_s} s")
            reply: Message = outcome.unwrap()
            return reply
        finally:
            self._requests.pop(rid, None)

    def ask_agent_soon(self, **message: Any) -> Outcome:
        """Send a request; its reply will be the outcome's value."""
        outcome = Outcome()
        rid = next(self._ids)
        self._requests[rid] = outcome
        self.tell_agent(rid=rid, **message)
        return outcome

    def shared_segment(self, name: str, size: int) -> int:
        """A descriptor of the named shared memory, the same for all who ask.

        It is sparse: `size` bytes of address space, pages as they are touched. The
        caller owns the descriptor.
        """
        reply = self.ask_agent(op="segment", name=name, size=size)
        return int(reply["descriptor"])

    def read_lifeline(self) -> None:
        """Act on what the agent sent. From any thread; one at a time."""
        if not self._lifeline_lock.acquire(False):
            return
        try:
            for message, fd in self.lifeline.receive_nowait():
                if fd is not None:
                    message["descriptor"] = fd
                getattr(self, f"_ev_{message['ev']}")(message)
        except LifelineClosed:
            self._agent_lost()
        finally:
            self._lifeline_lock.release()

    def _ev_reply(self, message: Message) -> None:
        outcome = self._requests.pop(message["rid"], None)
        if outcome is not None:
            outcome.set_value(message)
            self.pump.wake()
        elif "descriptor" in message:
            os.close(message["descriptor"])

    def _ev_log(self, message: Message) -> None:
        if self.on_log is not None:
            self.on_log(message)

    def _ev_stop(self, message: Message) -> None:
        if self.on_stop_request is not None:
            self.on_stop_request()
            self.pump.wake()

    def _ev_event(self, message: Message) -> None:
        sink = self._monitors.get(message["monitor"])
        if sink is not None:
            sink(message)
            self.pump.wake()

    def _ev_died(self, message: Message) -> None:
        self.link(message["id"], message["incarnation"], "an actor", watch=False)
        link = self._links[message["id"]]
        if link.cause is not None or message["incarnation"] < link.incarnation:
            return
        cause = cause_of(message["record"])
        old = link.actor_id + message["incarnation"]
        following = message["following"]
        if following is None:
            link.cause = cause
            link.peer = None
        # What it sent before it died may still be under way.
        self._drain_briefly(link)
        if following is None:
            self._fail_pending(link, lambda: link.gone(delivered=None))
        else:
            link.incarnation = following
            link.peer = None
            self._retry_or_fail(link, cause)
        self.messenger.forget(old)
        self.objects.process_lost(old)
        self.plane.peer_lost(old)
        if self.server is not None:
            self.server.on_process_lost(old)
        self.pump.wake()

    def _drain_briefly(self, link: Link) -> None:
        end = perf_counter() + _DEATH_GRACE_S
        while link.outstanding and perf_counter() < end:
            if self.pump._leader_thread == threading.get_ident():
                self.pump.drain()
            else:
                self.pump.try_drain()
            os.sched_yield()

    def _outcomes_of(self, link: Link) -> list[Outcome]:
        lost = [o for o in list(self._pending.values()) if o.link is link]
        return lost + [o for o in list(self._values.values()) if o.link is link]

    def _fail_pending(self, link: Link, error: Callable[[], BaseException]) -> None:
        for outcome in self._outcomes_of(link):
            self._pending.pop(outcome.call_id, None)
            outcome.link = None
            outcome.set_error(error())
        link.outstanding = 0

    def _retry_or_fail(self, link: Link, cause: errors.Cause) -> None:
        for outcome in self._outcomes_of(link):
            self._pending.pop(outcome.call_id, None)
            link.outstanding = max(0, link.outstanding - 1)
            request = outcome.request
            if request is None or request.attempts_left < 1:
                outcome.link = None
                outcome.set_error(link.restarted(cause, delivered=None))
                continue
            left = request.attempts_left - 1
            outcome.request = request._replace(attempts_left=left)
            self._send_again(link, outcome)
        link.outstanding = max(0, link.outstanding)

    def _send_again(self, link: Link, outcome: Outcome) -> None:
        request = outcome.request
        keep = envelope.STREAM | envelope.ONE_WAY
        try:
            self.call(
                link,
                outcome,
                request.name,
                request.args,
                request.kwargs,
                request.flags & keep,
                request.options,
                blocking=False,
            )
        except BaseException as error:
            outcome.set_error(error)

    def _agent_lost(self) -> None:
        if not self.closed and self.on_agent_lost is not None:
            self.on_agent_lost()

    # -- monitors ----------------------------------------------------------

    def add_monitor(self, actor_id: int, sink: Callable[[Message], None]) -> int:
        """Have events of an actor passed to `sink`; returns the monitor's number."""
        number = next(self._ids)
        self._monitors[number] = sink
        reply = self.ask_agent(op="monitor", id=actor_id, monitor=number)
        if not reply["value"]:
            del self._monitors[number]
            raise errors.ActorUnavailable("there is no such actor in this session")
        return number

    def remove_monitor(self, actor_id: int, number: int) -> None:
        if self._monitors.pop(number, None) is not None and not self.closed:
            self.tell_agent(op="unmonitor", id=actor_id, monitor=number)

    # -- the end -----------------------------------------------------------

    def check_usable(self) -> None:
        """Refuse use in a forked child, where sockets and threads are not ours."""
        if os.getpid() != self._pid:
            raise errors.MooError(
                "this process was forked from one that uses mooactor; start it with "
                "moo.spawn, or with the multiprocessing method 'spawn'"
            )

    def close(self, linger_ms: int = 500) -> None:
        """End it: pending outcomes fail with `ActorUnavailable`."""
        if self.closed:
            return
        self.closed = True
        self.flush()
        for outcome in [*self._pending.values(), *self._values.values()]:
            outcome.set_error(errors.ActorUnavailable("the session has ended"))
        self._pending.clear()
        self.pump.close()
        self.lifeline.close()
        self.messenger.close(linger_ms)
        set_current(None)
        self.plane.close()
        # Data that was received keeps it alive; this object must not.
        del self.plane

    def statistics(self) -> dict[str, Any]:
        """Counts that should come back to rest; see `moo.stats()`."""
        return {
            "calls_pending": len(self._pending),
            "values_pending": len(self._values),
            "objects": len(self.objects),
            "links": len(self._links),
            "memory": {} if self.closed else self.plane.statistics(),
        }


def _remaining(timeout: float | None, deadline: float | None) -> float | None:
    if deadline is None:
        return timeout
    left = max(0.001, deadline - perf_counter())
    return left if timeout is None else min(timeout, left)


def _pair(payload: bytes | memoryview) -> tuple[int, int]:
    if len(payload) != PAIR.size:
        raise envelope.MalformedMessage("a control record of the wrong size")
    target, token = PAIR.unpack(payload)
    return target, token


def _one(payload: bytes | memoryview) -> tuple[int]:
    if len(payload) != _U64.size:
        raise envelope.MalformedMessage("a control record of the wrong size")
    return (int(_U64.unpack(payload)[0]),)


def _unpicklable(
    label: str, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> TypeError:
    where = codec.find_unpicklable(args, kwargs)
    return TypeError(f"{where} of a call to {label} cannot be pickled: {error}")


class _Lender(threading.local):
    to: tuple[Runtime, int] | None = None


_lender = _Lender()


class _lending:
    """Within it, Refs that this thread pickles know whom they are lent to."""

    __slots__ = ("_to", "_before")

    def __init__(self, runtime: Runtime, borrower: int) -> None:
        self._to = (runtime, borrower)

    def __enter__(self) -> None:
        self._before, _lender.to = _lender.to, self._to

    def __exit__(self, *exc: object) -> None:
        _lender.to = self._before


def lent_to() -> int | None:
    """The process for which this thread pickles just now, if for any."""
    return None if _lender.to is None else _lender.to[1]


_current: Runtime | None = None


def current_runtime() -> Runtime:
    """This process's runtime.

    Raises:
      ActorUnavailable: there is none.
    """
    if _current is None:
        raise errors.ActorUnavailable("no session runs in this process: moo.init()")
    return _current


def set_current_runtime(runtime: Runtime | None) -> None:
    global _current
    _current = runtime
