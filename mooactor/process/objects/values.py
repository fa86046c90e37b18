# SPDX-License-Identifier: MIT
"""Values on their way to this process: of Refs that calls were given, and of borrowed
Refs that are read here.

A call comes with a random *token* in the place of each Ref among its arguments, and
runs once the values of all its tokens are there. A value that arrives before its call
waits for it; a value whose call was refused, cancelled or never made is dropped, and
with it its memory and its borrows. So is one that comes a second time; but while the
data of the first is under way it is kept, and taken if that is lost.

Each token gets a value, or the error with its cause, as `handovers` has it. The
receiver's part of that, for values that have not come:

* The *producer* of a token is the process that should send it. If that is dead, or its
  connection to here broke, the *caller* is asked for the value, the process that has
  handed the Ref on. If that has none, the token ends with an error.
* If the connection from here to the producer broke, or its connection broke before the
  call was here, the producer is asked first whether it still has to send the value. An
  answer comes behind all that it has sent.
* A question is put again after each break with the process that was asked.
* Tokens of calls that the caller has given up, because the connection from there broke
  or it is dead, end with an error: nothing may come from there any more.
* A token whose call does not run is waited for like the others, so that its value is
  known, and dropped, when it comes. But nobody is asked for it.

A signal handler may raise at any point of this, and the record or the arrival that is
handled comes again; or it waits, and handles the same one, and more, until the value
was used. So each step can be repeated, and looks first whether it is still to be taken.
Where "no call" stands, no handler can come between the look and the step.
"""

from __future__ import annotations

import math
import secrets
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from mooactor import errors
from mooactor.control import bodies, codec, envelope
from mooactor.control.keys import actor_of
from mooactor.control.links import Link, Links
from mooactor.control.sender import Sender
from mooactor.process.objects.audit import INBOX_S
from mooactor.process.objects.broadcast import Key
from mooactor.process.objects.future import Future, Reply, taken_over
from mooactor.process.objects.payloads import Payloads
from mooactor.times import BUSY_PATIENCE_S

if TYPE_CHECKING:
    from mooactor.process.objects.broadcast import Relay
    from mooactor.process.objects.inbound import Transfer


#: A call comes at most so long after a value that was sent when it was made.
_DOUBTED_S = 2 * BUSY_PATIENCE_S
#: As `Expected.call`, of a Ref that is read here.
_OWN = (0, 0)


class Expected(Future):
    """The value that will come as one token."""

    __slots__ = ("producer", "call", "asked", "cause", "place")

    def __init__(self) -> None:
        Future.__init__(self)
        self.producer = 0  # the process that should send it; `link` leads there
        # The caller, and the number, of the call that waits for it.
        self.call: tuple[int, int] = _OWN
        self.wanted = True  # False: that does not run
        self.place: Transfer | None = None  # in the lane of arguments, until it is used
        self.asked = 0  # the process that was asked for it
        self.cause: errors.MooError | None = None  # its error, if that has none


class _Break(NamedTuple):
    when: float
    why: str


