# SPDX-License-Identifier: MIT
"""A home's dealings with other hosts, without any: see `LoneHome`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mooactor.control.messages import Unsendable, encode
from mooactor.host import groups, lifetimes
from mooactor.host.output import MOST_LINES, TAIL_LINES
from mooactor.host.protocol import (
    Closed,
    Denied,
    Dying,
    Exited,
    GroupClosed,
    GroupFrame,
    Kill,
    Leave,
    OverLine,
    Start,
)
from mooactor.host.resources import Devices
from mooactor.process import protocol
from mooactor.process.needs import Amount, Needs
from mooactor.process.protocol import Reserve, Unreserve, Watch
from mooactor.process.supervision import Restart
from tests.host.lone_homes import LoneHome

AT_ONCE = Restart(5)


def wait_for(lone: LoneHome, condition: Callable[[], object]) -> None:
    """Serve the home's loop until it holds."""
    until = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < until
        lone.loop.serve(time.monotonic() + 0.01)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., LoneHome]]:
    lone: list[LoneHome] = []

    def make(names: str = "b", **options: Any) -> LoneHome:
        lone.append(LoneHome(tmp_path, names, **options))
        return lone[-1]

    yield make
    for home in lone:
        home.close()


@pytest.fixture
def lone(made: Callable[..., LoneHome]) -> LoneHome:
    return made()


# -- starts that cannot be posted -------------------------------------------------


@pytest.mark.parametrize("error", [Unsendable("too large"), OSError("no parcel")])
def test_an_actor_whose_start_cannot_be_posted_ends_and_leaves_nothing(
    lone: LoneHome, error: Exception
) -> None:
    other = lone.spawn(1)
    wire = lone.wire("b")

    def post(message: Any, *_: Any, **__: Any) -> None:
        if isinstance(message, Start):
            raise error

    wire.post = post  # type: ignore[method-assign]
    actor = lone.spawn(2)
    assert actor.over
    assert len(lone.site("b")) == 1
    lone.lose("b")
    assert other.over


# -- where an actor's process is -----------------------------------------------------


def test_a_host_with_the_drivers_name_takes_no_actor_of_the_drivers_own(
    made: Callable[..., LoneHome],
) -> None:
    lone = made("", here="a", local=True)
    mine = lone.spawn(1, num_gpus=1.0)
    lone.hosts.names = {"a"}
    there = lone.spawn(2)
    assert there.process in lone.site("a")._processes.values()
    lone.lose("a")
    assert there.over
    assert lone.sites.is_placed(mine.id)
    assert lone.resources.reserved().gpus == 1.0

    lone.spawn(3)  # there is another part of the session at `a`
    lone.ask(protocol.Kill(mine.id))
    assert lone.here.killed == [mine.process]
    assert lone.wire("a").of(Kill) == []


def test_an_actor_that_restarts_amid_its_hosts_loss_is_killed_where_it_runs(
    lone: LoneHome,
) -> None:
    owner = lone.spawn(1, num_cpus=2.0, policy=AT_ONCE)
    lone.born("b", owner)
    line = owner.process.line
    owned = lone.spawn(2)
    owned.owner = owner
    owner.owned.add(owned)
    lone.born("b", owned)
    number = owner.process.line.number
    lone.hear("b", Dying(number))
    lone.exits("b", owner)
    wait_for(lone, lambda: owner.due)  # it waits for what it owned
    lone.lose("b")

    assert owner.process is not None
    assert owner.process.line is not line
    assert len(lone.hosts.wires["b"]) == 2
    assert lone.sites.is_placed(owner.id)
    lone.born("b", owner)
    lone.ask(protocol.Kill(owner.id))
    assert lone.here.killed == []
    assert len(lone.wire("b").of(Kill)) == 1
    lone.exits("b", owner)
    assert owner.over
    assert [one.holder for one in lone.wire("b").of(Leave)] == [owner.id]


# -- what a member of the cluster may say --------------------------------------------

LINE = "x" * (1 << 12)  # the longest that a host tells


