# SPDX-License-Identifier: MIT
"""The one result that a request will have: pending, then done once and for good."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from mooactor.control import codec
from mooactor.tensors.descriptors import length_of
from mooactor.tensors.plane import DataPlane

PENDING, RAW, VALUE, ERROR = range(4)


class Waiter:
    """A thread that sleeps until some of several outcomes are done.

    ``needed`` counts down as they are; the thread is woken at zero.
    """

    __slots__ = ("needed", "lock")

    def __init__(self, needed: int = 1) -> None:
        self.needed = needed
        self.lock = threading.Lock()
        self.lock.acquire()

    def satisfied(self) -> bool:
        return self.needed <= 0

    def notify(self) -> None:
        self.needed -= 1
        if self.needed <= 0:
            self.wake()

    def wake(self) -> None:
        """Let the thread look again. Waking twice is as good as once."""
        try:
            self.lock.release()
        except RuntimeError:
            pass  # already awake


class Outcome:
    """Set once, from any thread; read as often as one likes.

    A reply is kept as it came (RAW) and decoded by the first reader, in its thread.
    """

    __slots__ = (
        "state",
        "_result",
        "_listeners",
        "call_id",
        "link",
        "request",
        "__weakref__",
    )

    def __init__(self) -> None:
        self.state = PENDING
        self._result: Any = None
        self._listeners: list[Callable[[], None]] | None = None
        self.call_id = 0
        self.link: Any = None  # the `Link` to the callee, while it is pending
        self.request: Any = None  # what `retries=` sends again

    def set_raw(self, reply: Any) -> bool:
        return self._set(RAW, reply)

    def set_value(self, value: Any) -> bool:
        return self._set(VALUE, value)

    def set_error(self, error: BaseException) -> bool:
        return self._set(ERROR, error)

    def _set(self, state: int, result: Any) -> bool:
        # Several threads may race (a reply against a death notice): the first wins.
        with _set_lock:
            if self.state:
                return False
            self._result = result
            self.state = state
            listeners, self._listeners = self._listeners, None
        if listeners:
            for listener in listeners:
                listener()
        return True

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` once it is done: at once if it is, else in the thread
        that completes it. It must be quick and must not raise."""
        with _set_lock:
            if not self.state:
                if self._listeners is None:
                    self._listeners = []
                self._listeners.append(listener)
                return
        listener()

    def unlisten(self, listener: Callable[[], None]) -> None:
        with _set_lock:
            if self._listeners and listener in self._listeners:
                self._listeners.remove(listener)

    def unwrap(self) -> Any:
        """The value, or raise the error. Only once it is done."""
        if self.state == RAW:
            self._decode()
        if self.state == ERROR:
            raise self._result
        return self._result

    def failure(self) -> BaseException | None:
        """The error it ended with, None if it has a value. Only once it is done."""
        if self.state == RAW:
            self._decode()
        return self._result if self.state == ERROR else None

    def _decode(self) -> None:
        with _decode_lock:
            if self.state != RAW:
                return
            reply = self._result
            try:
                self._result, state = reply.value(), VALUE
            except BaseException as error:
                self._result, state = error, ERROR
            self.state = state


class Reply:
    """A reply as it came, not yet decoded.

    Memory attached to a result is taken over on arrival, because its owner may die
    before somebody reads it. Arguments of queued calls are taken over when they run:
    if their sender dies first, nobody needs them. What is on another host is fetched
    on arrival, see `arrivals`, which moves it from `descriptors` to `buffers`.
    """

    __slots__ = ("payload", "failed", "descriptors", "buffers", "_plane")

    def __init__(
        self, payload: Any, descriptors: list[bytes], failed: bool, plane: DataPlane
    ) -> None:
        self.payload = payload
        self.failed = failed
        self.descriptors = descriptors
        self.buffers: list[memoryview] = []
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
        while self.descriptors:
            self.buffers.append(self._plane.import_(self.descriptors[0]))
            del self.descriptors[0]

    def replaced_by(self, error: bytes) -> Reply:
        """One that fails, in place of this; `error` is as `encode_error` has it."""
        return Reply(error, [], True, self._plane)

    def value(self) -> Any:
        """Decode it, once.

        Raises:
          BaseException: the remote exception, or what went wrong in decoding.
        """
        if self.failed:
            raise codec.decode_error(self.payload)
        self.take_over()
        if not self.buffers:
            return None if self.payload is None else codec.decode(self.payload)
        buffers, self.buffers = self.buffers, []
        return codec.decode(self.payload, buffers=buffers)

    def __del__(self) -> None:
        for descriptor in self.descriptors:
            try:
                self._plane.discard(descriptor)
            except (ValueError, RuntimeError):
                pass  # nonsense from a broken peer: it holds no memory


def taken_over(reply: Reply) -> Exception | None:
    """Map what is attached to a reply; the error if that failed."""
    try:
        reply.take_over()
    except Exception as error:
        return error
    return None


# One lock for all outcomes: it is held for a few instructions only, and a lock per
# outcome would cost more than all the contention there is.
_set_lock = threading.Lock()
_decode_lock = threading.RLock()