class Values:
    """Those of one process. In the poller's thread, except: ``expect`` also where a Ref
    is read, ``forget`` and ``abandon`` in the actor's, and the news of deaths and
    breaks in the housekeeper's. So tables are changed one item at a time, and read as
    copies."""

    def __init__(
        self,
        links: Links,
        sender: Sender,
        payloads: Payloads,
        relay: Relay,
        later: Callable[[float, Callable[[], None]], None],
        wake: Callable[[], None],
    ) -> None:
        """`later`: call in so many seconds. `wake`: make waiting threads look again."""
        self._me = links.process_id
        self._links = links
        self._sender = sender
        self._payloads = payloads
        self._relay = relay
        self._later = later
        self._wake = wake
        self._delivers = 0  # the thread that delivers a value just now
        self._expected: dict[int, Expected] = {}
        self._arriving: dict[int, Transfer] = {}
        # The same, from elsewhere, of some of them.
        self._again: dict[int, envelope.Record] = {}
        self._broke: dict[int, _Break] = {}  # lately, by process; the housekeeper's
        self._unclaimed = Unclaimed(later, self.abandon)
        self._used = Lately()

    def __len__(self) -> int:
        return len(self._expected)

    def expect(
        self, token: int, producer: int, call: tuple[int, int] = _OWN
    ) -> Expected:
        """The value that will come as `token`, sent by process `producer`. `call`: the
        caller and the number of the call that waits for it."""
        self._unclaimed.claim(token)
        future = self._expected.get(token)
        if future is None:
            future = Expected()
            if token in self._used or token in self._unclaimed.given_up:
                future.set_error(late())
            else:  # with no call in between
                future = self._expected.setdefault(token, future)
        if call is not _OWN:
            future.call = call
        if not future.state and not future.asked:
            self._look_after(token, future, producer)
        return future

    def _look_after(self, token: int, future: Expected, producer: int) -> None:
        """Take note of what happened to its producer, and to its caller."""
        caller, why = future.call[0], ""
        if producer != self._me:
            future.producer = producer
            future.link = self._links.link(
                actor_of(producer), producer & 0xFFFF, "the producer", watch=True
            )
            why = self._why_doubted(producer)
        if self._links.is_gone(producer) or self._links.is_gone(caller):
            # No further notice of that will come. A value sent before may still lie in
            # the inbox.
            self._later(INBOX_S, partial(self._settle_death, token))
        elif why and caller not in (0, producer) and self._is_away(token):
            cause = future.link.cut_off(why, delivered=None)
            self._ask(token, future, producer, cause)

    def _why_doubted(self, producer: int) -> str:
        """Why a value of that process may have been lost before its call came."""
        found = self._broke.get(producer)
        recent = found is not None and perf_counter() - found.when < _DOUBTED_S
        return found.why if found is not None and recent else ""

    def _settle_death(self, token: int) -> None:
        future = self._expected.get(token)
        if future is None or future.asked or not self._is_away(token):
            return
        link: Link | None = future.link
        dead = "producer" if self._links.is_gone(future.producer) else "caller"
        cause: errors.MooError
        if link is not None and link.cause is not None:
            cause = link.gone(delivered=None)
        elif link is not None and link.died_of is not None and dead == "producer":
            cause = link.restarted(link.died_of, delivered=None)
        else:  # another process of that actor may live, without this value
            cause = errors.ActorUnavailable(f"the {dead} of this value is dead")
        self._ask_caller(token, future, cause)
        self._wake()

    # -- values that may not come ------------------------------------------

    def _ask(
        self, token: int, future: Expected, process_id: int, cause: errors.MooError
    ) -> None:
        """Ask a process for a value. If it has none, `cause` is the reason."""
        if not (future.wanted and process_id) or self._links.is_gone(process_id):
            future.set_error(cause)
            return
        future.cause, future.asked = cause, process_id
        self._sender.post(process_id, envelope.RETRY, token)

    def _ask_caller(self, token: int, future: Expected, cause: errors.MooError) -> None:
        """It does not come from its producer."""
        self._again.pop(token, None)
        self._payloads.cancel(self._arriving.pop(token, None))
        self._ask(token, future, future.call[0], cause)

    def _has_none(self, token: int, process_id: int) -> None:
        """That process does not send it."""
        future = self._expected.get(token)
        if future is None or not self._is_away(token):
            return
        cause = future.cause or errors.ActorUnavailable(
            "the process that should have sent this value does not have it any more"
        )
        if process_id == future.asked == future.call[0]:
            future.set_error(cause)
        elif process_id in (future.asked, future.producer):
            self._ask_caller(token, future, cause)

    def producer_lost(self, link: Link, why: Callable[[], errors.MooError]) -> None:
        """Processes of an actor are dead, says `why`. In the housekeeper's thread, as
        the next one."""
        for token, future in list(self._expected.items()):
            mine = future.link is link and not future.state
            if mine and self._links.is_gone(future.producer):
                future.producer, future.link = 0, None
                self._ask_caller(token, future, why())

    def connection_broke(
        self, process_id: int, why: str, delivered: bool | None, *, theirs: bool
    ) -> None:
        """A connection with a process broke, and that lives. `theirs`: its own, over
        which values come."""
        if theirs:
            self._note_break(process_id, why)
        for token, future in list(self._expected.items()):
            link: Link | None = future.link
            if not self._is_away(token) or self._relay.asks_holder(token):
                continue
            if future.asked == process_id:
                self._sender.post(process_id, envelope.RETRY, token)
            if link is None or future.producer != process_id:
                continue
            cause = link.cut_off(why, delivered)
            if theirs or future.call is _OWN:
                self._ask_caller(token, future, cause)
            elif not future.asked:
                self._ask(token, future, process_id, cause)

    def _note_break(self, process_id: int, why: str) -> None:
        now = perf_counter()
        for other, found in list(self._broke.items()):
            if now - found.when > _DOUBTED_S:
                self._broke.pop(other, None)
        self._broke[process_id] = _Break(now, why)

    def given_up(self, caller: int, mark: float = math.inf) -> None:
        """A process has ended its calls with numbers below `mark`, or makes them again:
        the connection from there broke, or it is dead. In the poller's thread."""
        for token, future in list(self._expected.items()):
            its, call_id = future.call
            if its == caller and call_id < mark and self._is_away(token):
                future.set_error(
                    errors.ActorUnavailable(
                        "a value among its arguments may be lost: the connection to "
                        "its caller broke, or that is dead; call again",
                        delivered=False,
                    )
                )

    def _is_away(self, token: int) -> bool:
        """Whether nothing of it has come, not even the record."""
        future = self._expected.get(token)
        return future is not None and not future.state and token not in self._arriving

    # -- values that come --------------------------------------------------

    def forget(self, token: int) -> None:
        """Drop the expectation of a value, and its data under way."""
        future = self._expected.get(token)
        if future is not None:
            self._used.remember(token)  # first: unknown, it would be expected anew
            self._expected.pop(token, None)
            self._payloads.cancel(future.place)
        self._again.pop(token, None)
        if token in self._arriving:
            self._payloads.cancel(self._arriving.get(token))
            self._arriving.pop(token, None)

    def fetch(
        self, owner: int, object_id: int, then: Callable[[Future], object]
    ) -> Future:
        """Ask the owner of an object for its value; `then` gets the future of it, once
        that is done, and perhaps twice."""
        token = secrets.randbits(63)
        try:
            future = self.expect(token, owner)
            future.listen(lambda: then(future))
            # Last: if a signal handler cuts `then` short, the value is still expected
            # when its record is handled again.
            future.listen(lambda: self.forget(token))
            request = bodies.pack_numbers(self._me, token, 0)
            self._sender.post(owner, envelope.FETCH, object_id, request)
        except BaseException:
            self.forget(token)
            raise
        return future

    def abandon(self, token: int) -> None:
        """Nobody waits for it any more, though it may still come."""
        future = self._expected.get(token)
        if future is None:
            return
        future.wanted = False
        future.listen(lambda: self.forget(token))
        if not self._relay.knows(token):
            self._payloads.cancel(self._arriving.get(token))
        if future.cause is not None:
            future.set_error(future.cause)

    def on_value(self, record: envelope.Record) -> None:
        """A value, or the notice that it is not available. In the poller's thread."""
        sender, token, relay = record.sender, record.call_id, self._relay
        if record.flags & envelope.GONE:
            if not record.flags & envelope.ERROR:
                if not relay.holder_has_none(token, sender):
                    self._has_none(token, sender)
                return
            relay.give_up(token, codec.decode_error(bytes(record.payload)))
        if record.flags & envelope.EMPTY:
            raise bodies.MalformedMessage("a value without a payload")
        relay.answered(token, sender)
        key = None
        if record.flags & envelope.KEEP:
            number, payload = bodies.split_number(record.payload)
            record, key = record._replace(payload=payload), Key(sender, number)
        if self._has_come(token) or not self._is_expected(token):
            self._comes_again(token, key, record)
        else:
            if key is not None:
                relay.expect(token, key)
            self._receive(token, record)
        if key is not None and self._is_here(token):  # perhaps it came meanwhile
            relay.came_again(token, key, arriving=False)

    def _is_expected(self, token: int) -> bool:
        """Have it expected, unless it was used already. If nobody waits for it yet, its
        call is under way, or its caller died before it sent that."""
        if token in self._expected:
            return True
        made, now = Expected(), perf_counter()
        if token not in self._used and token not in self._expected:  # no call
            self._expected[token] = made
            self._unclaimed.since[token] = now
        self._unclaimed.sweep_later()
        return token in self._expected

    def _comes_again(
        self, token: int, key: Key | None, record: envelope.Record
    ) -> None:
        reply = self._payloads.reply_of(record)  # dropped, it gives its memory back
        future, arriving = self._expected.get(token), token in self._arriving
        if future is not None and future.state:
            future.set_raw(reply)  # for listeners, if handling it was cut short
        elif future is not None and arriving and not reply.failed:
            self._again[token] = record
        self._relay.came_again(token, key, arriving=arriving)
        transfer = self._arriving.get(token)
        if transfer is not None and transfer is record.memo.get("transfer"):
            # It is the same that comes again, as handling it was cut short. Its data
            # may have been quicker, which is told once.
            self._arrived(token, record, False)

    def _receive(self, token: int, record: envelope.Record) -> None:
        memo = record.memo
        reply = self._payloads.reply_of(record)
        then = partial(self._arrived, token, record, False)
        argument = bool(record.flags & envelope.ARGUMENTS)
        transfer = self._payloads.receive(reply, then, memo, argument=argument)
        if transfer is None:
            self._came(token, memo, reply, taken_over(reply))
            return
        if "arriving" not in memo and token in self._expected:  # no call
            memo["arriving"] = True
            self._arriving[token] = transfer
            self._expected[token].place = transfer if argument else None
        if token not in self._expected:  # it was used, or dropped, meanwhile
            self._payloads.cancel(transfer)
        elif transfer.done:  # it was quicker, see `memo`
            then()

    def _has_come(self, token: int) -> bool:
        return token in self._arriving or self._is_here(token)

    def _is_here(self, token: int) -> bool:
        """Whether it was used, or can be."""
        future = self._expected.get(token)
        return token in self._used if future is None else bool(future.state)

    def _came(
        self,
        token: int,
        memo: dict[str, Any],
        reply: Reply,
        error: BaseException | None,
    ) -> None:
        if error is not None or reply.failed:
            if self._asks_owner(token, memo):
                return
            self._relay.does_not_come(token, error)
        else:
            self._relay.arrived(token, reply)
        if error is not None:
            reply = reply.replaced_by(codec.encode_error(error, "the receiver"))
        future = self._expected.get(token)
        if future is None:
            return  # it was used meanwhile
        self._delivers = get_ident()
        try:
            future.set_raw(reply)
        finally:
            self._delivers = 0
        future.link = None
        self._wake()

    def _asks_owner(self, token: int, memo: dict[str, Any]) -> bool:
        """Whether a holder did not give it, and the owner is asked. `memo`: of what has
        come in its place, and is done with then."""
        if self._relay.asks_holder(token):
            memo["asks"] = True
        if "asks" in memo:
            self._relay.ask_owner(token)
        return "asks" in memo

    def delivers_here(self) -> bool:
        """For listeners of expected values: whether they are called by the poller's
        thread. False also where another delivery came in between, which is rare."""
        return self._delivers == get_ident()

    def _arrived(self, token: int, record: envelope.Record, settled: bool) -> None:
        """The data of a value is there, or was lost."""
        transfer: Transfer = record.memo["transfer"]
        if not transfer.done or self._arriving.get(token) is not transfer:
            return
        error = transfer.error
        if transfer.lost:
            again = self._again.get(token)
            if again is not None and again.memo is not record.memo:
                self._receive(token, again)  # this takes its place
            elif self._asks_owner(token, record.memo):
                pass
            elif settled:
                error = transfer.cut_off("a value was")
                self._came(token, record.memo, transfer.reply, error)
            else:  # if it died, news of that is coming
                self._payloads.soon(partial(self._arrived, token, record, True))
                return
        else:
            self._came(token, record.memo, transfer.reply, error)
        self._again.pop(token, None)
        self._put_away(token, transfer)  # last: if this is cut short, it comes again

    def _put_away(self, token: int, transfer: Transfer) -> None:
        if token in self._arriving and self._arriving[token] is transfer:  # no call
            self._arriving.pop(token)

    def close(
        self, error: Callable[[], errors.MooError] = errors.session_ended
    ) -> None:
        """Nothing will arrive any more: expected values fail, each with an `error`."""
        for future in list(self._expected.values()):
            future.set_error(error())
        self._expected.clear()


