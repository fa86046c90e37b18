# SPDX-License-Identifier: MIT
"""Sessions of one namespace: actors of one program, found and called by another."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

import mooactor as moo
from mooactor.cli.client import Client, homes
from mooactor.control.messages import encode
from mooactor.host.protocol import Ask, AskNames, Poll
from mooactor.process.protocol import Kill, Spawn
from tests.conftest import eventually
from tests.host.homes import OtherHome
from tests.host.programs import Program

OTHER = """
import mooactor as moo
from tests.host.test_shared_names import Counter

moo.init({address!r}, namespace={namespace!r})
handles = [moo.on(Counter, host={on!r}, name=name).spawn() for name in sys.argv[1:]]
"""


class Counter:
    """Counts, and calls others."""

    def __init__(self):
        self.value = 0

    def add(self, amount=1):
        self.value += amount
        return self.value

    def ask(self, other, amount):
        return other.add(amount)

    def pid(self):
        return os.getpid()

    def find(self, name, amount):
        return moo.lookup(name).add(amount)

    def watches(self, name):
        self.events = moo.monitor(moo.lookup(name))
        return type(next(self.events)).__name__

    def total(self, array):
        return float(array.sum())

    def stays(self):
        threading.Event().wait()


def is_there(name):
    try:
        moo.lookup(name)
    except moo.ActorUnavailable:
        return False
    return True


@pytest.fixture
def other(here):
    """Starts other drivers."""
    started = []

    def start(*names, namespace="shared", on="a", **options):
        text = OTHER.format(address=here.address, namespace=namespace, on=on)
        started.append(Program(here, text, *names, **options))
        return started[-1].await_ready()

    yield start
    for program in started:
        program.close()


@pytest.fixture
def shares(here):
    """Call it to have this process join, as one of the namespace."""

    def join(namespace="shared"):
        return moo.init(local=False, namespace=namespace)

    return join


@pytest.fixture
def other_home(here):
    made = OtherHome(here)
    yield made
    made.close()


def address_of_home():
    with Client() as client:
        (home,) = homes(client.rows())
    return home["address"]


@pytest.mark.slow
def test_a_lookup_finds_the_actor_of_another_session_or_waits_for_it(other, shares):
    program = other("counter")
    with shares():
        assert moo.lookup("counter").add(2) == 2
        assert moo.lookup("counter").add(3) == 5
        with pytest.raises(moo.ActorUnavailable, match="no actor is named 'nobody'"):
            moo.lookup("nobody")
        program.say('moo.on(Counter, name="late").spawn()')
        assert moo.lookup("late", timeout=30).add() == 1
    with shares("apart"):
        with pytest.raises(moo.ActorUnavailable, match="no actor is named"):
            moo.lookup("counter")
        assert moo.on(Counter, name="counter").spawn().add(7) == 7


def test_a_name_is_taken_for_all_sessions_until_its_actor_ends(other, shares):
    program = other("counter")
    with shares():
        with pytest.raises(ValueError, match="of another session"):
            moo.on(Counter, name="counter").spawn()
        handle = moo.lookup("counter")
        assert program.ask("moo.stop(handles[0])") == "None"

        assert eventually(lambda: not is_there("counter"))
        assert moo.on(Counter, name="counter").spawn().add(9) == 9
        with pytest.raises(moo.ActorDied):
            handle.add()


@pytest.mark.slow
def test_of_sessions_that_want_a_name_at_the_same_time_one_gets_it(other, shares):
    programs = [other() for _ in range(2)]
    with shares():
        for number in range(8):
            for program in programs:
                program.say(f'moo.on(Counter, name="one-{number}").spawn().add()')
            try:
                mine = moo.on(Counter, name=f"one-{number}").spawn().add()
            except ValueError as error:
                mine = str(error)
            said = [program.read() for program in programs] + [str(mine)]
            assert said.count("1") == 1, said
            refused = [one for one in said if one != "1"]
            assert all("is taken by" in one for one in refused), said


def test_handles_values_and_ends_cross_from_session_to_session(other, shares):
    program = other("counter", "second")
    with shares():
        mine = moo.on(Counter, host="b", name="mine").spawn()
        counter, second = moo.lookup("counter"), moo.lookup("second")
        assert counter.ask(mine, 4) == 4  # an actor of theirs calls one of ours
        assert program.ask('moo.lookup("mine").add(1)') == "5"
        unnamed = moo.on(Counter, host="a").spawn()
        assert counter.ask(unnamed, 6) == 6
        array = np.arange(1_000_000, dtype=np.float64)
        assert counter.total(array) == array.sum()
        assert counter.total(moo.put(array)) == array.sum()
        assert counter.add(counter.add.remote(3)) == 6  # a Ref of its own
        assert mine.add(counter.add.remote(0)) == 11  # and one of theirs

        with moo.monitor(counter) as events:
            assert isinstance(next(events), moo.Started)
            moo.kill(counter)
            died = next(events)
        assert isinstance(died, moo.Stopped)
        assert died.cause.kind == "killed"
        moo.stop(second)
        with pytest.raises(moo.ActorDied) as caught:
            second.add()
        assert caught.value.cause.kind == "stopped"


def named(program):
    """Its name in another program."""
    return f"python -c (pid {program.process.pid} on host other)"


ENDS = {
    "kill": lambda program: program.process.kill(),
    "shutdown": lambda program: program.say("moo.shutdown(grace=0)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "shutdown"])
def test_the_end_of_a_session_is_the_cause_that_its_actors_died_of(other, shares, how):
    program = other("counter", "unknown")
    with shares():
        counter, finder = moo.lookup("counter"), moo.on(Counter, host="b").spawn()
        unknown = moo.lookup("unknown")
        assert counter.pid() > 0
        ref = counter.stays.remote()
        ENDS[how](program)
        with pytest.raises(moo.ActorDied) as caught:
            ref.get(timeout=20)
        did = "called moo.shutdown()" if how == "shutdown" else "has ended"
        cause = caught.value.cause
        assert (cause.kind, cause.owner) == ("owner", named(program))
        assert str(cause) == f"its session has ended: {named(program)} {did}"

        assert eventually(lambda: not is_there("counter"))
        for handle, label in ((counter, "counter"), (unknown, "unknown")):
            with moo.monitor(handle) as events:
                (died,) = events
            assert isinstance(died, moo.Died) and died.actor == f"Counter:{label}"
            assert died.cause.kind == "owner" and died.cause.owner == named(program)
            with pytest.raises(moo.ActorDied):
                handle.add.options(timeout=60)()
            with pytest.raises(moo.ActorDied, match=r"its session has ended: .*"):
                finder.ask.options(timeout=60)(handle, 1)
            moo.kill(handle)


@pytest.mark.slow
def test_a_session_that_was_cut_off_is_found_again_by_those_it_was_not_dead_to(
    here, other, shares
):
    other("far", host="b", on="other")
    with shares():
        mine = moo.on(Counter, host="a", name="mine").spawn()
        far = moo.lookup("far")
        assert far.add() == 1
        assert far.watches("mine") == "Started"
        with here.network.cut_off("b"):
            assert eventually(lambda: not is_there("far"), 20)
        assert eventually(lambda: is_there("far"), 30)
        with pytest.raises(moo.ActorDied, match="the session that it belongs to"):
            far.add()
        with pytest.raises(moo.ActorDied, match="takes the caller for dead"):
            mine.find.options(timeout=60)("far", 1)
        assert moo.on(Counter, host="a").spawn().find("far", 4) == 5


# -- homes that ask, and what none may ask -----------------------------------------

ASKS = {"type": "Ask", "line": 1, "process": 1}
MALFORMED = [
    Ask(1, 1, encode(Spawn(1 << 20, "", b""))),
    {"type": "Poll"},
    {"type": "Poll", "number": 1, "id": "none"},
    {**ASKS, "line": 1e300, "message": encode(Kill(1))},
    {**ASKS, "line": "one", "message": b""},
    {**ASKS, "message": encode({"type": "Configure"})},
    {**ASKS, "message": 7},
    {"type": "LineClosed", "line": []},
    AskNames("x" * 1001, "shared"),
]
STRANGERS = [
    AskNames("x", "apart"),
    {"type": "AskNames"},
    Poll(1, "mine"),
]


def test_what_no_session_may_ask_ends_its_channel_and_nothing_else(shares, other_home):
    with shares():
        mine = moo.on(Counter, name="mine").spawn()
        home = address_of_home()
        for message in MALFORMED:
            channel = other_home.visit(home)
            other_home.await_told()
            # It is a neighbor before the broker tells of it, and hears all names.
            assert other_home.asked[0].namespace == "shared"
            assert [one.name for one in other_home.heard[:-1]] == ["mine"]
            channel.post(message)
            assert other_home.wait(lambda: other_home.closed)
            assert "malformed" in other_home.closed
        for message in STRANGERS:
            other_home.closed, other_home.heard, other_home.asked = None, [], []
            other_home.channel = other_home.node.connect(home, other_home)
            other_home.channel.post(message)
            assert other_home.wait(lambda: other_home.closed)
            assert not other_home.heard and not other_home.asked
        assert mine.add(5) == 5


@pytest.mark.slow
def test_a_session_whose_home_closes_its_door_is_told_nothing_more(shares, other_home):
    with shares():
        other_home.visit(address_of_home())
        other_home.await_told()
        other_home.back.close("no more")
        assert other_home.wait(lambda: other_home.closed)
        assert "it cannot reach the home of this session: no more" in other_home.closed


def test_a_namespace_without_a_cluster_is_refused(monkeypatch):
    monkeypatch.delenv("MOOACTOR_ADDRESS", raising=False)
    with pytest.raises(ValueError, match="give moo.init the address of a broker"):
        moo.init(namespace="shared")