EXITED = {"type": "Exited", "number": 1, "status": 9, "oom": False}
PRINTER = {"label": "X", "pid": 1}
PRINTED = {"type": "Printed", "stream": 1, "printer": PRINTER, "lines": b""}
MALFORMED: list[Any] = [
    {"type": "Opened", "files": "x"},
    {"type": "Opened", "files": [1]},
    {"type": "Opened", "files": -1},
    {"type": "Opened", "why": "x" * (17 << 20)},
    {**EXITED, "stderr": [LINE + "x"]},
    {**EXITED, "stderr": [""] * (TAIL_LINES + 1)},
    {**PRINTED, "lines": b"x" * (17 << 20)},
    {**PRINTED, "lines": b"\n" * MOST_LINES},
    {**PRINTED, "printer": {**PRINTER, "label": "x" * (17 << 20)}},
    {**PRINTED, "stream": 3},
    {**PRINTED, "more": 1},
    {"type": "GroupFrame", "place": 0, "frame": b"x"},
    {"type": "GroupFrame", "place": 1, "frame": b""},
    {"type": "GroupFrame", "place": 1, "frame": bytes((1 << 14) + 1)},
    {"type": "GroupClosed", "place": 1},
    {"type": "Announce", "row": b""},
    {},
    7,
]


def test_a_malformed_message_of_a_host_ends_the_session_there_and_no_more(
    made: Callable[..., LoneHome],
) -> None:
    for message in MALFORMED:
        lone = made("bc")
        there, elsewhere = lone.spawn(1, host="b"), lone.spawn(2, host="c")
        lone.born("b", there)
        part = lone.site("b")
        wire: Any = lone.wire("b")
        part.handle(wire, encode(message))
        assert part.closed
        assert "cannot be acted on" in lone.died()[there.id].note
        assert elsewhere.process is not None


def test_the_end_of_a_process_has_all_that_its_host_tells_of_it(lone: LoneHome) -> None:
    words = [LINE] * TAIL_LINES  # the longest last words
    for number, oom, kind in ((1, False, "signal"), (2, True, "oom")):
        actor = lone.spawn(number)
        lone.born("b", actor)
        lone.hear("b", Exited(actor.process.line.number, 9, words, oom))
        record = lone.died()[actor.id]
        assert (record.kind, record.signal) == (kind, 9)
        assert list(record.stderr) == words
    assert not lone.site("b").closed


# -- learner groups --------------------------------------------------------------------


def place_of(lone: LoneHome, actor: Any, host: str, share: str | None = "") -> int:
    """The number of the place in which the actor joins group "g"."""
    lone.says(host, actor, protocol.Segment("g", share, rid=7))
    (*_, last) = lone.wire(host).of(OverLine)
    assert last.number == actor.process.line.number
    assert last.segment is not None
    return last.segment


def test_members_of_one_host_have_a_place_in_common_that_no_other_has(
    made: Callable[..., LoneHome],
) -> None:
    lone = made("bc")
    first, second, other = (
        lone.spawn(number, host=host) for number, host in ((1, "b"), (2, "b"), (3, "c"))
    )
    for host, actor in (("b", first), ("b", second), ("c", other)):
        lone.born(host, actor)
    places = [
        place_of(lone, first, "b"),
        place_of(lone, second, "b"),
        place_of(lone, other, "c"),
        place_of(lone, first, "b", "another machine"),
        place_of(lone, first, "b", None),
        place_of(lone, second, "b", None),
        place_of(lone, first, "b", None),
    ]
    assert places == [1, 1, 2, 3, 4, 5, 4]
    lone.lose("b")
    lone.spawn(4, host="b")
    late = lone.home.actors[4 << 16]
    lone.born("b", late)
    assert place_of(lone, late, "b") == 6  # the numbers of lost places stay theirs


def test_a_frame_that_is_none_ends_the_session_on_its_host_unless_it_is_stale(
    made: Callable[..., LoneHome],
) -> None:
    lone = made("bc")
    there, elsewhere = lone.spawn(1, host="b"), lone.spawn(2, host="c")
    lone.born("b", there)
    lone.born("c", elsewhere)
    place = place_of(lone, there, "b")
    for host, number in (("b", place + 1), ("c", place)):  # nobody's, another host's
        lone.hear(host, GroupFrame(number, b"no frame"))
        assert not lone.site(host).closed
    part = lone.site("b")
    lone.hear("b", GroupFrame(place, b"no frame"))
    assert part.closed
    assert "cannot be acted on" in lone.died()[there.id].note
    assert elsewhere.process is not None


