# SPDX-License-Identifier: MIT
"""`Supply`: unrolls on their way from actors to learners, and weights on theirs back.

    actor ── unroll ──▶ ┌────────┐ ◀── take ──── learner
                        │ Supply │
    actor ◀── weights ─ └────────┘ ◀── publish ─ learner 0

Only Refs to unrolls pass through it: their tensors go from actor to learner.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from mooactor import (
    ActorDied,
    ActorRestarted,
    ActorUnavailable,
    PlacementError,
    Ref,
    Restart,
    actor,
    method,
    put,
    submit,
)
from mooactor.rl.unroll import Unroll
from mooactor.rl.weights import Weights

CALLS_TO_ONE = 2  # it plays one unroll, and the call for the next waits in its mailbox
MOST_FAILURES = 20  # calls to one actor that were lost with no unroll between them
#: Of the actors that a `Supply` asks. Whether an actor dies too often is for the supply
#: to say, which knows if it plays in between. So this limit is out of reach: it would
#: end a run for ten deaths in thousands of unrolls.
RESTART = Restart(max=1_000_000, within=600)


class PlaysUnrolls(Protocol):
    """A handle of an actor that a `Supply` may ask."""

    def unroll(self, version: int | None, /) -> Unroll:
        """Play with the weights of ``version``, by default the newest."""


class Asked(NamedTuple):
    """An unroll that is played for a learner and not taken yet; see `Supply.freeze`.

    Attributes:
      actor: the actor that plays it.
      version: of the weights to play with; None: the newest.
      unroll: the Ref to it.
    """

    actor: int
    version: int | None
    unroll: Ref[Unroll]


class Taken(NamedTuple):
    """A learner's share: an unroll, and the state of the supply.

    Attributes:
      unroll: a list of one, the Ref to it.
      ready: played unrolls that wait for a learner.
      lost: calls lost with their actors so far, and sent again.
    """

    unroll: list[Ref[Unroll]]
    ready: int
    lost: int


@dataclass
class _Entry:
    """A call to actor ``index``, for weights of ``version`` (None: the newest)."""

    index: int
    version: int | None
    unroll: Ref[Unroll] | None = None  # once it was played


class _LeftOut(Exception):
    """An actor that was added could not even begin."""

    def __init__(self, error: Exception, counted: bool) -> None:
        super().__init__(str(error))
        self.counted = counted  # whether its call counts as in flight


@actor
class Supply:
    """Asks actors for unrolls, hands them to learners, and has the newest weights.

    Its actors have a method ``unroll(version)``, which begins by asking `weights` and
    returns the unroll that it played. At most ``in_flight`` unrolls are asked for and
    not taken yet, so the policy lag is bounded for any number of actors; at most two of
    these calls wait for one actor. All learners take from one supply, in the order in
    which unrolls come, so a slow actor delays nobody. A call that is lost with its
    actor is sent again, as the actor's supervisor starts a new one; any other error of
    an actor is raised by every `take` from then on.

    While the host of an actor is away, the actor's calls do not count as in flight, so
    the others play on. When it is back, two calls of each of its actors may be in
    flight beyond ``in_flight``, once.

    With ``in_order`` nothing depends on time: actor ``i`` plays for learner ``i %
    learners``, one call at a time, in rotation, with the weights of the version that
    the learner had when it took the unroll before.

    With ``over_hosts`` it keeps the weights with `moo.put`. Then each version crosses
    the link to another host once, for all actors there; see `fetch_weights`.

    Raises:
      ValueError: ``in_flight`` or ``learners`` is below 1.
    """

    def __init__(
        self,
        in_flight: int,
        learners: int = 1,
        in_order: bool = False,
        over_hosts: bool = False,
    ) -> None:
        if in_flight < 1 or learners < 1:
            raise ValueError(
                f"in_flight={in_flight}, learners={learners}: each must be at least 1"
            )
        self._most = in_flight
        self._in_order = in_order
        self._over_hosts = over_hosts
        self._away: set[int] = set()  # actors whose host is
        self._lanes: list[deque[_Entry]] = [
            deque() for _ in range(learners if in_order else 1)
        ]
        self._actors: list[PlaysUnrolls] = []
        self._untried: set[int] = set()  # actors that were added, and have not played
        self._playing: list[int] = []  # calls to each actor
        self._turns: list[int] = []  # actors, asked longest ago first
        self._failures: list[int] = []  # of each since its last unroll
        self._incarnations: dict[int, int] = {}
        self._in_flight = 0
        self._lost = 0
        self._error: BaseException | None = None
        self._newest = -1
        self._published: dict[int, Weights | Ref[Weights]] = {}
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    # -- for actors ------------------------------------------------------------

    @method
    async def enlist(self, index: int) -> int:
        """Earlier starts of actor ``index``, for the seeds of its games."""
        self._incarnations[index] = self._incarnations.get(index, -1) + 1
        return self._incarnations[index]

    @method
    async def weights(
        self, known: int, version: int | None = None
    ) -> tuple[int, Weights | Ref[Weights] | None]:
        """The weights of ``version``, by default the newest, and their version.

        With ``over_hosts`` a Ref to them. None in their place if the caller has them
        already (``known``). Waits until they are published.
        """
        async with self._changed:
            await self._changed.wait_for(
                lambda: (
                    self._published and (version is None or version in self._published)
                )
            )
        found = self._newest if version is None else version
        return found, None if found == known else self._published[found]

    # -- for learners ----------------------------------------------------------

    @method
    async def publish(self, version: int, weights: Weights) -> None:
        """Make ``weights`` the newest."""
        self._newest = version
        self._published[version] = put(weights) if self._over_hosts else weights
        wanted = {entry.version for lane in self._lanes for entry in lane} | {version}
        for old in self._published.keys() - wanted:
            del self._published[old]
        await self._tell()

    @method
    async def take(self, learner: int = 0, version: int = 0) -> Taken:
        """The next unroll for ``learner``, which is at ``version``; waits for one."""
        lane = self._lanes[learner % len(self._lanes)]
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._error or (lane and lane[0].unroll is not None)
            )
        if self._error is not None:
            raise self._error
        entry = lane.popleft()
        self._in_flight -= 1
        if self._in_order:
            self._ask(entry.index, version, lane)
        else:
            self._fill()
        assert entry.unroll is not None  # it was waited for
        return Taken([entry.unroll], self._ready(), self._lost)

    # -- for the program that starts it all ------------------------------------

    @method
    async def start(
        self,
        actors: Sequence[PlaysUnrolls],
        version: int = 0,
        lanes: Sequence[Sequence[Asked]] | None = None,
    ) -> None:
        """Ask ``actors``, handles, for unrolls from now on.

        ``version`` is that of the learners. ``lanes``, as from `freeze`, go on from
        there.

        Raises:
          ValueError: too few actors; with ``in_order`` each learner needs one.
        """
        if len(actors) < len(self._lanes):
            raise ValueError(
                f"{len(actors)} actors are too few: give at least {len(self._lanes)}"
            )
        self._actors = list(actors)
        self._playing = [0] * len(actors)
        self._failures = [0] * len(actors)
        self._turns = list(range(len(actors)))
        if lanes is not None:
            for lane, entries in zip(self._lanes, lanes, strict=True):
                lane.extend(_Entry(*entry) for entry in entries)
                self._in_flight += len(entries)
        elif self._in_order:
            for index in range(len(actors)):
                self._ask(index, version, self._lanes[index % len(self._lanes)])
        else:
            self._fill()
        await self._tell()

    @method
    async def add(self, actors: Sequence[PlaysUnrolls]) -> None:
        """Ask these as well from now on, after `start`.

        They share what may be in flight with the others. One that dies before its first
        unroll is left out, with a line on stderr, and the others play on.

        Raises:
          ValueError: with ``in_order`` the actors are fixed.
        """
        if self._in_order:
            raise ValueError("with in_order=True no actors can be added after start")
        for one in actors:
            index = len(self._actors)
            self._actors.append(one)
            self._playing.append(0)
            self._failures.append(0)
            self._turns.insert(0, index)
            self._untried.add(index)
        self._fill()

    @method
    async def freeze(self) -> list[list[Asked]]:
        """With ``in_order``: wait until all requested unrolls are played.

        Returns a lane for each learner: the unrolls that it will take next, in that
        order.
        It changes nothing: later takes return the same as without it.
        """
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._error or self._ready() == self._in_flight
            )
        if self._error is not None:
            raise self._error
        return [
            [
                Asked(entry.index, entry.version, entry.unroll)
                for entry in lane
                if entry.unroll is not None
            ]
            for lane in self._lanes
        ]

    # -- inside ----------------------------------------------------------------

    def _ready(self) -> int:
        return sum(entry.unroll is not None for lane in self._lanes for entry in lane)

    def _fill(self) -> None:
        """Ask actors with the fewest calls, in turn, while more may be in flight."""
        while self._in_flight < self._most:
            present = [index for index in self._turns if index not in self._away]
            index = min(present, key=self._playing.__getitem__, default=None)
            if index is None or self._playing[index] >= CALLS_TO_ONE:
                return
            self._ask(index, None, None)

    def _ask(self, index: int, version: int | None, lane: deque[_Entry] | None) -> None:
        entry = _Entry(index, version)
        if lane is not None:
            lane.append(entry)  # its place is by the order of requests
        self._turns.remove(index)
        self._turns.append(index)
        self._playing[index] += 1
        self._in_flight += 1
        task = asyncio.create_task(self._play(entry))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _play(self, entry: _Entry) -> None:
        try:
            call = await self._call(entry)
        except _LeftOut as error:
            if entry.index in self._turns:
                self._turns.remove(entry.index)
                print(f"an added actor is left out: {error}", file=sys.stderr)
            self._in_flight -= error.counted
            self._fill()
        except Exception as error:
            self._error = self._error or error
        else:
            self._playing[entry.index] -= 1
            self._failures[entry.index] = 0
            entry.unroll = call
            if not self._in_order:
                self._lanes[0].append(entry)
                self._fill()
        await self._tell()

    async def _call(self, entry: _Entry) -> Ref[Unroll]:
        """The Ref of the unroll, which has come; again while actors die."""
        counted = True
        while True:
            call = submit(self._actors[entry.index].unroll, entry.version)
            try:
                await call
            except (ActorDied, ActorUnavailable) as error:
                if entry.index in self._untried and not is_away(error):
                    raise _LeftOut(error, counted) from error
                self._lost += counted
                if is_away(error):
                    counted = self._stands_by(entry, counted)
                    continue
                self._failures[entry.index] += 1
                if self._failures[entry.index] > MOST_FAILURES:
                    raise
            else:
                self._untried.discard(entry.index)
                self._is_back(entry, counted)
                return call

    def _stands_by(self, entry: _Entry, counted: bool) -> bool:
        """Its actor's host is away: let others have its place. Returns whether it
        counts as in flight from now on."""
        if self._in_order:
            return counted
        self._away.add(entry.index)
        self._in_flight -= counted
        self._fill()
        return False

    def _is_back(self, entry: _Entry, counted: bool) -> None:
        self._away.discard(entry.index)
        self._in_flight += not counted

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def is_away(error: ActorDied | ActorUnavailable) -> bool:
    """Whether a call is lost because the host of its actor is not there, but may come
    back: the actor has a restart policy."""
    if not isinstance(error, ActorRestarted) or error.cause is None:
        return False
    cause = error.cause
    return cause.kind == "host" or isinstance(cause.exception, PlacementError)


def fetch_weights(
    supply: Supply, known: int, version: int | None
) -> tuple[int, Weights | None]:
    """The result of `Supply.weights`, with the weights themselves for a Ref to them."""
    found, weights = supply.weights.remote(known, version).get()
    return found, weights.get() if isinstance(weights, Ref) else weights
