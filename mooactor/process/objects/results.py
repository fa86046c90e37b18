# SPDX-License-Identifier: MIT
"""Results of calls to other hosts: they stay where they were made until they are read.

The producer keeps a large result as a stored value of its own (see `table`), whose
holder is the caller. The REPLY lends the value itself, before the Refs in it, and the
descriptors of its memory. At the caller the call has ended then, and its future is
*stored*: done, elsewhere. So a result that is only waited for, dropped or handed on
does not cross to the caller.

* The data is fetched by those descriptors: when the REPLY comes, if somebody reads the
  future by then, as any other reply; else when somebody does. If they are lost with
  their connection, the value is asked of its owner once more.
* Handed on, the value goes from its owner to its receiver: see `handovers`, `Ref`.
* When the data is here, the caller gives its hold back, and serves the value itself.
* A producer that dies takes its unfetched results along. One that ends in order asks
  their holders to fetch them (PULL), and stays until they have, within its grace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from mooactor import errors
from mooactor.control import bodies, codec, envelope
from mooactor.control.links import Link, Links
from mooactor.control.sender import Sender
from mooactor.process.objects.borrow import Borrowing
from mooactor.process.objects.broadcast import Broadcaster
from mooactor.process.objects.future import Arrival, Future, Reply, taken_over
from mooactor.process.objects.holds import Hold, Living
from mooactor.process.objects.payloads import Payloads
from mooactor.process.objects.table import LARGE, ObjectTable, Stored, size_of

if TYPE_CHECKING:
    from mooactor.process.objects.values import Values


class Borrowed(Protocol):
    """A Ref to a value of another process."""

    home: Hold | None

    def take_over(self) -> None:
        """Fetch the value, and own it from there on."""


class Stayed:
    """The reply of a call whose data is at its producer, until it is `here`."""

    __slots__ = ("home", "here", "link", "_reply", "_memo", "_results", "__weakref__")

    def __init__(self, results: Results, reply: Reply, link: Link | None) -> None:
        assert reply.claims is not None
        self.home = reply.claims.home
        self.here = Arrival(results.wait)
        self.link = link
        self._reply: Any = reply  # what has the value, once it is here
        self._memo: dict[str, Any] = {}  # of its transfer
        self._results = results

    def is_here(self) -> bool:
        return bool(self.here.state)

    def failure(self) -> BaseException | None:
        return self.here.failure() if self.here.state else None

    def value(self) -> Any:
        self.here.unwrap()
        return self._reply.value()

    def pull(self) -> list[Arrival]:
        """Have the data fetched. In any thread, any number of times."""
        here, payloads = self.here, self._results.payloads
        if not (here.state or "transfer" in self._memo):
            transfer = payloads.receive(self._reply, self._arrived, self._memo)
            if transfer is None or transfer.done:
                self._arrived()
        return [] if here.state else [here]

    def _arrived(self) -> None:
        """The data is here, or was lost. In the poller's thread."""
        transfer = self._memo.get("transfer")
        if transfer is not None and not transfer.done:
            return
        error = None if transfer is None else transfer.error
        if transfer is not None and transfer.lost:
            self._results.payloads.soon(self._ask_owner)  # if that died, news come
            return
        if error is None:
            error = taken_over(self._reply)
        elif isinstance(error, errors.ActorUnavailable):
            error = errors.ActorUnavailable(
                f"the call has run, but its result did not arrive: {error}",
                delivered=True,
            )
        self.end(error)

    def _ask_owner(self) -> None:
        """The connection was lost, and with it what the owner had lent."""
        home = self.home
        if home is not None and not self.here.state:
            self._results.values.fetch(home.owner, home.object_id, self._came)

    def _came(self, source: Future) -> None:
        self._reply = Fetched(source)
        self.end(None)

    def end(self, error: BaseException | None) -> None:
        """No more will come of it."""
        if error is None:
            self.here.set_value(None)
        else:
            self.here.set_error(error)
        self.home = None
        self._results.wake()

    def give_up(self, error: BaseException) -> None:
        """The data will not come."""
        if not self.here.state:
            self.end(error)
            self._results.payloads.cancel(self._memo.get("transfer"))


class Fetched:
    """A value that was fetched from its owner, in place of a `Reply`."""

    __slots__ = ("_source",)

    def __init__(self, source: Future) -> None:
        self._source = source

    def value(self) -> Any:
        return self._source.unwrap()


