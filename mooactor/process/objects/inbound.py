# SPDX-License-Identifier: MIT
"""Inbound transfers: data of records that came from other hosts, still under way.

A record is a few bytes and comes at once; its attached data may be a gigabyte. So the
data is fetched while other records go on, and the record's handler is called when all
of it is there.

The bytes under way are bounded; data beyond the bound waits at its sender. There are
four *lanes*, each with a bound of its own: small data does not wait behind large, and
the results that a running method waits for do not wait behind the arguments of later
calls.
"""

from __future__ import annotations

import copy
import itertools
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import get_ident
from time import perf_counter, sleep
from typing import Any, TypeVar

from mooactor import errors
from mooactor.control.complaints import was_interrupted
from mooactor.process.objects.future import Reply
from mooactor.tensors.fetches import Fetch
from mooactor.tensors.plane import DataPlane, owner_of


class Lane:
    """Transfers that share a bound.

    `until_release`: they count until then, because arrived data is of no use before its
    turn; otherwise until all of their data is there.
    """

    __slots__ = ("bound", "until_release", "taken", "flying", "waiting")

    def __init__(self, bound: int, until_release: bool) -> None:
        self.bound = bound
        self.until_release = until_release
        self.taken = 0  # bytes
        self.flying = 0  # transfers
        self.waiting: deque[Transfer] = deque()


