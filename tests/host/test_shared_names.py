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


def test_the_end_of_a_session_is_the_cause_that_its_actors_died_of(other, shares):
    program = other("counter")
    with shares():
        counter = moo.lookup("counter")
        assert counter.pid() > 0
        ref = counter.stays.remote()
        program.say("moo.shutdown(grace=0)")
        with pytest.raises(moo.ActorDied) as caught:
            ref.get(timeout=20)
        cause, owner = caught.value.cause, named(program)
        assert (cause.kind, cause.owner) == ("owner", owner)
        assert str(cause) == f"its session has ended, with its program {owner}"
        assert eventually(lambda: not is_there("counter"))


# -- homes that ask, and what none may ask -----------------------------------------

ASKS = {"type": "Ask", "line": 1}
MALFORMED = [
    Ask(1, encode(Spawn(1 << 20, "", b""))),
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


def test_a_namespace_without_a_cluster_is_refused(monkeypatch):
    monkeypatch.delenv("MOOACTOR_ADDRESS", raising=False)
    with pytest.raises(ValueError, match="give moo.init the address of a broker"):
        moo.init(namespace="shared")
