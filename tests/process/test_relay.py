# SPDX-License-Identifier: MIT
"""Values that others shall take from here, and that come twice, or too late."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from mooactor.control import bodies, envelope
from mooactor.control.envelope import Record
from mooactor.control.links import Link
from mooactor.process.objects.broadcast import Key, Relay
from mooactor.process.objects.future import Reply

OWNER, OTHER, TOKEN = 1 << 16, 2 << 16, 5
KEY = Key(OWNER, 7)


class Relaying(Relay):
    """One that notes what it posts: process, kind, number and flags."""

    def __init__(self) -> None:
        self.posted: list[tuple[int, int, int, int]] = []
        self.gone: set[int] = set()
        links: Any = SimpleNamespace(
            link=lambda actor, number, *_, **__: Link(actor, number, ""),
            watch=lambda process_id: None,
            is_gone=lambda process_id: process_id in self.gone,
        )
        payloads: Any = SimpleNamespace(
            plane=object(), borrows=None, pack=lambda data, *_: (data, 0)
        )
        self.timers: list[Callable[[], None]] = []
        super().__init__(
            links,
            self,  # type: ignore[arg-type]
            payloads,
            lambda _, action: self.timers.append(action),
            lambda: None,
        )

    def post(
        self,
        target: int,
        kind: int,
        number: int,
        payload: Any = b"",
        flags: int = 0,
        *,
        gather: bool = False,
    ) -> None:
        self.posted.append((target, kind, number, flags))

    def fire(self) -> None:
        """All timers."""
        timers, self.timers = self.timers, []
        for action in timers:
            action()

    def redirect(self) -> None:
        """Its owner tells this process to take the value from another one."""
        self.on_redirect(record(OWNER, envelope.REDIRECT, TOKEN, (OTHER, KEY.number)))

    def ask(self, token: int) -> None:
        """Another process, which its owner has sent here, asks for the value."""
        self.on_ask(record(OTHER, envelope.ASK, token, KEY))


def record(sender: int, kind: int, number: int, numbers: tuple[int, ...]) -> Record:
    body = bodies.pack_numbers(*numbers)
    return Record(sender, kind, 0, 0, number, 0.0, b"", (), body, {})


def reply() -> Reply:
    return Reply(b"a value", [], False, plane=None)  # type: ignore[arg-type]


SENT_ON = OTHER, envelope.VALUE, 9, envelope.GONE
GIVEN = OTHER, envelope.VALUE, 9, 0
PROMISE = envelope.PROMISED
PROMISED = OTHER, envelope.ASK, 9, PROMISE


def test_who_asks_for_a_value_that_came_too_late_is_sent_on_to_its_owner() -> None:
    for asks_first in (True, False):
        relay = Relaying()
        if asks_first:
            relay.ask(9)
        relay.came_again(TOKEN, KEY, arriving=False)
        if not asks_first:
            relay.ask(9)
        assert relay.posted == [SENT_ON]
        assert len(relay) == 0


def test_a_value_that_is_kept_stays_when_it_comes_again() -> None:
    relay = Relaying()
    relay.expect(TOKEN, KEY)
    relay.arrived(TOKEN, reply())
    relay.came_again(TOKEN, KEY, arriving=False)
    relay.came_again(TOKEN + 1, KEY, arriving=False)
    relay.ask(9)
    assert relay.posted == [GIVEN]
    again = Relaying()
    again.ask(9)
    again.came_again(TOKEN, KEY, arriving=True)  # it is under way, and is kept
    again.arrived(TOKEN, reply())
    assert again.posted == [GIVEN]


def test_only_its_holder_can_say_that_it_has_none() -> None:
    relay = Relaying()
    relay.redirect()
    assert not relay.holder_has_none(TOKEN, OWNER)
    assert relay.asks_holder(TOKEN)
    assert relay.holder_has_none(TOKEN, OTHER)
    assert relay.posted[-1] == (OWNER, envelope.RETRY, TOKEN, 0)
    assert not relay.asks_holder(TOKEN)


ASKED = OTHER, envelope.ASK, TOKEN, 0
RETRIED = OWNER, envelope.RETRY, TOKEN, 0


def test_the_owner_is_asked_if_the_holder_is_silent() -> None:
    relay = Relaying()
    relay.redirect()
    relay.fire()
    assert relay.posted == [ASKED, RETRIED]
    assert len(relay) == len(relay.timers) == 0
    busy = Relaying()
    busy.redirect()
    busy.answered(TOKEN, OTHER)  # data may take its time
    busy.fire()
    assert busy.posted == [ASKED] and not busy.timers


def test_a_holder_that_waits_for_the_value_itself_is_asked_again_and_again() -> None:
    relay = Relaying()
    relay.redirect()
    for _ in range(3):
        relay.on_ask(record(OTHER, envelope.ASK, TOKEN, ())._replace(flags=PROMISE))
        relay.fire()
    assert relay.posted == [ASKED] * 4
    relay.fire()
    assert relay.posted == [ASKED] * 4 + [RETRIED]


def test_nothing_is_promised_that_may_never_come() -> None:
    relay = Relaying()
    relay.ask(9)
    assert relay.posted == []
    relay.expect(TOKEN, KEY)
    relay.ask(9)
    assert relay.posted == [PROMISED]
    relay.arrived(TOKEN, reply())
    assert relay.posted == [PROMISED, GIVEN]  # once


def test_nothing_is_kept_of_an_owner_that_is_dead() -> None:
    relay = Relaying()
    relay.gone.add(OWNER)
    relay.ask(9)
    relay.expect(TOKEN, KEY)
    assert relay.posted == [SENT_ON]
    relay.arrived(TOKEN, reply())
    assert len(relay) == 0


def test_it_looks_who_asks_for_as_long_as_it_keeps_a_value() -> None:
    relay = Relaying()
    assert not relay.timers
    relay.expect(TOKEN, KEY)
    relay.expect(TOKEN + 1, KEY)
    for _ in range(3):
        assert len(relay.timers) == 1
        relay.fire()
    relay.on_drop(record(OWNER, envelope.DROP, KEY.number, ()))
    relay.fire()
    assert not relay.timers


def test_a_holder_that_is_named_while_its_owner_is_asked_is_the_one_that_counts() -> (
    None
):
    """The owner may answer before the thread that has asked it goes on."""

    class Quick(Relaying):
        def post(self, target: int, kind: int, *rest: Any) -> None:
            super().post(target, kind, *rest)
            if kind == envelope.RETRY:
                self.redirect()

    relay = Quick()
    relay.redirect()
    relay.fire()  # the holder is silent, so the owner is asked, and names one
    assert relay.asks_holder(TOKEN)
    relay.arrived(TOKEN, reply())
    assert (OWNER, envelope.TAKEN, TOKEN, 0) in relay.posted
    assert not relay.asks_holder(TOKEN)