class Transfer:
    """The data of one record. `error` is its failure, once it is `done`."""

    def __init__(self, reply: Reply, then: Callable[[], None], lane: Lane) -> None:
        self.reply = reply
        self.then = then
        self.lane = lane
        # A single transfer of any size fits.
        self.cost = min(reply.size(), lane.bound // 2)
        self.owners = [owner_of(descriptor) for descriptor in reply.descriptors]
        self.arrived = perf_counter()
        self.begun = False  # it is counted
        self.descriptors = list(reply.descriptors)
        self.fetches: list[Fetch] = []  # of these, the last one perhaps not begun
        self.tags: dict[int, Fetch] = {}  # those under way
        self.until = 0.0  # when it has waited too long for memory
        self.failure: BaseException | None = None  # the first; it is being ended
        self.done = False
        self.told = False
        self.error: BaseException | None = None

    @property
    def lost(self) -> bool:
        """Whether its sender died or was cut off, so that its data cannot come. Only
        news of a death tells the two apart."""
        return isinstance(self.error, errors.ActorDied)

    def cut_off(
        self,
        what: str,
        *,
        before: str = "",
        after: str = "",
        delivered: bool | None = None,
    ) -> errors.ActorUnavailable:
        """The error of one that is lost, when no death was told of. `what` was under
        way; `before` and `after` are the meaning for the call."""
        broke = f"the connection broke while {what} under way ({self.error})"
        return errors.ActorUnavailable(before + broke + after, delivered=delivered)


T = TypeVar("T")

#: The most bytes of small data.
SMALL = 1 << 20
#: Bytes in a lane, at most: of large data, and of small.
LARGE_BYTES = 256 << 20
SMALL_BYTES = 64 << 20
_PART_OF_MEMORY = 8
#: The time after a lost connection in which news of a death, its cause, may come. It
#: takes milliseconds, except on a busy machine.
NEWS_S = 0.5
#: The time that data waits for memory that others may give back.
ROOM_S = 2.0
#: Between two tries to come inside, and for how long that is tried at the end.
_AWAY_S = 0.001
CLOSE_S = 1.0
#: Data that was announced so long before a connection broke was lent over that one.
BEFORE_S = 0.25


class InboundTransfers:
    """All that this process is receiving from other hosts.

    Threads: `begin` and `look` in the one that leads the poller; all else in any.
    `look` calls the `then` of each transfer: once, unless that was cut short, or this
    thread lost the lead within it, by a wait in a signal handler or a long absence.

    One thread at a time is *inside*, and nobody waits for that: what others want is
    queued for it (`_asked`). A signal handler that comes inside may wait for a call of
    its own, and so come inside again. It leaves the transfers alone that the outer code
    is at work on (`_at`), and sees to all others: that one goes on when the handler
    returns. It does so also if another thread leads by then, which has to leave them
    to it.
    """

    def __init__(self, plane: DataPlane, stuck: Callable[[], bool]) -> None:
        """`stuck`: whether no call is ready to run. Then one more is admitted even if
        those here take all the room: they may be waiting for it."""
        self._plane = plane
        self._stuck = stuck
        self._inside: list[int] = []  # threads; the first one is, others turn back
        self._asked: deque[Callable[[], None]] = deque()  # to be done inside
        large = min(LARGE_BYTES, plane.memory_limit // _PART_OF_MEMORY)
        small = min(SMALL_BYTES, large // 4)
        self._results = (Lane(small, False), Lane(large, False))
        self._arguments = (Lane(small, True), Lane(large, True))
        self._lanes = (*self._results, *self._arguments)
        self._flying: dict[int, Transfer] = {}  # by tag
        self._tags = itertools.count(1)
        self._tags_in: deque[int] = deque()  # of fetches that may be done
        self._unsure = False  # taking tags was cut short
        self._at: set[Transfer] = set()  # somebody is at work on them
        self._ended: deque[Transfer] = deque()
        self._later: deque[tuple[float, Callable[[], None]]] = deque()
        #: Whether `look` may have something to do, now or soon. It is read for each
        #: message. Set after every addition; `look` clears it before it looks.
        self.busy = False

    def __len__(self) -> int:
        return sum(lane.flying + len(lane.waiting) for lane in self._lanes)

    @property
    def readable_fd(self) -> int:
        """Readable when `look` has something to do, except for `restless` transfers."""
        return self._plane.finished_fd

    @property
    def restless(self) -> bool:
        """Whether `look` must be called every few milliseconds, also without events."""
        if self._ended or self._later or self._tags_in or self._asked:
            return True
        return any(lane.waiting for lane in self._lanes)

    def begin(
        self,
        reply: Reply,
        then: Callable[[], None],
        *,
        argument: bool = False,
        memo: dict[str, Any] | None = None,
    ) -> Transfer:
        """Have all data attached to `reply` fetched; then `then` is called, also after
        a failure. Call `release` when an `argument` was used, or dropped. If that is
        cut short, the next call with the same `memo` goes on."""
        memo = {} if memo is None else memo
        made = memo.get("transfer")
        if made is None:
            lanes = self._arguments if argument else self._results
            made = Transfer(reply, then, lanes[reply.size() > SMALL])
        transfer: Transfer = memo.setdefault("transfer", made)
        self._ask(partial(self._begin, transfer))
        return transfer

    def look(self, leads: bool = True) -> bool:
        """Act on events so far; whether there were any. `leads`: otherwise it is for
        one that is inside, see `is_inside`, and others are called back by the leader.
        """
        some = self._come_in(self._look_inside)
        if leads and self._call_back():
            some = True
        if some is None:
            sleep(_AWAY_S)
        try:
            self.busy = False
            if self._flying or self.restless or self._inside:
                self.busy = True
        except BaseException:
            self.busy = True
            raise
        return bool(some)

    def _take_tags(self) -> None:
        """Of what is done. If that was cut short, all that flies is looked at."""
        if self._unsure:
            self._tags_in.extend(list(self._flying))
        self._unsure = True
        self._tags_in.extend(self._plane.finished())
        self._unsure = False

    def cancel(self, transfer: Transfer) -> None:
        """End it with the error `Cancelled`, unless it is done; see `release`, too."""
        self._ask(partial(self._cancel, transfer))

    def release(self, transfer: Transfer) -> None:
        """Its data was used, or dropped: others may come."""
        self._ask(partial(self._give_back, transfer))

    def soon(self, action: Callable[[], None]) -> None:
        """Call `action` in `NEWS_S`, in the poller's thread."""
        self._later.append((perf_counter() + NEWS_S, action))
        self.busy = True

    def close(
        self, error: Callable[[], errors.MooError] = errors.session_ended
    ) -> None:
        """End everything, each with an `error`, without calls of `then`."""
        end, close = perf_counter() + CLOSE_S, partial(self._close, error)
        while not self._come_in(close):
            if perf_counter() > end:  # a signal handler there does not return
                close()
                return
            sleep(_AWAY_S)

    def is_inside(self) -> bool:
        """Whether this thread is: it runs a signal handler that came there."""
        return self._inside[:1] == [get_ident()]

    def _ask(self, action: Callable[[], None]) -> None:
        """Do it inside: now, or else whoever is inside, or looks next, does it."""
        self._asked.append(action)
        self.busy = True  # for those who come while this thread is inside
        self._come_in(self._start_some)
        self.busy = True

    def _come_in(self, step: Callable[[], T]) -> T | None:
        """Do what was asked for, and `step`. None: another thread is inside."""
        me, inside = get_ident(), self._inside
        if inside[:1] == [me]:
            return self._do_what_was_asked(step)  # until the outer code goes on
        try:
            inside.append(me)
            return self._do_what_was_asked(step) if inside[0] == me else None
        finally:
            inside.remove(me)

    def _do_what_was_asked(self, step: Callable[[], T]) -> T:
        while (action := first_of(self._asked)) is not None:
            action()  # if that is cut short, it comes again
            take_out(self._asked, action)
        return step()

    # -- inside ------------------------------------------------------------

    def _begin(self, transfer: Transfer) -> None:
        waiting = transfer.lane.waiting
        if transfer.done:
            self._end(transfer, transfer.error)
        elif not (transfer.begun or transfer in waiting):
            waiting.append(transfer)

    def _look_inside(self) -> bool:
        if self._flying:
            self._take_tags()
        some = bool(self._tags_in)
        for tag in list(self._tags_in):
            transfer = self._flying.get(tag)
            if transfer is not None:
                if transfer in self._at:
                    continue
                self._alone(transfer, partial(self._landed, transfer, tag))
            take_out(self._tags_in, tag)
        self._start_some()
        return some

    def _cancel(self, transfer: Transfer) -> None:
        if not transfer.done:
            self._fail_if_alone(
                transfer,
                errors.Cancelled(
                    "the fetch was cancelled, because nobody waits for it"
                ),
            )
        self._give_back(transfer)

    def _close(self, error: Callable[[], errors.MooError]) -> bool:
        waiting = [transfer for lane in self._lanes for transfer in lane.waiting]
        for transfer in {*self._flying.values(), *waiting}:
            self._fail(transfer, error())
        self._ended.clear()
        self._later.clear()
        return True

    def _alone(self, transfer: Transfer, step: Callable[[], T]) -> T:
        """Run `step`, on a transfer that nobody is at work on."""
        try:
            self._at.add(transfer)
            result = step()
        finally:
            self._at.discard(transfer)
        if transfer.failure is not None and not transfer.done:
            self._fail_if_alone(transfer, transfer.failure)  # it came meanwhile
        return result

    def _fail_if_alone(self, transfer: Transfer, error: BaseException) -> None:
        """Otherwise whoever is at work on it does that at the end."""
        if transfer.failure is None:
            transfer.failure = error
        if transfer not in self._at:
            self._alone(transfer, partial(self._fail, transfer, error))

    def _start_some(self) -> None:
        for lane in self._lanes:
            while (transfer := self._first_waiting(lane)) is not None:
                if not self._may_start(lane, transfer):
                    break
                if not self._alone(transfer, partial(self._start, transfer)):
                    break

    def _first_waiting(self, lane: Lane) -> Transfer | None:
        if not self._at:
            return first_of(lane.waiting)
        return next((one for one in list(lane.waiting) if one not in self._at), None)

    def _may_start(self, lane: Lane, transfer: Transfer) -> bool:
        if transfer.begun or lane.taken + transfer.cost <= lane.bound:
            return True
        return lane.until_release and not lane.flying and self._stuck()

    def _start(self, transfer: Transfer) -> bool:
        """False if there is no room in memory until something else has gone."""
        lane = transfer.lane
        if not (transfer.begun or transfer.done):
            transfer.begun = True
            lane.taken += transfer.cost
            lane.flying += 1
        fetches, descriptors = transfer.fetches, transfer.descriptors
        while not transfer.done:
            if fetches:
                fetch = fetches[-1]
                if not fetch.begun:
                    transfer.tags[fetch.tag] = fetch
                    self._flying[fetch.tag] = transfer
                try:
                    fetch.begin()
                except errors.OutOfMemory as error:
                    if self._may_get_room(transfer):
                        return False
                    self._fail(transfer, error)
                    return True
                except Exception as error:
                    if was_interrupted(error):
                        raise
                    self._fail(transfer, error)
                    return True
                del transfer.reply.descriptors[: self._in_reply(transfer)]
            if len(fetches) == len(descriptors):
                break
            tag = next(self._tags)
            fetches.append(self._plane.fetching(descriptors[len(fetches)], tag))
        if transfer.done:
            self._end(transfer, transfer.error)  # that was cut short
        elif not transfer.tags:
            self._all_landed(transfer)  # it was quicker
        if transfer in lane.waiting:
            lane.waiting.remove(transfer)
        return True

    def _in_reply(self, transfer: Transfer) -> int:
        """How many of the reply's descriptors are the fetches' by now."""
        kept = len(transfer.descriptors) - len(transfer.reply.descriptors)
        return len(transfer.fetches) - kept

    def _may_get_room(self, transfer: Transfer) -> bool:
        now = perf_counter()
        transfer.until = transfer.until or now + ROOM_S
        others = sum(lane.taken for lane in self._lanes) > transfer.cost
        return (others or bool(self._flying)) and now < transfer.until

    def _landed(self, transfer: Transfer, tag: int) -> None:
        fetch = transfer.tags.get(tag)
        if fetch is not None and not (fetch.begun and fetch.wait(0)):
            return  # it is looked at because taking tags was cut short
        transfer.tags.pop(tag, None)
        if transfer.done:
            self._end(transfer, transfer.error)  # that was cut short
        elif not (transfer.tags or transfer in transfer.lane.waiting):
            self._all_landed(transfer)
        self._flying.pop(tag, None)

    def _all_landed(self, transfer: Transfer) -> None:
        if transfer.failure is not None:
            self._fail(transfer, transfer.failure)  # that was cut short
            return
        buffers: list[Any] = []
        try:
            for fetch in transfer.fetches:
                buffers.append(fetch.result(0))
        except errors.InternalError:
            # Fetched or revoked before. It is fetched here only, so its owner took it
            # back: the connection broke before we could ask for it.
            self._fail(
                transfer,
                errors.ActorDied(
                    "the connection to its sender was lost before the fetch"
                ),
            )
        except Exception as error:
            if was_interrupted(error):
                raise
            self._fail(transfer, error)
            if isinstance(error, (errors.ActorDied, errors.ActorUnavailable)):
                self._fail_others(transfer.owners[len(buffers)], error)
        else:
            transfer.reply.buffers = buffers
            self._end(transfer, None)

    def _fail_others(self, owner: int, error: errors.MooError) -> None:
        """The connection to an owner is lost, and with it all that it has lent. A
        transfer that waits for a place in its lane must not wait for that connection
        after it has got one: such waits would add up."""
        before = perf_counter() - BEFORE_S
        for lane in self._lanes:
            for transfer in list(lane.waiting):
                if owner in transfer.owners and transfer.arrived < before:
                    self._fail_if_alone(transfer, copy.copy(error))

    def _fail(self, transfer: Transfer, error: BaseException) -> None:
        if transfer.failure is None:
            transfer.failure = error
        for fetch in transfer.fetches:
            fetch.cancel()
        self._end(transfer, transfer.failure)

    def _end(self, transfer: Transfer, error: BaseException | None) -> None:
        """Can be repeated until it is told. Only the last steps let go of it."""
        lane = transfer.lane
        # With no call in between, so a signal handler finds all of it done or nothing.
        if not transfer.done:
            lane.flying -= transfer.begun
            if transfer.begun and (error is not None or not lane.until_release):
                lane.taken -= transfer.cost
                transfer.cost = 0
            if not transfer.begun:
                transfer.cost = 0
            transfer.error = error
            transfer.done = True
        if not transfer.told and transfer not in self._ended:
            self._ended.append(transfer)
        self.busy = True
        if transfer in lane.waiting:
            lane.waiting.remove(transfer)
        for fetch in transfer.fetches:
            self._flying.pop(fetch.tag, None)
        transfer.fetches.clear()

    def _give_back(self, transfer: Transfer) -> None:
        if transfer.begun:
            transfer.lane.taken -= transfer.cost
        transfer.cost = 0

    # -- by the leader -----------------------------------------------------

    def _call_back(self) -> bool:
        some = False
        while (transfer := first_of(self._ended)) is not None:
            transfer.then()  # if that is cut short, it comes again
            transfer.told = True
            # It may hold what holds the transfer, and so data that nobody wants.
            transfer.then = _nothing
            take_out(self._ended, transfer)
            some = True
        now = perf_counter()
        while (entry := first_of(self._later)) is not None and entry[0] <= now:
            entry[1]()
            take_out(self._later, entry)
            some = True
        return some


def _nothing() -> None:
    """Of a transfer that was told of."""


# -- queues whose entries stay until they are seen to ---------------------------
#
# A signal handler that waits, or the thread that leads after it, may see to the same
# entries between any two lines. So an entry that was there a line before may be gone,
# and taking one out names it.


def first_of(queue: deque[T]) -> T | None:
    return queue[0] if queue else None  # with no call in between


def take_out(queue: deque[T], entry: T) -> None:
    """Remove `entry`, unless it was removed already."""
    try:
        queue.remove(entry)
    except ValueError:
        pass
