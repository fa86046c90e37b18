# SPDX-License-Identifier: MIT
"""The poller's invariants, line by line: whatever the schedule, no thread waits in
vain, and nothing that was received is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mooactor.control.envelope import KEY_BYTES
from mooactor.control.messenger import Messenger, lib
from mooactor.process import poller as poller_module
from mooactor.process.objects import future as future_module
from mooactor.process.objects.future import Future
from mooactor.process.poller import Poller
from tests.process.interleave import Schedule, Thread, seeded

KEY = bytes(KEY_BYTES)


@pytest.fixture
def messenger(tmp_path: Path) -> Iterator[Messenger]:
    messenger = Messenger(str(tmp_path), 7 << 16, KEY)
    yield messenger
    messenger.close(0)


class Replies:
    """A dispatcher: message ``b"3"`` ends future 3."""

    poller: Poller

    def __init__(self, futures: list[Future]) -> None:
        self.futures = futures

    def dispatch(self, serial: int, message: bytes) -> None:
        self.futures[int(message)].set_value(int(message))

    def dispatched(self, serial: int) -> None: ...


class World:
    """Some threads that wait at one poller, and the replies that come."""

    def __init__(
        self,
        messenger: Messenger,
        monkeypatch: pytest.MonkeyPatch,
        choose: Callable[[Any], Any],
    ) -> None:
        self.messenger = messenger
        self.futures: list[Future] = []
        self.replies = Replies(self.futures)
        self.poller = self.replies.poller = Poller(messenger, self.replies)
        self.schedule = Schedule(
            choose,
            [poller_module, future_module],
            lambda: bool(lib.moo_inbox_settled(messenger.inbox)),
        )
        asleep = self.schedule.asleep(lib.moo_turn_wait)
        monkeypatch.setattr(poller_module, "_wait", asleep)

    def future(self) -> Future:
        self.futures.append(Future())
        return self.futures[-1]

    def wait(self, future: Future) -> None:
        assert self.poller.wait(lambda: future.state, None, (future,))
        assert self.futures[future.unwrap()] is future

    def poll(self, future: Future) -> None:
        while not future.state:
            self.poller.try_drain()

    def waiter(self, name: str) -> tuple[Thread, Future]:
        future = self.future()
        return self.schedule.add(name, lambda: self.wait(future)), future

    def run(self) -> None:
        numbers = range(len(self.futures))
        put = self.messenger.inbox
        letters = [
            lambda n=n: lib.moo_inbox_put(put, str(n).encode(), len(str(n)))
            for n in numbers
        ]
        self.schedule.run(letters)  # type: ignore[arg-type]
        self.poller.try_drain()
        assert [o.state > 0 for o in self.futures] == [True] * len(self.futures)
        assert not lib.moo_inbox_led(put)


def test_every_thread_that_waits_gets_its_reply_in_any_schedule(
    messenger: Messenger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(30):
        world = World(messenger, monkeypatch, seeded(seed))
        waiters = [world.waiter(f"t{n}")[0] for n in range(2 + seed % 2)]
        looked_for = world.future()
        looker = world.schedule.add("looks", lambda w=world, o=looked_for: w.poll(o))
        world.run()
        errors = [one.error for one in (looker, *waiters)]
        assert errors == [None] * len(errors), f"seed {seed}"
