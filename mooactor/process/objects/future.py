# SPDX-License-Identifier: MIT
"""Futures: the one result that a request will have, pending, then done for good."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from mooactor.control import codec
from mooactor.control.complaints import complain, was_interrupted
from mooactor.control.inspection import drop_traceback
from mooactor.errors import ActorDied, ActorUnavailable, Cancelled, MooError, text_of
from mooactor.process.objects.holds import Claims, Hold
from mooactor.tensors.fetches import Import
from mooactor.tensors.plane import DataPlane, length_of

PENDING, RAW, VALUE, ERROR = range(4)
STORED = -1  # as RAW, but its data is elsewhere, or was: see `results`
_UNDECIDED = (PENDING, None, None)
_MOST_SAID = 256  # texts of errors


class Future:
    """Set once, from any thread; read as often as one likes.

    A reply is kept as it came (RAW) and decoded by the first reader, in its thread. One
    that is STORED where it was made is fetched first, once somebody wants it.

    Invariants. A signal handler, a finalizer or another thread may enter any method
    while another call of it is under way, and an exception may leave it at any point:

    * The first result that is appended to ``_results`` is the result. Appending is one
      step, and all later steps can be repeated, by any thread.
    * All that must happen before its end is seen has happened once ``state`` says so:
      whoever sets ``state`` has done it, also for the thread whose result it is. If a
      signal handler cut that short, the next end decides nothing, but does it.
    * A listener is taken off the list after it was called. So each is called at least
      once, perhaps twice; it must not mind.
    * No lock is held while code of the user's runs, but that of this one future while
      its result is decoded.
    """

    __slots__ = (
        "state",
        "_result",
        "_results",
        "_listeners",
        "call_id",
        "link",
        "request",
        "deadline",
        "heard",
        "wanted",
        "__weakref__",
    )

    parts: Sequence[Future] = ()  # the calls that it is made of, if not one
    gathers: ClassVar[bool] = False  # True: its value is the list of its parts' values
    told = False  # True: of a `tell`, for which nobody waits; see `losses`
    speaks = False  # True: of a call, whose error is printed if nobody asks for it

    def __init__(self) -> None:
        self.state = PENDING
        self._result: Any = None
        self._results: list[tuple[int, Any, Callable[[Future], object] | None]] = []
        # A list from the beginning: of two threads that made one, the one would append
        # to a list that the other throws away.
        self._listeners: list[Callable[[], object]] = []
        self.call_id = 0
        self.link: Any = None  # the `Link` to the callee, while it is pending
        self.request: Any = None  # the `Repeatable` of a call with `retries=`
        self.deadline: float | None = None  # perf_counter; see `expire`
        self.heard: bool | _Unheard = False  # see `hear`
        self.wanted = False  # somebody reads it: its data is fetched when it comes

    def set_raw(self, reply: Any) -> bool:
        """End it with a `Reply`, decoded by its first reader. False: it had ended
        before."""
        if type(reply) is FailedReply and not (self._results or self.heard):
            self.heard = _Unheard(reply)
        return self._set(RAW, reply)

    def set_stored(self, reply: Elsewhere) -> bool:
        """As `set_raw`, of a reply whose data is elsewhere, all or in part."""
        return self._set(STORED, reply)

    def elsewhere(self) -> Elsewhere | None:
        """Its reply, if that was stored elsewhere and not decoded yet."""
        # One read: another thread may decode it meanwhile.
        first = self._results[0] if self._results else _UNDECIDED
        return first[1] if first[0] == STORED else None

    def is_here(self) -> bool:
        """Whether it is done, and its data is in this process."""
        if self.state != STORED:
            return bool(self.state)
        away = self.elsewhere()
        return away is None or away.is_here()

    def pull(self) -> list[Arrival]:
        """Have its data fetched, if that is elsewhere; returns what to wait for then.
        Only once it is done."""
        away = self.elsewhere()
        return [] if away is None else away.pull()

    def missing(self) -> Sequence[Future]:
        """Futures to wait for until its data is here: itself, or those of the data."""
        return self.pull() if self.state else (self,)

    def hear(self) -> None:
        """Somebody knows of its error, if it has one, or will be told elsewhere. If
        nobody does when this is dropped, the error is printed, as asyncio does with
        those of tasks."""
        if isinstance(self.heard, _Unheard):
            self.heard.error = None
        self.heard = True

    def set_value(self, value: Any) -> bool:
        """End it with a value. False: it had ended before."""
        return self._set(VALUE, value)

    def set_error(
        self, error: BaseException, before: Callable[[Future], object] | None = None
    ) -> bool:
        """End it with an error, whose traceback is dropped: see `unwrap`. False: it
        had ended before. `before` is called with this future when this error is
        certain to be its end, and before anybody sees that; perhaps more than once."""
        drop_traceback(error)
        if self.request is not None:
            self.request.speaks_for_all(error)
        if self.speaks and self.link is not None and not (self._results or self.heard):
            self.heard = _Unheard(error)
        return self._set(ERROR, error, before)

    def _set(
        self,
        state: int,
        result: Any,
        before: Callable[[Future], object] | None = None,
    ) -> bool:
        # Several threads may race (a reply against a death notice): the first wins.
        mine = (state, result, before)
        if not self.state:
            self._results.append(mine)
        first = self._results[0]
        failed: BaseException | None = None
        if first[2] is not None and not self.state:
            try:
                first[2](self)
            except BaseException as error:
                if was_interrupted(error):
                    raise
                failed = error
        if not self.state:
            self._result = first[1]
            self.state = first[0]
        if self._listeners:
            self._call_listeners()
        if failed is not None:
            raise failed
        return first is mine

    def is_decided(self) -> bool:
        """Whether its end is certain, also if nobody can see it yet."""
        return bool(self._results)

    def is_over(self) -> bool:
        """Whether its end can be seen, and all listeners have been told."""
        return bool(self.state) and not self._listeners

    def _call_listeners(self) -> None:
        listeners = self._listeners
        while listeners:
            try:
                listener = listeners[0]
            except IndexError:
                return  # another thread was quicker
            listener()
            try:
                listeners.remove(listener)
            except ValueError:
                pass

    def listen(self, listener: Callable[[], object]) -> None:
        """Call `listener` once it is done: at once if it is, else in the thread
        that completes it. It must be quick, must not raise, and must not mind being
        called twice."""
        self._listeners.append(listener)
        if self.state:
            self._call_listeners()

    def unlisten(self, listener: Callable[[], object]) -> None:
        """Take a listener off the list, if it is still there."""
        try:
            if self._listeners:
                self._listeners.remove(listener)
        except ValueError:
            pass

    def expire(self) -> None:
        """End it: its deadline has passed. Only futures with a deadline have this."""

    def end_with_session(self) -> None:
        """End it if its session is over, or is not this process's: then nobody else
        would."""

    def unwrap(self) -> Any:
        """Return the value, or raise the error. Only once it is done.

        An error's traceback holds the frames that it passed, and they their variables.
        If the future were among these, the future, its error and the arguments of its
        call would live until the garbage collector finds them.
        """
        if self.state <= RAW:
            self._decode()
        try:
            if self.state == ERROR:
                self.hear()
                raise self._result
            return self._result
        finally:
            del self

    def failure(self) -> BaseException | None:
        """The error it ended with, None if it has a value. Only once it is done. A
        value that is stored elsewhere is not fetched for that."""
        away = self.elsewhere()
        if away is not None and not away.is_here():
            return away.failure()
        if self.state <= RAW:
            self._decode()
        if self.state == VALUE:
            return None
        self.hear()
        error: BaseException = self._result
        return error

    def _decode(self) -> None:
        if self.state == STORED:
            for here in self.pull():
                here.wait()
        try:
            with _decoding.setdefault(id(self), threading.RLock()):
                if self.state <= RAW:
                    self._decode_now()
        finally:
            _decoding.pop(id(self), None)

    def _decode_now(self) -> None:
        raw = self._result
        try:
            decoded = VALUE, raw.value(), None
        except BaseException as error:
            if was_interrupted(error):
                raise  # it was not the result's; the next reader decodes it
            # Frames of here say nothing of an error of there.
            if not isinstance(raw, Reply) or raw.failed:
                drop_traceback(error)
            decoded = ERROR, error, None
        if self.state <= RAW:  # else a signal handler of this thread has read it
            self._results[:] = [decoded]
            self._result = decoded[1]
            self.state = decoded[0]
        if decoded[0] == ERROR and isinstance(raw, Reply):
            raw.let_go()  # the frames of the error may have it


class Arrival(Future):
    """Done when data that was elsewhere is here, or is known not to come."""

    __slots__ = ("_wait",)

    def __init__(self, wait: Callable[[Future], object]) -> None:
        super().__init__()
        self._wait = wait

    def wait(self) -> None:
        """Block until it is done."""
        if not self.state:
            self._wait(self)


class Elsewhere(Protocol):
    """In place of a `Reply`, if data of it is elsewhere."""

    home: Hold | None  # of a single value, until it is here

    def is_here(self) -> bool: ...
    def pull(self) -> list[Arrival]: ...
    def failure(self) -> BaseException | None: ...
    def value(self) -> Any: ...


class Reply:
    """A reply as it came, not yet decoded. The one who has its value drops it.

    Memory attached to a result is taken over on arrival, because its owner may die
    before somebody reads it. Arguments of queued calls are taken over when they run: if
    their sender dies first, they are not needed. Data on another host is fetched on
    arrival, see `inbound`, which moves it from `descriptors` to `buffers`.

    It may be dropped at any time: memory (`AttachedReply`) and borrows (see `holds`)
    are given back.
    """

    __slots__ = (
        "payload",
        "failed",
        "descriptors",
        "buffers",
        "claims",
        "_imports",
        "_plane",
        "__weakref__",
    )

    def __init__(
        self,
        payload: Any,
        descriptors: list[bytes],
        failed: bool,
        plane: DataPlane,
        claims: Claims | None = None,
    ) -> None:
        self.payload = payload
        self.failed = failed
        self.descriptors = descriptors
        self.buffers: list[memoryview] = []
        self.claims = claims
        self._imports: list[Import] | None = None  # while it is taken over
        self._plane = plane

    def is_remote(self) -> bool:
        """Whether taking it over would wait for a network."""
        return any(map(self._plane.is_remote, self.descriptors))

    def size(self) -> int:
        """Bytes of memory attached and not yet taken over."""
        return sum(map(length_of, self.descriptors))

    def take_over(self) -> None:
        """Map the attached memory; from here on it lives by reference.

        Raises:
          ActorDied: its owner died before it handed the memory over.
        """
        if self.descriptors:
            if self._imports is None:
                self._imports = list(map(self._plane.importing, self.descriptors))
            self.buffers = [one.result() for one in self._imports]
            self.descriptors, self._imports = [], None
            self.__class__ = Reply  # there is nothing left to be given back

    def replaced_by(self, error: bytes) -> Reply:
        """A reply that fails, in place of this; `error` is from `encode_error`."""
        self.claims = None
        return Reply(error, [], True, self._plane)

    def value(self) -> Any:
        """Decode it. Only one value of it is used: it is decoded again if a signal
        handler has cut that short.

        Raises:
          BaseException: the remote exception, or the failure of decoding.
        """
        if self.claims is None:
            return self._decoded()
        return self.claims.decode(self._decoded)

    def _decoded(self) -> Any:
        if self.failed:
            raise codec.decode_error(self.payload)
        self.take_over()
        if not self.buffers:
            return None if self.payload is None else codec.decode(self.payload)
        return codec.decode(self.payload, buffers=self.buffers)

    def let_go(self) -> None:
        """Give back what no value of it has; it is not decoded any more."""
        self.buffers = []
        if self.claims is not None:
            self.claims.give_back()


class AttachedReply(Reply):
    """One with memory attached, which it gives back when it is dropped.

    Others need nothing done then, nor this one once its memory is taken over: it is a
    `Reply` from there on. Python drops a Ctrl-C that comes while it runs a ``__del__``,
    and there are tens of thousands of replies a second.
    """

    __slots__ = ()

    def __del__(self) -> None:
        try:
            descriptors = self.descriptors
        except AttributeError:
            return  # a signal handler cut `__init__` short
        for descriptor in descriptors:
            try:
                self._plane.discard(descriptor)
            except (ValueError, RuntimeError, ActorUnavailable):
                # Nonsense from a broken peer: it holds no memory. Or this process was
                # forked, and the memory is its parent's.
                pass


class FailedReply(Reply):
    """A call's exception."""

    __slots__ = ()


