# SPDX-License-Identifier: MIT
"""Sessions of one namespace: actors of one program, found and called by another."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

import mooactor as moo
from mooactor.cli.client import Client, homes
from mooactor.process.current import current_runtime
from tests.clusters import cluster
from tests.conftest import eventually
from tests.host.homes import OtherHome
from tests.host.programs import Program
from tests.marks import slow

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

    def numbers(self):
        yield from range(1 << 30)

    def waits(self):
        time.sleep(600)


def is_there(name):
    try:
        moo.lookup(name)
    except moo.ActorUnavailable:
        return False
    return True


@pytest.fixture(scope="module")
def two():
    with cluster("ab") as made:
        yield made


@pytest.fixture
def here(two, as_driver):
    return as_driver(two)


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
def joined(here):
    """Call it to have this process join."""

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
def test_a_lookup_finds_the_actor_of_another_session_at_once(other, joined):
    other("counter")
    with joined():
        assert moo.lookup("counter").add(2) == 2
        assert moo.lookup("counter").add(3) == 5
        with pytest.raises(moo.ActorUnavailable, match="no actor is named 'nobody'"):
            moo.lookup("nobody")


@pytest.mark.slow
def test_a_lookup_waits_for_the_actor_of_another_session(other, joined):
    with joined():
        program = other()
        program.say('moo.on(Counter, name="late").spawn()')
        assert moo.lookup("late", timeout=30).add() == 1


@pytest.mark.slow
def test_sessions_of_other_namespaces_share_nothing(other, joined):
    other("counter")
    with joined("apart"):
        with pytest.raises(moo.ActorUnavailable, match="no actor is named"):
            moo.lookup("counter")
        assert moo.on(Counter, name="counter").spawn().add(7) == 7


@pytest.mark.slow
def test_a_name_is_taken_for_all_sessions_until_its_actor_ends(other, joined):
    program = other("counter")
    with joined():
        with pytest.raises(ValueError, match="of another session"):
            moo.on(Counter, name="counter").spawn()
        handle = moo.lookup("counter")
        assert program.ask("moo.stop(handles[0])") == "None"

        assert eventually(lambda: not is_there("counter"))
        assert moo.on(Counter, name="counter").spawn().add(9) == 9
        with pytest.raises(moo.ActorDied):
            handle.add()


@pytest.mark.slow
def test_of_sessions_that_want_a_name_at_the_same_time_one_gets_it(other, joined):
    programs = [other() for _ in range(2)]
    with joined():
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


@pytest.mark.slow
def test_handles_values_and_arrays_cross_from_session_to_session(other, joined):
    program = other("counter")
    with joined():
        mine = moo.on(Counter, host="b", name="mine").spawn()
        counter = moo.lookup("counter")
        assert counter.ask(mine, 4) == 4  # an actor of theirs calls one of ours
        assert program.ask('moo.lookup("mine").add(1)') == "5"
        unnamed = moo.on(Counter, host="a").spawn()
        assert counter.ask(unnamed, 6) == 6
        array = np.arange(1_000_000, dtype=np.float64)
        assert counter.total(array) == array.sum()
        assert counter.total(moo.put(array)) == array.sum()
        assert counter.add(counter.add.remote(3)) == 6  # a Ref of its own
        assert mine.add(counter.add.remote(0)) == 11  # and one of theirs


def test_monitors_stops_and_kills_reach_actors_of_another_session(other, joined):
    other("first", "second")
    with joined():
        first, second = moo.lookup("first"), moo.lookup("second")
        assert first.add() == second.add() == 1
        with moo.monitor(first) as events:
            assert isinstance(next(events), moo.Started)
            moo.kill(first)
            died = next(events)
        assert isinstance(died, moo.Stopped)
        assert died.cause.kind == "killed"
        moo.stop(second)
        with pytest.raises(moo.ActorDied) as caught:
            second.add()
        assert caught.value.cause.kind == "stopped"


def test_a_call_to_an_actor_that_was_stopped_before_ends_at_once(here):
    with moo.init(local=False):
        moo.on(Counter, host="a", name="counter").spawn()
        before, handle = moo.lookup("counter"), moo.lookup("counter")
        asker = moo.on(Counter, host="b").spawn()
        moo.stop(before)
        with pytest.raises(moo.ActorDied):
            asker.ask.options(timeout=20).remote(handle, 1).get(timeout=15)


def named(program):
    """What another program calls it."""
    return f"python -c (pid {program.process.pid} on host other)"


ENDS = {
    "terminate": lambda program: program.process.terminate(),
    "kill": lambda program: program.process.kill(),
    "end": lambda program: program.end(),
    "shutdown": lambda program: program.say("moo.shutdown(grace=0)"),
}


@pytest.mark.parametrize("how", ["kill", slow("terminate"), slow("end"), "shutdown"])
def test_the_end_of_a_session_ends_calls_of_others_to_its_actors(other, joined, how):
    program = other("counter")
    with joined():
        counter = moo.lookup("counter")
        assert counter.pid() > 0
        ref = counter.waits.remote()
        ENDS[how](program)
        with pytest.raises(moo.ActorDied) as caught:
            ref.get(timeout=20)
    cause = caught.value.cause
    did = "called moo.shutdown()" if how == "shutdown" else "has ended"
    assert (cause.kind, cause.owner) == ("owner", named(program))
    assert str(cause) == f"its session has ended: {named(program)} {did}"


@pytest.mark.slow
def test_mooactor_stop_is_the_cause_of_all_calls_between_sessions(here, other, joined):
    program = other("counter")
    with joined():
        ref = moo.lookup("counter").waits.remote()
        with Client(here.address, str(here.key_file)) as client:
            (row,) = [row for row in homes(client.rows()) if row["name"] == "other"]
            talk = client.open(row)
            talk.post({"op": "stop"})
            assert client.wait(lambda: talk.closed is not None, 20)
        cause = ref.exception(timeout=20).cause
    assert cause.kind == "owner"
    assert f"mooactor stop ended it; its program is {named(program)}" in str(cause)


@pytest.mark.slow
@pytest.mark.parametrize("known", [False, True])
def test_the_end_of_a_session_is_the_cause_that_its_actors_died_of(
    other, joined, known
):
    program = other("counter")
    with joined():
        counter, finder = moo.lookup("counter"), moo.on(Counter, host="b").spawn()
        if known:
            assert counter.add() == 1
        program.process.kill()
        assert eventually(lambda: not is_there("counter"))
        with moo.monitor(counter) as events:
            (died,) = events
        assert isinstance(died, moo.Died) and died.actor == "Counter:counter"
        assert died.cause.kind == "owner" and died.cause.owner == named(program)
        with pytest.raises(moo.ActorDied):
            counter.add.options(timeout=60)()
        with pytest.raises(moo.ActorDied, match=r"its session has ended: .* has ended"):
            finder.ask.options(timeout=60)(counter, 1)
        moo.kill(counter)


def test_an_actor_gives_up_the_stream_of_a_session_that_has_ended(other, joined):
    with joined():
        mine = moo.on(Counter, name="source").spawn()
        program = other()
        stream = "globals().setdefault('stream', iter(moo.lookup('source').numbers()))"
        assert program.ask(f"next({stream})") == "0"
        program.close()
        assert mine.add.options(timeout=60).remote(3).get() == 3


@pytest.mark.slow
def test_a_session_that_was_cut_off_is_found_again(here, other, joined):
    other("far", host="b", on="other")
    with joined():
        far = moo.lookup("far")
        assert far.add() == 1
        with here.network.cut_off("b"):
            assert eventually(lambda: not is_there("far"), 20)
        assert eventually(lambda: is_there("far"), 30)
        with pytest.raises(moo.ActorDied, match="the session that it belongs to"):
            far.add()
        # Who had to do with it has taken it for dead; others have not.
        assert moo.on(Counter, host="a").spawn().find("far", 4) == 5


@pytest.mark.slow
def test_an_actor_that_takes_its_caller_for_dead_is_dead_to_it(here, other, joined):
    other("far", host="b", on="other")
    with joined():
        mine = moo.on(Counter, host="a", name="mine").spawn()
        assert moo.lookup("far").watches("mine") == "Started"
        with here.network.cut_off("b"):
            assert eventually(lambda: not is_there("far"), 20)
        assert eventually(lambda: is_there("far"), 30)
        with pytest.raises(moo.ActorDied, match="takes the caller for dead"):
            mine.find.options(timeout=60)("far", 1)
        assert moo.on(Counter, host="a").spawn().find("far", 4) == 4


@pytest.mark.slow
def test_an_actor_of_another_session_is_the_same_after_its_restart(other, joined):
    program = other()
    options = "name='phoenix', restart=moo.Restart(max=3)"
    assert program.ask(f"moo.on(Counter, {options}).spawn().add(5)") == "5"
    with joined():
        phoenix = moo.lookup("phoenix")
        pid = phoenix.pid()
        os.kill(pid, signal.SIGKILL)
        retried = phoenix.pid.options(retries=3).remote().get(timeout=30)
        assert retried != pid
        assert phoenix.add(2) == 2
        assert program.ask("moo.lookup('phoenix').add(3)") == "5"


@pytest.mark.parametrize(
    "message",
    [
        {"op": "request", "line": 1, "message": {"op": "spawn", "id": 1 << 20}},
        slow({"op": "poll"}),
        slow({"op": "poll", "number": 1, "about": "actor", "id": "none"}),
        slow({"op": "poll", "about": "actor", "id": 1 << 20}),
        slow({"op": "request", "line": 1e300, "message": {"op": "kill", "id": 1}}),
        slow({"op": "request", "line": "one", "message": {}}),
        slow({"op": "request", "line": 1, "message": {"op": "configure"}}),
        slow({"op": "request", "line": 1, "message": 7}),
        slow({"op": "closed", "line": []}),
        slow({"op": "names", "host": "x" * 1001, "namespace": "shared"}),
    ],
    ids=lambda message: repr(message)[:60],
)
def test_what_no_session_may_ask_ends_its_channel_and_nothing_else(
    joined, other_home, message
):
    with joined():
        mine = moo.on(Counter, name="mine").spawn()
        channel = other_home.visit(address_of_home())
        other_home.await_told()
        channel.post(message)
        assert other_home.wait(lambda: other_home.closed)
        assert "malformed" in other_home.closed
        assert mine.add(5) == 5


# -- sessions of which the broker tells late, or that cannot be answered -----------


@pytest.mark.slow
def test_a_session_that_asks_is_a_neighbor_before_the_broker_tells_of_it(
    joined, other_home
):
    with joined():
        moo.on(Counter, name="mine").spawn()
        other_home.visit(address_of_home())
        other_home.await_told()
        assert other_home.asked[0]["namespace"] == "shared"
        assert [one["name"] for one in other_home.heard[:-1]] == ["mine"]


@pytest.mark.parametrize(
    "message",
    [
        {"op": "names", "host": "x", "namespace": "apart"},
        {"op": "names"},
        {"op": "poll", "number": 1, "about": "name", "name": "mine"},
    ],
    ids=repr,
)
def test_a_session_that_is_no_neighbor_is_told_nothing(joined, other_home, message):
    with joined():
        moo.on(Counter, name="mine").spawn()
        other_home.channel = other_home.node.connect(address_of_home(), other_home)
        other_home.channel.post(message)
        assert other_home.wait(lambda: other_home.closed)
        assert not other_home.heard and not other_home.asked


def test_a_session_whose_home_closes_its_door_is_told_nothing_more(joined, other_home):
    with joined():
        other_home.visit(address_of_home())
        other_home.await_told()
        other_home.back.close("no more")
        assert other_home.wait(lambda: other_home.closed)
        assert "it cannot reach the home of this session: no more" in other_home.closed


def first_call_beyond_a_cut(network, other):
    """Whether a session that joined while host b was cut off from the broker has called
    an actor there. None: the broker had dropped the session of host b before."""
    program = other("far", host="b", on="other")
    cut = network.swallowing("b", "d"), network.swallowing("d", "b")
    with cut[0], cut[1], moo.init(local=False, namespace="shared"):
        if not is_there("far"):
            program.close()
            return None
        assert moo.lookup("far").add.options(timeout=60)(2) == 2
        return moo.on(Counter, host="a").spawn().find("far", 3) == 5


@pytest.mark.slow
def test_a_session_of_which_no_broker_tells_gets_answers(here, other, as_driver):
    network = as_driver(here, "a").network
    assert any(first_call_beyond_a_cut(network, other) for _ in range(5))


@pytest.mark.slow
def test_a_call_from_a_session_that_cannot_be_answered_says_so(
    here, other, joined, monkeypatch
):
    other("far", host="b", on="other")
    monkeypatch.setenv("MOOACTOR_BIND", "127.0.0.1")
    with joined():
        far = moo.lookup("far", timeout=30)  # it comes and goes
        with pytest.raises(
            moo.ActorDied, match="it cannot reach the home of this"
        ) as caught:
            far.add.options(timeout=60)()
        assert caught.value.cause.kind == "host"


@pytest.mark.slow
def test_a_request_without_sense_for_an_actor_of_another_session_is_refused(
    other, joined
):
    other("counter")
    with joined():
        counter, agent = moo.lookup("counter"), current_runtime().agent
        link = counter._where()[1]
        for op in ("watch", "monitor", "unmonitor", "locate"):
            agent.tell(op=op, id=link.actor_id, monitor="none", incarnation=[])
        with pytest.raises(moo.InternalError, match="monitor"):
            agent.ask(op="monitor", id=link.actor_id, monitor="none")
        assert counter.add(4) == 4
        with pytest.raises(ValueError, match="is taken"):
            moo.on(Counter, name="counter").spawn()


def test_a_namespace_without_a_cluster_is_refused(monkeypatch):
    monkeypatch.delenv("MOOACTOR_ADDRESS", raising=False)
    with pytest.raises(ValueError, match="give moo.init the address of a broker"):
        moo.init(namespace="shared")