class Results:
    """Those of one process, as their caller and as their producer. Threads: any."""

    def __init__(
        self,
        links: Links,
        sender: Sender,
        payloads: Payloads,
        table: ObjectTable,
        broadcaster: Broadcaster,
        values: Values,
        wait: Callable[[Future], bool],
        wake: Callable[[], None],
    ) -> None:
        """`wait`: block until a future is done. `wake`: make waiting threads look
        again."""
        self.payloads = payloads
        self.values = values
        self.wake = wake
        self.ending = False  # nobody will read anything here any more
        #: Refs to values of other processes.
        self.borrowed: Living[Borrowed] = Living()
        self._links = links
        self._sender = sender
        self._table = table
        self._broadcaster = broadcaster
        self._wait = wait
        self._stayed: Living[Stayed] = Living()

    # -- as the caller -----------------------------------------------------

    def takes(self, record: envelope.Record, future: Future) -> bool:
        """Whether a result stays where it is, and ends this future so."""
        reply = self.payloads.reply_of(record)
        begun = "stayed" in record.memo  # and was cut short
        if not begun and (future.wanted or not reply.is_remote()):
            return False
        made = Stayed(self, reply, future.link)
        stayed: Stayed = record.memo.setdefault("stayed", made)
        self._stayed.add(stayed)  # first: if its producer dies, it is found
        future.set_stored(stayed)
        if future.wanted:  # from now on whoever wants it sees that it is stored
            future.pull()
        assert reply.claims is not None
        reply.claims.home = None  # who has `stayed` has it
        return True

    def wait(self, future: Future) -> None:
        """Block until a result is here.

        Raises:
          CallTimeout: the deadline of the call that waits has passed.
        """
        if not self._wait(future) and not future.state:
            raise errors.CallTimeout(
                "a result did not arrive within the deadline of the call that reads "
                "it; give that call a longer timeout"
            )

    def producer_lost(self, link: Link, cause: errors.Cause) -> None:
        """Processes of an actor are dead: what was not fetched went with them."""
        for stayed in self._stayed.all():
            home = stayed.home
            if stayed.link is link and home and self._links.is_gone(home.owner):
                stayed.give_up(link.died_with_result(cause))

    def close(self, error: Callable[[], errors.MooError]) -> None:
        """The session ends: nothing will arrive any more."""
        for stayed in self._stayed.all():
            stayed.give_up(error())

    # -- as the producer ---------------------------------------------------

    def stays(self, buffers: codec.Buffers, receiver: int) -> bool:
        """Whether a result with these stays here."""
        large = size_of(buffers) >= LARGE
        return large and self._broadcaster.may_be_elsewhere(receiver)

    def store(
        self,
        data: bytes,
        buffers: codec.Buffers,
        borrowing: Borrowing,
        receiver: int,
    ) -> tuple[Stored, bytes, int]:
        """Keep a result for its caller: the value, and the payload and the flags of the
        REPLY.

        Raises:
          OutOfMemory, ActorUnavailable: nothing is kept.
        """
        stored = Stored(self.payloads, data, buffers, borrowing, of_call=True)
        home = self._table.own(stored, self.payloads.borrows)
        payload, flags = stored.payload_for(receiver, home)
        return stored, payload, flags | envelope.STAYS

    # -- the end of a producer ---------------------------------------------

    def ask_holders(self) -> None:
        """This process ends: have its results fetched that others hold."""
        self.ending = True
        asked: dict[int, list[int]] = {}
        for number, holder in self._table.held_results():
            asked.setdefault(holder, []).append(number)
        for holder, numbers in asked.items():
            payload = bodies.pack_numbers(*numbers)
            self._sender.post(holder, envelope.PULL, 0, payload)

    def all_fetched(self) -> bool:
        """Whether no process holds a result of this one any more."""
        return not self._table.held_results()

    def on_pull(self, record: envelope.Record) -> None:
        """A producer ends: fetch what is wanted of it. In the poller's thread."""
        numbers = set(bodies.all_numbers(record.payload))
        for stayed in self._stayed.all():
            if _is_one(stayed.home, record.sender, numbers):
                if self.ending:
                    stayed.give_up(errors.session_ended())
                else:
                    stayed.pull()
        for ref in self.borrowed.all():
            if _is_one(ref.home, record.sender, numbers):
                if self.ending:
                    ref.home = None
                else:
                    ref.take_over()


def let_home_go(reply: Reply) -> None:
    """Its data is here: the value is not held at its producer any more."""
    if reply.claims is not None:
        reply.claims.leave_home()


def _is_one(home: Hold | None, owner: int, numbers: set[int]) -> bool:
    return home is not None and home.owner == owner and home.object_id in numbers