#: The time that a value waits for its call.
_UNCLAIMED_S = 60.0
_LATELY = 1024  # tokens that are remembered


class Lately(OrderedDict[int, None]):
    """The last tokens of which something is true."""

    def remember(self, token: int) -> None:
        self[token] = None
        if len(self) > _LATELY:
            self.popitem(last=False)


class Unclaimed:
    """Values that came before the calls that are to use them. Added to in the poller's
    thread, and dropped in the housekeeper's.

    A call was sent within microseconds of its values, so one that has not come after a
    minute never will: its caller died in between. The value is dropped then, and a call
    that comes all the same is told so.
    """

    def __init__(
        self,
        later: Callable[[float, Callable[[], None]], None],
        abandon: Callable[[int], None],
    ) -> None:
        """`later`: call in so many seconds. `abandon`: nobody waits for this token."""
        self.since: dict[int, float] = {}  # by token: since when it waits
        self.given_up = Lately()
        self._later = later
        self._abandon = abandon
        self._will_sweep = False

    def claim(self, token: int) -> None:
        """Its call is here, or will never be."""
        self.since.pop(token, None)

    def sweep_later(self) -> None:
        """Look at those that wait, after a while."""
        if not self._will_sweep:
            self._will_sweep = True
            self._later(_UNCLAIMED_S, self._sweep)

    def _sweep(self) -> None:
        """Drop those that have waited for too long."""
        self._will_sweep = False
        now = perf_counter()
        for token, since in list(self.since.items()):
            if now - since >= _UNCLAIMED_S and self.since.pop(token, 0.0):
                self.given_up.remember(token)
                self._abandon(token)
        if self.since:
            self.sweep_later()


def late() -> errors.MooError:
    """The error of a call that comes after one of its values was dropped."""
    return errors.ActorUnavailable(
        f"an argument arrived {_UNCLAIMED_S:.0f} s before its call and was dropped; "
        "call again",
        delivered=False,
    )
