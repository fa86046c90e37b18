# SPDX-License-Identifier: MIT
"""`Stream`: the items of an actor's generator method, as it yields them."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, TypeVar

from mooactor import errors
from mooactor.actors.ref import deadline_passed, end_with, news_of, refuse_on_loop
from mooactor.control import envelope
from mooactor.control.complaints import was_interrupted
from mooactor.process.deadlock import Wait
from mooactor.process.objects.future import Future, Reply
from mooactor.process.runtime import Runtime

T_co = TypeVar("T_co", covariant=True)


class Channel(Future):
    """The receiving end of a stream: its items so far, and its end.

    The runtime holds it until the stream ends; the consumer holds the `Stream`.
    """

    __slots__ = ("items", "_runtime", "_label", "_timeout")

    def __init__(self, runtime: Runtime, label: str, timeout: float | None) -> None:
        super().__init__()
        self.heard = True  # nobody misses the end of a stream that is dropped
        self.items: deque[Reply] = deque()
        self._runtime = runtime
        self._label = label
        self._timeout = timeout

    def on_item(self, once: Iterator[Reply]) -> None:
        """An item has come; in the thread that dispatches. `once` holds it, until it
        is taken."""
        self.items.extend(once)
        self._runtime.poller.wake()
        for listener in list(self._listeners):
            listener()

    def expire(self) -> None:
        """Its own deadline has passed: it ends now, and the producer is told."""
        error = deadline_passed(self._label, self._timeout)
        self._runtime.caller.abandon(self, error)


class Stream(Iterator[T_co], AsyncIterator[T_co], Generic[T_co]):
    """Iterate over it, plainly or with ``async for``; once.

    The producer is at most `window` items ahead; then it stops until items are taken.
    An exception of the producer comes after the items before it. Closing the stream,
    or dropping it, ends the producer.
    """

    def __init__(
        self, runtime: Runtime, label: str, window: int, timeout: float | None = None
    ) -> None:
        self._producer = 0
        self._runtime = runtime
        self._label = label
        self.channel = Channel(runtime, label, timeout)
        self._window = window
        self._taken = 0  # items
        self._credited = 0  # as many of them, or of those to come, as it has credit for

    def open(self, process_id: int) -> None:
        """Tell the producer its window."""
        self._producer = process_id
        self._give_credit(self._window)

    def _give_credit(self, items: int) -> None:
        if self._runtime.closed:
            return  # nobody is there to produce more
        record = envelope.pack_record(
            envelope.CREDIT, self.channel.call_id, b"", 0, float(items)
        )
        self._runtime.messenger.peer(self._producer).send(record)

    def _arrived(self) -> bool:
        return bool(self.channel.items) or self.channel.state != 0

    def _let_go_on(self) -> None:
        """The next item is about to be taken: tell the producer, not for each one."""
        due = self._taken + 1 - self._credited
        if 2 * due >= self._window and not self.channel.state:
            self._give_credit(due)
            self._credited += due

    def _value(self, item: Reply) -> T_co:
        """Decode the next item. It stays the next one, unless that fails."""
        self._let_go_on()
        try:
            value: T_co = item.value()
            return value
        except BaseException as error:
            if not was_interrupted(error) and self._is_next(item):
                self._taken += 1
                del self.channel.items[0]
            raise

    def _is_next(self, item: Reply) -> bool:
        """Whether no signal handler has taken it meanwhile. Calls nothing, as `del`
        then must not meet another item."""
        items = self.channel.items
        if items:
            return items[0] is item
        return False

    def __next__(self) -> T_co:
        """The next item. It stays the next one if a signal handler raises meanwhile.

        Raises:
          StopIteration: the generator has returned.
          BaseException: it raised, or its actor died.
          RuntimeError: on a running event loop; use ``async for`` there.
        """
        items = self.channel.items
        while True:
            while not items:
                self._await_one()
            item = items[0]
            value = self._value(item)
            if self._is_next(item):
                # No call comes after this, in which a signal handler could lose it.
                self._taken += 1
                del items[0]
                return value

    def _await_one(self) -> None:
        """Wait for an item.

        Raises:
          StopIteration, BaseException: there are no more, as `__next__` has it.
        """
        self._end_with_session()
        if not self.channel.state:
            refuse_on_loop(self._label)
            if not self._runtime.wait_some((self.channel,), 1, self._arrived):
                self._not_done()
        if self.channel.state and not self.channel.items:
            self.channel.unwrap()  # raises the error at its end
            raise StopIteration

    def _end_with_session(self) -> None:
        if self._runtime.closed:
            end_with(self._runtime, self.channel, self._label)

    def _not_done(self) -> None:
        if self._runtime.closed:
            sent = bool(self.channel.call_id)
            raise self._runtime.over(self._label, was_sent=sent)
        raise errors.CallTimeout(
            f"{self._label} gave no item within the deadline of the call that waits "
            "for it; give that call a longer timeout"
        )

    async def __anext__(self) -> T_co:
        items = self.channel.items
        while True:
            while not items:
                self._end_with_session()
                if self.channel.state and not items:
                    self.channel.unwrap()
                    raise StopAsyncIteration
                awaited = (self.channel,)
                await news_of(self._runtime, awaited, Wait(awaited, 1), self._arrived)
            item = items[0]
            value = self._value(item)
            if self._is_next(item):
                self._taken += 1  # as in `__next__`
                del items[0]
                return value

    def close(self) -> None:
        """End the producer, and drop the items that are here already."""
        self.channel.items.clear()
        self._end_with_session()
        if self.channel.state:
            return
        self._runtime.caller.cancel(self.channel)

    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    def __enter__(self) -> Stream[T_co]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        # A signal handler may have cut its construction short, or the start of its
        # call, which may be sent already.
        channel: Channel | None = getattr(self, "channel", None)
        if channel is None or channel.link is None or channel.state:
            return
        if not self._runtime.closed:
            producer, number = channel.link.process_id, channel.call_id
            self._runtime.sender.post_later(producer, envelope.CANCEL, number)

    def __reduce__(self) -> Any:
        raise TypeError(
            "a stream has one consumer and cannot be sent elsewhere; pass the handle, "
            "and let the other side call the generator"
        )

    def __repr__(self) -> str:
        return f"<Stream {self._label}>"