def test_a_members_own_place_is_given_back_after_its_end(
    lone: LoneHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_LINGER_S", 0.01)
    actor = lone.spawn(1)
    lone.born("b", actor)
    own, _ = place_of(lone, actor, "b", None), place_of(lone, actor, "b")
    lone.hear("b", Dying(actor.process.line.number))
    lone.exits("b", actor)
    wait_for(lone, lambda: lone.wire("b").of(GroupClosed))
    assert lone.wire("b").of(GroupClosed) == [GroupClosed(own)]


# -- places that are reserved ----------------------------------------------------------


def test_what_a_spawner_has_reserved_is_given_back_when_it_dies(
    lone: LoneHome,
) -> None:
    spawner = lone.spawn(1, detached=True)
    lone.born("b", spawner)
    own, kept, unplaced, waits = (number << 16 for number in (2, 3, 4, 5))
    ids = [own, kept, unplaced, waits]
    lone.says("b", spawner, Reserve(ids, Needs(Amount(1.0)), rid=1))
    lone.says("b", spawner, Unreserve([unplaced]))
    lone.says("b", spawner, lone.request(2, detached=True, num_cpus=1.0))
    assert [lone.sites.is_placed(one) for one in ids] == [True, True, False, True]
    lone.ask(lone.request(3, num_cpus=1.0))  # by another one
    lone.born("b", lone.home.actors[own])

    lone.hear("b", Closed(spawner.process.line.number))
    assert [lone.sites.is_placed(one) for one in ids] == [True, True, False, False]
    assert lone.free_cpus("b") == 2.0
    left = [message.holder for message in lone.wire("b").of(Leave)]
    assert sorted(left) == [unplaced, waits]


# -- hosts that have no room after all ----------------------------------------------


def deny(lone: LoneHome, host: str, actor: Any, note: str = "all is reserved") -> None:
    lone.hear(host, Denied(actor.process.line.number, note))


def starts(lone: LoneHome, host: str) -> int:
    return sum(len(wire.of(Start)) for wire in lone.hosts.wires.get(host, ()))


def test_an_actor_is_placed_once_on_each_host_that_denies_it(
    made: Callable[..., LoneHome],
) -> None:
    lone = made("abc")
    actor = lone.spawn(1, num_cpus=1.0)
    for host in "abc":
        assert starts(lone, host) == 1
        deny(lone, host, actor, f"1 CPU: {host} has none")
    assert actor.over
    note = lone.died()[actor.id].note
    assert note == (
        "Actor 1 cannot be started: 1 CPU: a has none. 1 CPU: b has none. "
        "1 CPU: c has none"
    )
    assert [starts(lone, host) for host in "abc"] == [1, 1, 1]


def test_hosts_that_denied_an_actor_are_asked_again_when_it_is_tried_again(
    made: Callable[..., LoneHome],
) -> None:
    lone = made("ab")
    actor = lone.spawn(1, policy=AT_ONCE)
    lone.born("a", actor)
    lone.exits("a", actor)
    wait_for(lone, lambda: starts(lone, "a") == 2)
    deny(lone, "a", actor)
    deny(lone, "b", actor)
    assert actor in lone.home.pending._waiting

    lone.home.pending.hosts_changed()
    wait_for(lone, lambda: actor.process is not None)

    assert (starts(lone, "a"), starts(lone, "b")) == (3, 1)
    assert actor.incarnation == 1


def test_parts_of_this_hosts_gpus_do_not_count_as_one(
    made: Callable[..., LoneHome],
) -> None:
    lone = made("b", local=True)
    lone.resources.total = Amount(8.0, 2.0, 1e9)
    lone.resources.devices = Devices(["0", "1"])
    for number in (1, 2):
        lone.spawn(number, num_gpus=0.6, host="d")

    lone.spawn(3, num_gpus=0.7)

    assert starts(lone, "b") == 1
    lone.spawn(4, num_gpus=0.7, host="d")
    said = r"free is d: 0.8 GPUs in parts of at most 0.4; b: 0.3 GPUs;"
    lone.spawn(5, num_gpus=0.7)
    assert said in lone.died()[5 << 16].note


# -- those that have died -----------------------------------------------------------


def test_the_ends_of_so_many_actors_are_known(
    lone: LoneHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifetimes, "_MOST", 3)
    owner = lone.spawn(1, detached=True)
    lone.born("b", owner)
    lone.says("b", owner, lone.request(2))
    owned = lone.home.actors[2 << 16]
    lone.born("b", owned, 778)
    lone.home.lifetimes.kill(owner, "stopped")
    lone.exits("b", owner)
    assert owner.over and not owner.gone
    for number in range(3, 10):
        lone.home.lifetimes.kill(lone.spawn(number), "stopped")

    known = [actor.id >> 16 for actor in lone.home.actors.values()]

    assert known[:2] == [1, 2] and known[-2:] == [8, 9] and len(known) <= 5
    lone.died()
    lone.ask(Watch(9 << 16, 0))
    lone.ask(Watch(3 << 16, 0))
    while lone.home.requests.waiting:
        lone.home.requests.after_round()
    died = {number >> 16: record.kind for number, record in lone.died().items()}
    assert died == {9: "stopped", 3: "unknown"}
    lone.exits("b", owned)
    assert owner.gone