class _Unheard:
    """The error of a future that nobody has asked for. When it is dropped, with the
    future, the error is printed: of those of mooactor each text once, because a death
    may end thousands of calls. Nothing is said of what the program has brought about
    itself: it has cancelled the call, or killed or stopped the actor."""

    __slots__ = ("error",)
    said: ClassVar[set[str]] = set()

    def __init__(self, error: FailedReply | BaseException) -> None:
        self.error: FailedReply | BaseException | None = error

    def __del__(self) -> None:
        error = getattr(self, "error", None)
        if error is None or sys.is_finalizing():
            return
        if isinstance(error, FailedReply):
            error = codec.decode_error(error.payload)
        if _is_wanted(error):
            return
        if isinstance(error, MooError):
            if (text := text_of(error)) in self.said:
                return
            if len(self.said) >= _MOST_SAID:
                self.said.clear()
            self.said.add(text)
        complain("mooactor: a call failed, and nobody asked for its result:", error)


def _is_wanted(error: BaseException) -> bool:
    if not isinstance(error, ActorDied):
        return isinstance(error, Cancelled)
    cause = error.cause
    while cause is not None and cause.origin is not None:
        cause = cause.origin
    return cause is not None and cause.kind in ("killed", "stopped", "owner")


def taken_over(reply: Reply) -> Exception | None:
    """Map the memory attached to a reply; the error if that failed.

    Raises:
      BaseException: a signal handler raised it; the next call of this goes on.
    """
    try:
        reply.take_over()
    except Exception as error:
        if was_interrupted(error):
            raise
        return error
    return None


# By the id of a future that is being decoded. The locks that a forked child finds
# here may be held by threads that it does not have.
_decoding: dict[int, threading.RLock] = {}
os.register_at_fork(after_in_child=_decoding.clear)
