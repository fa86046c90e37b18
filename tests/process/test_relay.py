# SPDX-License-Identifier: MIT
"""Values that others shall take from here, and that come twice, or too late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mooactor.control import bodies, envelope
from mooactor.control.envelope import Record
from mooactor.control.links import Link
from mooactor.process.objects.future import Reply
from mooactor.process.objects.relay import Key, Relay

OWNER, OTHER, TOKEN = 1 << 16, 2 << 16, 5
KEY = Key(OWNER, 7)


class Relaying(Relay):
    """One that notes what it posts: process, kind, number and flags."""

    def __init__(self) -> None:
        self.posted: list[tuple[int, int, int, int]] = []
        links: Any = SimpleNamespace(
            link=lambda actor, number, *_, **__: Link(actor, number, "")
        )
        payloads: Any = SimpleNamespace(plane=object(), borrows=None)
        super().__init__(links, self, payloads)  # type: ignore[arg-type]

    def post(
        self, target: int, kind: int, number: int, payload: Any = b"", flags: int = 0
    ) -> None:
        self.posted.append((target, kind, number, flags))

    def ask(self, token: int) -> None:
        """Another process, which its owner has sent here, asks for the value."""
        self.on_ask(record(OTHER, envelope.ASK, token, KEY))


def record(sender: int, kind: int, number: int, numbers: tuple[int, ...]) -> Record:
    body = bodies.pack_numbers(*numbers)
    return Record(sender, 0, kind, 0, 0, number, 0.0, b"", (), body, {})


def reply() -> Reply:
    return Reply(b"a value", [], False, plane=None)  # type: ignore[arg-type]


SENT_ON = OTHER, envelope.VALUE, 9, envelope.GONE
GIVEN = OTHER, envelope.VALUE, 9, 0


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


def test_one_that_comes_again_while_it_is_under_way_is_kept_if_it_must_be() -> None:
    relay = Relaying()
    relay.ask(9)
    relay.came_again(TOKEN, KEY, arriving=True)
    assert relay.posted == []
    relay.arrived(TOKEN, reply())
    assert relay.posted == [GIVEN]


def test_nobody_is_sent_away_while_another_call_here_waits_for_the_value() -> None:
    relay = Relaying()
    relay.expect(TOKEN + 1, KEY)
    relay.ask(9)
    relay.came_again(TOKEN, KEY, arriving=False)
    assert relay.posted == []
    relay.arrived(TOKEN + 1, reply())
    assert relay.posted == [GIVEN]


def test_the_owner_of_a_value_that_came_from_a_holder_too_late_need_not_wait() -> None:
    relay = Relaying()
    relay.on_redirect(record(OWNER, envelope.REDIRECT, TOKEN, (OTHER, KEY.number)))
    assert relay.asks_holder(TOKEN)
    relay.came_again(TOKEN, None, arriving=False)
    asked = OTHER, envelope.ASK, TOKEN, 0
    assert relay.posted == [asked, (OWNER, envelope.TAKEN, TOKEN, 0)]
    assert len(relay) == 0


def test_only_its_holder_can_say_that_it_has_none() -> None:
    relay = Relaying()
    relay.on_redirect(record(OWNER, envelope.REDIRECT, TOKEN, (OTHER, KEY.number)))
    assert not relay.holder_has_none(TOKEN, OWNER)
    assert relay.asks_holder(TOKEN)
    assert relay.holder_has_none(TOKEN, OTHER)
    assert relay.posted[-1] == (OWNER, envelope.RETRY, TOKEN, 0)
    assert not relay.asks_holder(TOKEN)
