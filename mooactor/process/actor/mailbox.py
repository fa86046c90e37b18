# SPDX-License-Identifier: MIT
"""The calls that wait for an actor: by priority, and in order for each caller."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import starmap
from operator import length_hint
from typing import Any

from mooactor.errors import MooError
from mooactor.process.objects.future import Future, Reply
from mooactor.process.objects.inbound import Transfer

_ONCE = ((),)


class Job:
    """One call at the callee, from its arrival to its reply."""

    # Defaults of attributes that most calls never have, so that a call need not set
    # them.
    needs: Sequence[tuple[int, Future]] = ()  # values of Refs, by token
    context: Any = None
    task: Any = None  # asyncio task, once it runs
    iterator: Any = None  # of a stream, once it runs
    credit = 0  # items that a stream may still send
    cancelled = False
    cut_off = False  # a stream whose items or credits may be lost
    parked = False  # a stream without credit
    transfer: Transfer | None = None  # of its arguments, from another host
    answered = False  # its reply has gone out
    unwanted = False  # its caller has given it up, or made it again, before it came
    refusal: MooError | None = None  # why it is not queued

    def __init__(
        self,
        sender: int,
        call_id: int,
        flags: int,
        priority: int,
        name: bytes,
        chain: tuple[int, ...],
        arguments: Reply | None,
        deadline: float | None,
    ) -> None:
        self.sender = sender
        self.call_id = call_id
        self.flags = flags
        self.priority = priority
        self.name = name
        self.chain = chain
        self.arguments = arguments
        self.deadline = deadline
        # It enters its first queue by emptying this, in one step that nothing can cut
        # short or repeat.
        self.entry = iter((self,))

    def was_queued(self) -> bool:
        """Whether it has ever been in a mailbox."""
        return not length_hint(self.entry)

    def ready(self) -> bool:
        """Whether all its data is here, or has failed to arrive."""
        if self.transfer is not None and not self.transfer.done:
            return False
        return all(future.state for _, future in self.needs)


class Mailbox:
    """Jobs come out by priority, highest first, and in order of arrival within one.

    A job whose arguments are still under way holds up later jobs of the same caller
    (they must start in order), and nobody else's. Only the thread that leads the poller
    puts and settles; only the actor's own thread takes. There is no lock: a signal
    handler may dispatch within any step, and would wait for it for ever.
    """

    def __init__(self) -> None:
        self._levels: dict[int, deque[Job]] = {0: deque()}
        self._plain = self._levels[0]
        self._order: list[int] = [0]
        self._held: dict[tuple[int, int], deque[Job]] = {}

    def __len__(self) -> int:
        held = sum(map(len, self._held.values()))
        return held + sum(map(len, self._levels.values()))

    def has_ready(self) -> bool:
        """Whether `take` would return a job."""
        if self._plain:
            return True
        return len(self._order) > 1 and any(self._levels.values())

    def put(self, job: Job) -> None:
        """Queue a job; it is held back until its data, and earlier held jobs, are
        ready."""
        if job.needs or job.transfer is not None or self._held:
            key = (job.sender, job.priority)
            queue = self._held.get(key)
            # An empty one holds nothing up. It stays here if a signal handler
            # dispatches this job again within the next line, and then its values.
            if queue or not job.ready():
                queue = self._held.setdefault(key, deque())
                queue.extend(job.entry)
                if self._held.get(key) is not queue:  # it was settled in between
                    now = self._held.setdefault(key, queue)
                    if now is not queue:
                        now.extendleft(reversed(queue))
                return
        level = self._level(job.priority) if job.priority else self._plain
        level.extend(job.entry)

    def put_first(self, job: Job) -> None:
        """For a stream that may go on: it came before all that wait."""
        self._level(job.priority).appendleft(job)

    def _level(self, priority: int) -> deque[Job]:
        level = self._levels.get(priority)
        if level is None:
            level = self._levels.setdefault(priority, deque())
            self._order = sorted(self._levels, reverse=True)
        return level

    def settle(self) -> None:
        """Values have come: let go of the jobs that waited for them. The thread that
        puts does this: another one could miss a job that is just being held back, or
        let go of one whose values are not here."""
        for key, queue in list(self._held.items()):
            while queue and queue[0].ready():
                # One step, which nothing can cut short: off one queue, onto the other.
                self._level(queue[0].priority).extend(starmap(queue.popleft, _ONCE))
            if not queue:
                self._held.pop(key, None)

    def take(self) -> Job | None:
        """The next job that can run, None if there is none."""
        if len(self._order) == 1:
            return self._plain.popleft() if self._plain else None
        for priority in self._order:
            level = self._levels[priority]
            if level:
                return level.popleft()
        return None

    def remove(self, sender: int, call_id: int) -> Job | None:
        """Take a waiting job out, if it is still here. The actor's own thread may take
        jobs meanwhile."""
        for queue in [*self._levels.values(), *self._held.values()]:
            for job in list(queue):
                if job.call_id == call_id and job.sender == sender:
                    try:
                        queue.remove(job)
                    except ValueError:
                        return None  # it was taken just now
                    self.settle()  # it may have held up others
                    return job
        return None

    def waiting(self) -> list[Job]:
        """All of them, from any thread."""
        queues = [*self._levels.values(), *self._held.values()]
        return [job for queue in queues for job in list(queue)]

    def of_sender(self, sender: int) -> list[Job]:
        """Those of one caller, from any thread."""
        return [job for job in self.waiting() if job.sender == sender]
