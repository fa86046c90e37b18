# SPDX-License-Identifier: MIT
"""`Map`: results of one method over many items, spread over a group.

Invariants, at every moment between two steps of the consumer:

* at most ``members * in_flight`` items have been taken whose results the consumer has
  not (one more, after a step that a signal handler has cut short), and at most
  `in_flight` of them are under way at one member;
* an item is in exactly one state: waiting to be sent, under way, or settled;
* an item is sent again only if it certainly did not run, or if `retries` allows it;
* the error of an item says what is known of all its attempts.

Only the consumer's own thread sends, so a consumer that stops stops everything.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

from mooactor import errors
from mooactor.actors.api import wait
from mooactor.actors.handle import RemoteMethod
from mooactor.actors.monitor import Monitor
from mooactor.actors.ref import Ref
from mooactor.control import envelope
from mooactor.control.interrupts import was_interrupted
from mooactor.process import checks
from mooactor.process.calls import context, either, speak_for_all
from mooactor.process.current import current_runtime
from mooactor.process.deadlock import Wait
from mooactor.process.loops import refuse_to_block
from mooactor.process.supervision import Restarted, Started

R_co = TypeVar("R_co", covariant=True)

_GONE = (errors.ActorDied, errors.ActorUnavailable)  # another member may do better


class _Member:
    """One actor of the group."""

    def __init__(self, method: RemoteMethod) -> None:
        self.method = method
        self._news: Monitor | None = None  # since it may have died
        self._runs = True

    @property
    def alive(self) -> bool:
        return self.method._handle._where()[1].cause is None

    def usable(self) -> bool:
        """Whether it runs, as far as this process knows."""
        if not self.alive:
            return False
        while self._news is not None and self._news._events:
            self._runs = isinstance(self._news._next(), Started | Restarted)
        return self._runs

    def may_have_died(self) -> None:
        """It gets no more until it is known to run. The first news of it is old: of
        one that has not died, that it was started."""
        if self._news is None and self.alive:
            self._news, self._runs = Monitor(self.method._handle), False

    def close(self) -> None:
        if self._news is not None:
            self._news.close()
            self._news = None


class _Item:
    """One item, and its progress. ``before``: whether an earlier attempt reached its
    method, as `delivered` of errors."""

    __slots__ = ("value", "ref", "member", "retries", "tried", "before", "settled")

    def __init__(self, value: Any, retries: int) -> None:
        self.value = value
        self.ref: Ref[Any] | None = None
        self.member: _Member | None = None
        self.retries = retries
        self.tried: list[_Member] = []
        self.before: bool | None = False
        self.settled = False

    @property
    def under_way(self) -> bool:
        return self.ref is not None and not self.settled

    def send_again(self, delivered: bool | None, retries: int) -> None:
        """After an attempt was lost; with so many left."""
        before = either(self.before, delivered)
        self.ref, self.before, self.retries = None, before, retries


class Map(Iterator[R_co], AsyncIterator[R_co], Generic[R_co]):
    """Iterate over it, plainly or with ``async for``, once; see `Group.map`.

    The first items are sent at once. One thread at a time may iterate. Closing it,
    dropping it and the first error all cancel what is under way.
    """

    def __init__(
        self,
        methods: Sequence[RemoteMethod],
        items: Iterable[Any],
        *,
        ordered: bool = True,
        in_flight: int = 2,
        retries: int = 0,
    ) -> None:
        """Raises TypeError, ValueError: an argument makes no sense."""
        self._taken: list[_Item] = []  # in their order; a handful
        if not isinstance(items, Iterable):
            raise TypeError(f"{checks.shown('items', items)} must be an iterable")
        checks.flag("ordered", ordered)
        checks.count("in_flight", in_flight, "a number of items per member", least=1)
        checks.count("retries", retries, "a number of further attempts")
        if not methods:
            raise ValueError("this group has no members: map needs at least one")
        self._runtime = current_runtime()
        self._label = f"a result of {methods[0]}"
        self._members = [_Member(method) for method in methods]
        self._items = iter(items)
        self._drawn: deque[Any] = deque()  # from them, and not taken yet; one at most
        self._ordered = ordered
        self._in_flight = in_flight
        self._retries = retries
        self._failure: BaseException | None = None  # of an item, or their own iterator
        self._left: list[Ref[Any]] = []  # under way, and not wanted any more
        self._fill()

    # -- sending -----------------------------------------------------------

    def _fill(self, due: int = 0) -> None:
        """Take items, and send them; `due` of those taken are about to leave."""
        while len(self._taken) - due < len(self._members) * self._in_flight:
            try:
                if not self._drawn:
                    self._drawn.extend(islice(self._items, 1))
            except Exception as error:
                if was_interrupted(error):
                    raise
                self._failure = error  # comes after the results before it
            if not self._drawn:
                self._items = iter(())
                break
            item = _Item(self._drawn[0], self._retries)
            # No call comes between these, so no signal handler does.
            self._taken += [item]
            del self._drawn[0]
            self._send()  # at once: the next item may come in the same buffer
        self._send()

    def _send(self) -> None:
        if all(item.ref is not None for item in self._taken):
            return
        loads = self._loads()
        for item in self._taken:
            if item.ref is None:
                member = self._free_member(item, loads)
                if member is None:
                    break
                self._start(item, member)
                loads[member] += 1
        self._runtime.flush()

    def _loads(self) -> Counter[_Member]:
        """The number of items at each member; counted anew, so that it is never
        wrong."""
        return Counter(
            item.member for item in self._taken if item.member and item.under_way
        )

    def _free_member(self, item: _Item, loads: Counter[_Member]) -> _Member | None:
        members = [member for member in self._members if member.usable()]
        members = members or [member for member in self._members if member.alive]
        if not members:  # all are dead: the call to one gives the reason
            return item.member or self._members[0]
        free = [member for member in members if loads[member] < self._in_flight]
        return min(free, key=lambda m: (m in item.tried, loads[m]), default=None)

    def _start(self, item: _Item, member: _Member) -> None:
        item.member = member
        item.tried.append(member)
        try:
            item.ref = member.method.remote(item.value)
            item.ref.want()
        except BaseException as error:
            ref: Ref[Any] = Ref(self._runtime, member.method)
            interrupted = was_interrupted(error)
            ref.set_error(_unknown(member.method) if interrupted else error)
            item.ref = ref  # which raises it at the item's place
            if interrupted or not isinstance(error, Exception):
                raise

    # -- results -----------------------------------------------------------

    def _settle(self) -> None:
        """Look for ended calls, and send again those that may be."""
        for item in self._taken:
            if item.under_way and item.ref is not None and item.ref.is_here():
                error = item.ref.failure()
                if not self._is_sent_again(item, error):
                    item.value, item.settled = None, True
        self._send()

    def _is_sent_again(self, item: _Item, error: BaseException | None) -> bool:
        """Whether there is another attempt, because this one was lost."""
        if item.member is None or not isinstance(error, _GONE):
            return False
        if isinstance(error, errors.ActorDied):
            item.member.may_have_died()
        others = [m for m in self._members if m.alive and m not in item.tried]
        if error.delivered is False and others:
            item.send_again(False, item.retries)
        elif item.retries > 0 and any(m.alive for m in self._members):
            item.send_again(error.delivered, item.retries - 1)
        return item.ref is None

    def _ready(self) -> _Item | None:
        """The item whose result is next, once that is there."""
        self._settle()
        some = self._taken[:1] if self._ordered else self._taken
        return next((item for item in some if item.settled), None)

    def _result(self, item: _Item) -> R_co:
        """Its value; it is taken in the last step, which nothing can interrupt."""
        assert item.ref is not None
        error = item.ref.failure()
        if error is not None:
            speak_for_all(error, item.before)
            self._drop_all(error)
            self._ended()
            raise error
        self._fill(due=1)
        value: R_co = item.ref.unwrap()
        place = self._taken.index(item) if item in self._taken else len(self._taken)
        del self._taken[place : place + 1]
        return value

    def _drop_all(self, failure: BaseException | None) -> None:
        """From here on there is only this error to come, if any."""
        left = self._refs()
        self._left += left
        self._taken, self._failure = [], failure

    def _ended(self) -> bool:
        """Whether all results were taken.

        Raises:
          BaseException: the items' iterator, or an item, raised it; once.
        """
        if self._taken:
            return False
        self._stop()
        error, self._failure = self._failure, None
        if error is not None:
            raise error
        return True

    def _refs(self) -> list[Ref[Any]]:
        return [item.ref for item in self._taken if item.ref and item.under_way]

    # -- iterating ---------------------------------------------------------

    def __iter__(self) -> Map[R_co]:
        return self

    def __next__(self) -> R_co:
        """The next result.

        Raises:
          StopIteration: there are no more.
          BaseException: the call of this item failed, and `close` was called.
          RuntimeError: on a running event loop; use ``async for`` there.
        """
        if self._ended():
            raise StopIteration
        while (item := self._ready()) is None:
            refuse_to_block(self._label, "`async for`")
            wait(self._refs(), fetch=True)
        return self._result(item)

    def __aiter__(self) -> Map[R_co]:
        return self

    async def __anext__(self) -> R_co:
        if self._ended():
            raise StopAsyncIteration
        while (item := self._ready()) is None:
            await self._arrival(self._refs())
        return self._result(item)

    async def _arrival(self, refs: list[Ref[Any]]) -> None:
        """Sleep, on the running loop, until one of them is done."""
        event, arrived = self._runtime.poller.event()
        awaited = [one for ref in refs for one in ref.missing()]
        for one in awaited:
            one.listen(arrived)
        asyncio.get_running_loop().call_soon(self._runtime.flush)
        call, waiting = context.get(), Wait(refs, 1)
        if call is not None:
            call.awaits.append(waiting)
        try:
            await event.wait()
        finally:
            if call is not None:
                call.awaits.remove(waiting)
            for one in awaited:
                one.unlisten(arrived)

    # -- the end -----------------------------------------------------------

    def close(self) -> None:
        """Take no more items, and cancel what is under way."""
        self._drop_all(None)
        self._stop()

    def _stop(self) -> None:
        self._items = iter(())
        self._drawn.clear()
        for ref in self._left:
            ref.cancel()
        self._left = []
        for member in self._members:
            member.close()

    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    def __enter__(self) -> Map[R_co]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        for ref in self._refs():
            link = ref.link
            if link is not None and not ref.state and not self._runtime.closed:
                number = ref.call_id
                self._runtime.sender.post_later(
                    link.process_id, envelope.CANCEL, number
                )

    def __repr__(self) -> str:
        return f"<Map of {self._members[0].method} over {len(self._members)} members>"


def _unknown(method: RemoteMethod) -> errors.ActorUnavailable:
    return errors.ActorUnavailable(
        f"a signal handler raised while a call of {method} was sent; it may have run",
        delivered=None,
    )
