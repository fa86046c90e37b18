# SPDX-License-Identifier: MIT
"""The callee's side of calls: taking them in, up to the method and its
arguments. `replies` sends the replies out.

`Worker` has what all actors share. How calls run is up to its subclasses: one at a
time in `serial`, several at once in `concurrent`.

A stop lets accepted calls finish: those that arrived before it, also those that wait
for the value of a Ref, and streams while their consumers take. It travels in the same
ordered channel as its sender's calls, so all that this caller sent before was accepted.
Calls that arrive later are refused with ``delivered=False``.

A call that its caller has given up does not begin, whether word of that came before it,
while it was queued, or while its arguments were unpickled. Nor does one whose deadline
has passed, or whose arguments did not arrive.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from mooactor import errors
from mooactor.control import bodies, envelope
from mooactor.process.actor.mailbox import Job, Mailbox
from mooactor.process.actor.replies import Replies
from mooactor.process.calls import CallContext
from mooactor.process.interface import Interface, MethodSpec
from mooactor.process.protocol import Life, Stopping

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime


_VAIN = 1000


class Worker(Replies):
    """Takes calls in. Subclasses run them."""

    def __init__(self, parts: Runtime, interface: Interface, life: Life) -> None:
        super().__init__(parts, interface, life)
        self.mailbox = Mailbox()
        # Cancellations that found no call, the latest. Most calls had ended; others are
        # on their way, or between the mailbox and `running`.
        self._vain: dict[tuple[int, int], None] = {}
        self.stopping = False  # calls that arrive are refused
        self._may_refuse = interface.options.overflow == "raise"  # also before
        self.current: CallContext | None = None  # has the only thread for methods
        self._stop_asked = False
        # The highest id of a call, by its caller, whose death the agent reports to us.
        self._callers: dict[int, int] = {}
        # By caller whose connection broke: see `pass_over`.
        self._marks: dict[int, int] = {}

    # -- calls in (the poller's thread) --------------------------------------

    def on_call(self, record: envelope.Record) -> None:
        """Accept a call, or refuse it. In the poller's thread."""
        sender = record.sender
        if sender not in self._callers:
            self._meet(sender)
        if record.call_id > self._callers[sender]:
            self._callers[sender] = record.call_id
        # Kept with the record, in case that handling it is cut short and begins again.
        job = record.memo.get("job")
        if job is None:
            made = self._job_of(sender, record)
            job = record.memo.setdefault("job", made)
        if job.unwanted:
            self._let_go(job)
            if job.needs:
                self.parts.values.given_up(sender, self._marks.get(sender, 0))
            return
        refusable = self.stopping or self._may_refuse
        if refusable and job.refusal is None and not job.was_queued():
            job.refusal = self._refusal()
        if job.refusal is not None:
            self._let_go(job)
            self.reply_error(job, job.refusal)
            return
        if job.flags & envelope.STREAM and not job.was_queued():
            self._streams[(sender, job.call_id)] = job
        self.mailbox.put(job)
        self.on_queued()

    def _job_of(self, sender: int, record: envelope.Record) -> Job:
        flags = record.flags
        tokens: list[tuple[int, int]] = []
        if flags & envelope.REFS:
            tokens, payload = bodies.split_tokens(record.payload)
            record = record._replace(payload=payload)
        arguments = None
        if not flags & envelope.EMPTY:
            # The message is let go once its last view is: keep bytes, not views.
            arguments = self.parts.payloads.reply_of(record)
        job = Job(
            sender,
            record.call_id,
            flags,
            record.priority,
            record.name,
            record.chain,
            arguments,
            record.value or None,
        )
        # Decided once, as `on_call` may be cut short, and go on after a later record.
        if self._marks and record.call_id < self._marks.get(sender, 0):
            job.unwanted = True
        if self._vain and (sender, record.call_id) in self._vain:
            job.refusal = cancelled()
        if arguments is not None and flags & envelope.ATTACHED:
            job.transfer = self.parts.payloads.receive(
                arguments, self.on_value, record.memo, argument=True
            )
        if tokens:
            self._expect(job, tokens)
        return job

    def _expect(self, job: Job, tokens: list[tuple[int, int]]) -> None:
        """Have the values of its Refs sent to it."""
        expect = self.parts.values.expect
        job.needs = needs = []
        for token, producer in tokens:
            future = expect(token, producer, (job.sender, job.call_id))
            needs.append((token, future))
            if not future.state:
                future.listen(self._on_awaited)

    def _meet(self, sender: int) -> None:
        """A new caller: hear of its death, after which nobody takes its results."""
        self._callers[sender] = 0
        self.parts.links.watch(sender)

    def _refusal(self) -> errors.MooError | None:
        """The error if no call is accepted now, else None."""
        options = self.interface.options
        if self.stopping:
            return self._unavailable()
        if self._may_refuse and len(self.mailbox) >= options.max_pending:
            return self._overloaded()
        return None

    def _unavailable(self) -> errors.MooError:
        return errors.ActorUnavailable(
            f"{self.label} is stopping and takes no more calls", delivered=False
        )

    def _overloaded(self) -> errors.MooError:
        return errors.Overloaded(
            f"{self.label} has {len(self.mailbox)} calls queued, its bound; the call "
            "was not run. Slow down, or raise max_pending",
            delivered=False,
        )

    def _on_awaited(self) -> None:
        """A value of a Ref has come, or does not come. In any thread: the news of a
        death are the housekeeper's, and the mailbox is the dispatching thread's."""
        if self.parts.values.delivers_here():
            self.on_value()
        else:
            self.parts.messenger.put(envelope.pack_record(envelope.CAME, 0))

    def on_value(self) -> None:
        """Calls may have all their values. In the poller's thread."""
        self.mailbox.settle()
        self.wake()

    def on_cancel(self, sender: int, call_id: int) -> None:
        """Drop a waiting call, or flag a running one as cancelled; one that is not here
        will find its cancellation."""
        key = (sender, call_id)
        self._vain[key] = None  # before the looks: see `_check_wanted`
        job = self.mailbox.remove(sender, call_id)
        if job is not None and job.iterator is None:
            self._vain.pop(key, None)
            self._let_go(job)
            self.reply_error(job, cancelled())
            return
        if job is not None:
            self.mailbox.put_first(job)  # a stream that may go on: let it end
        job = job or self.running.get(key)
        if job is None:
            self._forget_vain()
        else:
            _flag(job)
            self._vain.pop(key, None)
            self.cancel_running(job)

    def _forget_vain(self) -> None:
        if len(self._vain) > 2 * _VAIN:
            for key in list(self._vain)[:-_VAIN]:
                self._vain.pop(key, None)

    def on_credit(self, sender: int, call_id: int, items: int) -> None:
        """Let a stream send `items` more items."""
        job = self._streams.get((sender, call_id))
        if job is None:
            return  # it has ended, or does not run
        # Before the look at whether it is parked: it parks first, and then looks here.
        job.credit += items
        self.resume(job)

    def on_stop(self, sender: int) -> None:
        """Somebody stops the actor: earlier calls were accepted."""
        self.parts.agent.tell(Stopping())
        self._stop_asked = self.stopping = True
        self.wake()

    def stop_now(self) -> None:
        """The session ends, says the agent, which kills remaining actors after a while.
        Calls that have arrived by now were accepted."""
        self._stop_asked = True
        self.wake()

    def idle(self) -> bool:
        """Whether all accepted calls have ended."""
        return not (self.running or len(self.mailbox))

    def ended(self) -> bool:
        """Whether to end now. In the actor's own thread, not within a wait."""
        if not (self._stop_asked and self.idle()):
            return False
        if not self.stopping:
            self.parts.poller.try_drain()  # accept what has arrived, and no more
            self.stopping = True
        return self.idle()

    def refuse_rest(self) -> None:
        """The last look at the inbox: calls that came too late are refused, not
        lost. Those that come still later are not begun either, which callers are told
        behind all answers."""
        self.stopping = True
        self.parts.poller.try_drain()
        self._send_goaways()
        self.parts.flush()

    def _send_goaways(self) -> None:
        """Not to callers that have just ended: what waits for them holds up our end."""
        parts = self.parts
        for caller in list(self._callers):
            if caller != parts.process_id and parts.messenger.can_reach(caller):
                latest = self.started.latest_of(caller)
                parts.sender.post(caller, envelope.GOAWAY, latest)

    def on_forward(self, sender: int, call_id: int, pair: bytes) -> bool:
        """Note that a result goes to a third process, too. False: no such call is
        here."""
        if not self._is_here(sender, call_id):
            return False
        key = (sender, call_id)
        self._forwards.setdefault(key, []).append(pair)
        return self._is_here(sender, call_id) or not self._take_back(key, pair)

    def will_forward(self, token: int) -> bool:
        """Whether a result will be sent as that token, too."""
        noted = [pair for pairs in list(self._forwards.values()) for pair in pairs]
        return any(bodies.numbers(pair, 2)[1] == token for pair in noted)

    def _take_back(self, key: tuple[int, int], pair: bytes) -> bool:
        """The call ended while that was noted, or is just being begun. False: its end
        has found the note."""
        pairs = self._forwards.get(key)
        if pairs is None:
            return False
        pairs.remove(pair)
        if not pairs:
            self._forwards.pop(key, None)
        return True

    def _is_here(self, sender: int, call_id: int) -> bool:
        return self._job(sender, call_id) is not None

    def _job(self, sender: int, call_id: int) -> Job | None:
        if job := self.running.get((sender, call_id)):
            return job
        waiting = self.mailbox.of_sender(sender)
        return next((job for job in waiting if job.call_id == call_id), None)

    def queued(self) -> int:
        """The number of calls in the mailbox."""
        return len(self.mailbox)

    def has_ready(self) -> bool:
        """Whether some call could be run at once."""
        return self.mailbox.has_ready()

    def on_process_lost(self, process_id: int) -> None:
        """A caller is gone: nobody takes the results of its calls."""
        self._callers.pop(process_id, None)
        self._marks.pop(process_id, None)
        self._give_up(process_id, 0, math.inf)
        self.parts.values.given_up(process_id)

    def latest_call_of(self, process_id: int) -> int:
        """The highest id of a call that has come from a process."""
        return self._callers.get(process_id, 0)

    def pass_over(self, process_id: int, mark: int) -> None:
        """A caller's connection broke. Calls with lower ids that come from here on are
        not wanted: it has ended them, or made them again. So has it those that are
        here, whose values need not come any more."""
        self._marks[process_id] = mark
        self.parts.values.given_up(process_id, mark)

    def on_connection_broke(self, process_id: int, latest: float) -> None:
        """Items or credits may be lost, so that process's streams up to call `latest`
        have failed there. Its other calls run, even if it has given them up: it counts
        on that."""
        self._give_up(process_id, envelope.STREAM, latest)

    def _give_up(self, process_id: int, kind: int, latest: float) -> None:
        """Drop or cancel the calls of one caller that have all the flags of `kind`."""
        for job in self.mailbox.of_sender(process_id):
            concerned = job.flags & kind == kind and job.call_id <= latest
            if job.iterator is None and concerned:
                job.cancelled = True  # it may have been taken just now
                self.mailbox.remove(job.sender, job.call_id)
                self._let_go(job)
                self._forwards.pop((job.sender, job.call_id), None)
        for key, job in list(self.running.items()):
            concerned = job.flags & kind == kind and job.call_id <= latest
            if key[0] == process_id and concerned:
                job.cut_off = kind == envelope.STREAM
                _flag(job)
                self.cancel_running(job)

    def holders_of(self, sender: int, call_id: int) -> list[CallContext]:
        """The calls whose waits hold up a call that was made here: itself if it runs;
        if it waits for the one thread, or the whole actor, those that have that. None
        if it has ended: its answer is under way."""
        job = self._job(sender, call_id)
        return [] if job is None else self._holders(job)

    def holder_of_all(self, sender: int, total: int) -> CallContext | None:
        """The one call that holds up all calls of a process; `total` is the sum of the
        ids of all that it has outstanding here. None: there are several, or one of
        those calls has ended. The ids of the others have a smaller sum."""
        jobs = {job.call_id: job for job in self.mailbox.of_sender(sender)}
        for (caller, call_id), job in list(self.running.items()):
            if caller == sender:
                jobs[call_id] = job
        if not jobs or sum(jobs) != total:
            return None
        first, *others = map(self._holders, jobs.values())
        alone = len(first) == 1 and all(held == first for held in others)
        return first[0] if alone else None

    def _holders(self, job: Job) -> list[CallContext]:
        call: CallContext | None = job.context
        if call is not None and call.started:
            return [] if job.parked else [call]
        ahead = self.ahead_of(job)
        return [] if ahead is None else [ahead]

    def ahead_of(self, job: Job) -> CallContext | None:
        """The call whose end one that has not begun waits for; None: there may be
        several, any of which may do."""
        spec = self._methods.get(job.name)
        on_loop = spec is not None and spec.is_async  # and needs no thread
        return None if on_loop else self.current

    # -- from the mailbox to the method (the actor's own threads) ------------

    def prepare(
        self, job: Job
    ) -> tuple[MethodSpec, Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The bound method and its arguments; from here on the call counts as started.

        Raises:
          BaseException: the error for the reply. All data of the call was let go of.
        """
        try:
            spec = self._methods.get(job.name)
            if spec is None:
                name = job.name.decode(errors="replace")
                raise AttributeError(f"{self.label} has no method {name!r}")
            if job.transfer is not None:
                self._check_transfer(job, spec)
            self._check_deadline(job.deadline, spec.name)
            args: tuple[Any, ...] = ()
            kwargs: dict[str, Any] = {}
            if not job.flags & envelope.EMPTY:
                args, kwargs = self._arguments_of(job)
                self._check_deadline(job.deadline, spec.name)  # it took a while
            method = getattr(self.instance, spec.name)
            # Before the last look: a cancellation that this does not see finds the
            # context, and tells the method by that.
            job.context = CallContext(
                self.parts.actor_id,
                self.label,
                job.sender,
                job.call_id,
                job.chain,
                job.deadline,
                spec.name,
            )
            self._check_wanted(job)
        except BaseException:
            job.context = None  # it has not begun
            self._let_go(job)
            raise
        self.started.note(job.sender, job.call_id)
        return spec, method, args, kwargs

    def _check_wanted(self, job: Job) -> None:
        """It is in `running`, so from here on a cancellation finds it."""
        if self._vain and (job.sender, job.call_id) in self._vain:
            job.cancelled = True
        if job.cancelled:
            raise cancelled()

    def check_turn(self, call: CallContext) -> None:
        """A call that was prepared has waited for its thread: whether it still runs.

        Raises:
          Cancelled, CallTimeout: it was given up meanwhile.
        """
        if call.cancelled:
            raise cancelled()
        self._check_deadline(call.deadline, call.method)

    def _check_deadline(self, deadline: float | None, method: str) -> None:
        if deadline is not None and perf_counter() >= deadline:
            raise errors.CallTimeout(
                f"{self.label}.{method} was still queued when its deadline passed; "
                "it did not run",
                delivered=False,
            )

    def _arguments_of(self, job: Job) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if job.flags & envelope.WHOLE:
            job.arguments = None
            return self._whole(job)
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        if job.arguments is not None:
            decoded = job.arguments.value()
            job.arguments = None
            args, kwargs = decoded if job.flags & envelope.KWARGS else (decoded, kwargs)
        return self._fill(job, args, kwargs) if job.needs else (args, kwargs)

    def _check_transfer(self, job: Job, spec: MethodSpec) -> None:
        """Give its place to others; refuse to run if its arguments did not arrive."""
        transfer, job.transfer = job.transfer, None
        self.parts.payloads.cancel(transfer)
        error = transfer.error if transfer is not None else None
        if transfer is not None and transfer.lost:
            raise transfer.cut_off(
                "its arguments were",
                before=f"{self.label}.{spec.name} did not run: ",
                after="; call again",
                delivered=False,
            )
        if isinstance(error, errors.ActorUnavailable):
            raise errors.ActorUnavailable(
                f"{self.label}.{spec.name} did not run, because its arguments did "
                f"not arrive: {error}; call again",
                delivered=False,
            )
        if isinstance(error, errors.MooError):
            error.delivered = False
        if error is not None:
            raise error

    def _whole(self, job: Job) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """All arguments, which came as one value."""
        ((token, future),) = job.needs
        self.parts.values.forget(token)
        decoded = future.unwrap()
        return decoded if job.flags & envelope.KWARGS else (decoded, {})

    def _fill(
        self, job: Job, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Put the values of Refs where their placeholders stand."""
        values = dict(job.needs)
        for token in values:
            self.parts.values.forget(token)

        kept = {k: _filled(v, values) for k, v in kwargs.items()}
        return tuple(_filled(x, values) for x in args), kept

    def _let_go(self, job: Job) -> None:
        """It will not run: its data, arrived or under way, is not wanted."""
        if job.arguments is not None:
            job.arguments.let_go()  # the frames of the error may have them
            job.arguments = None
        if job.flags & envelope.STREAM:
            self._streams.pop((job.sender, job.call_id), None)
        self.parts.payloads.cancel(job.transfer)
        for token, _ in job.needs:
            self.parts.values.abandon(token)

    # -- for subclasses ----------------------------------------------------

    def wake(self) -> None:
        """There may be work. Called by the thread that leads the poller."""
        self.parts.poller.wake()

    def on_queued(self) -> None:
        """A call is in the mailbox. Threads that wait at the poller need no wake-up:
        they look once its message was dispatched."""

    @abc.abstractmethod
    def cancel_running(self, job: Job) -> None:
        """Its caller has given up; its flags are set already."""

    @abc.abstractmethod
    def resume(self, job: Job) -> None:
        """A stream has got credit."""

    @abc.abstractmethod
    def run(self) -> None:
        """Serve until the actor must end."""

    def construct(self, make: Callable[[], Any]) -> Any:
        """Call the constructor, or a sync hook, where sync methods run."""
        return make()

    def close(self) -> None:
        """The actor has ended, and its `on_stop` has run."""


def _flag(job: Job) -> None:
    """Its caller has given it up: before the look at its context, see `prepare`."""
    job.cancelled = True
    call: CallContext | None = job.context  # which is taken away if it does not begin
    if call is not None:
        call.cancelled = True


def cancelled() -> errors.Cancelled:
    """The error of a call that was given up in time."""
    return errors.Cancelled("cancelled before it ran")


def _filled(x: Any, values: dict[int, Any]) -> Any:
    """An argument, or the value that it stands in for. No closure that is a cycle of
    references: that would keep the values."""
    if isinstance(x, bodies.Placeholder):
        return values[x.token].unwrap()
    if type(x) is bodies.Placeholders:
        return [_filled(one, values) for one in x]
    return x
