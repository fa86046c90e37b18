# SPDX-License-Identifier: MIT
"""Sessions on several hosts: network namespaces with a broker and `mooactor host`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import types
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

import mooactor as moo
from mooactor.cli.client import Client
from mooactor.control.node import Node
from mooactor.host.session import current_session
from mooactor.process import openfiles
from mooactor.process.current import current_runtime
from tests.clusters import Program, cluster
from tests.conftest import at_best, eventually
from tests.host.where import Where, on
from tests.marks import binds_cores, slow
from tests.processes import Process

psutil = pytest.importorskip("psutil")


class Overheard(Where):
    """Remembers what it has asked the agent."""

    def __init__(self):
        super().__init__()
        self.asked = []
        agent = current_runtime().agent
        agent.tell = partial(self._tell, agent.tell)

    def _tell(self, tell, /, *fds, **message):
        self.asked.append(message["op"])
        tell(*fds, **message)

    def all_asked(self):
        return [op for op in self.asked if op in ("locate", "watch")]


@pytest.fixture(scope="module")
def three():
    with cluster("abc") as made:
        yield made


@pytest.fixture
def here(three, as_driver):
    """This process is a driver on a fourth host."""
    return as_driver(three)


@pytest.fixture
def joined(here):
    with moo.init(here.address, local=False):
        yield here


def test_actors_run_on_the_hosts_that_they_were_given(joined):
    handles = {host: on(host).spawn() for host in "abc"}

    assert {host: handle.host() for host, handle in handles.items()} == {
        "a": "a",
        "b": "b",
        "c": "c",
    }


def test_a_module_that_a_host_lacks_is_named_with_the_host(joined, monkeypatch):
    module = types.ModuleType("nowhere_to_be_found")
    exec("class Lost:\n def host(self): pass", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)

    lost = moo.on(module.Lost, host="c").spawn()

    with pytest.raises(moo.ActorDied, match="'nowhere_to_be_found' on host c: copy"):
        lost.host()


def test_actors_without_a_host_are_spread(joined):
    group = moo.on(Where).group(6)

    assert sorted(group.call(Where.host).get()) == ["a", "a", "b", "b", "c", "c"]


def test_actors_of_different_hosts_call_each_other(joined):
    a, b = on("a").spawn(), on("b").spawn()

    assert a.ask(b) == "b"
    assert b.ask(a) == "a"


def test_an_actor_that_is_called_from_elsewhere_need_not_look_for_its_caller(joined):
    def asks():
        called = moo.on(Overheard, host="a").spawn()
        caller = on("b").spawn()
        assert called.all_asked() == []  # by the driver, whose end is everybody's
        assert caller.ask(called) == "a"
        return called.all_asked()

    # On a busy machine the call may be there sooner than the news of its caller.
    assert any(asks() == ["watch"] for _ in range(10))


def test_the_driver_takes_part_unless_it_is_told_not_to(here):
    with moo.init(here.address):
        found = {row["name"]: urlsplit(row["address"]).hostname for row in moo.hosts()}
        assert found == {host: here.network.address(host) for host in "abcd"}
        assert on("d").spawn().pid() in [
            child.pid for child in psutil.Process().children(recursive=True)
        ]


def test_a_driver_on_the_machine_of_a_host_leaves_the_actors_there_to_that(
    three, as_driver
):
    with moo.init(as_driver(three, "a").address):
        assert [row["name"] for row in moo.hosts()] == ["a", "b", "c"]
        a, other, b = on("a").spawn(), on("a").spawn(), on("b").spawn(bytes(3_000_000))
        assert (a.host(), a.ask(other), a.ask(b), b.ask(a)) == ("a", "a", "b", "a")
        agent = psutil.Process(three.members["a"].pid)
        assert a.pid() in [child.pid for child in agent.children(recursive=True)]
        assert len(b.add(bytes(3_000_000))) == 6_000_000


def test_hosts_says_what_there_is_and_who_runs_there(joined):
    handle = on("b", num_cpus=1).spawn(3)
    assert handle.add(4) == 7

    rows = {row["name"]: row for row in moo.hosts()}

    assert sorted(rows) == ["a", "b", "c"]
    assert all(row["alive"] and row["address"] for row in rows.values())
    assert rows["b"]["free"]["cpus"] == rows["b"]["cpus"] - 1
    assert [row["pid"] for row in rows["b"]["actors"]] == [handle.pid()]


def test_a_killed_actor_of_another_host_is_known_with_its_cause(joined):
    handle = on("a").spawn()
    os.kill(handle.pid(), signal.SIGKILL)

    with pytest.raises(moo.ActorDied) as caught:
        handle.sleep(60)

    assert caught.value.cause.signal == signal.SIGKILL


class Stopper:
    def stop(self, actor):
        moo.stop(actor)


@pytest.mark.slow
def test_a_stop_amid_a_stream_of_calls_holds_up_none_of_them(joined):
    stopper = moo.on(Stopper, host="b").spawn()
    for _ in range(3):
        actor = on("a").spawn()
        assert actor.add(1) == 1
        took, ends = [], []
        threads = [
            threading.Thread(target=call_until_it_is_gone, args=(actor, took, ends))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        stopper.stop(actor)
        for thread in threads:
            thread.join(60)
        assert len(ends) == len(threads)
        assert max(took) < 5  # 0.1 here, beside whatever else the machine does


def call_until_it_is_gone(actor, took, ends):
    while True:
        start = time.perf_counter()
        error = actor.add.remote(1).exception(timeout=60)
        took.append(time.perf_counter() - start)
        if isinstance(error, moo.ActorDied):
            ends.append(error.delivered)
            return


def test_connections_to_dead_actors_end_without_a_word(joined, capfd):
    for _ in range(5):
        handle = on("a").spawn()
        handle.pid()
        moo.kill(handle)
        with pytest.raises(moo.ActorDied):
            handle.pid()

    assert eventually(lambda: moo.actors() == [])
    assert "Traceback" not in capfd.readouterr().err


def test_a_restarted_actor_keeps_its_handle(joined):
    handle = on("a", restart=moo.Restart(max=2, within=60)).spawn(5)
    before = handle.pid()
    os.kill(before, signal.SIGKILL)

    def back():
        try:
            return handle.pid() != before
        except moo.MooError:
            return False

    assert eventually(back)
    assert handle.add(1) == 6


def test_large_constructor_arguments_reach_other_hosts(joined):
    handle = on("c").spawn(bytes(3_000_000))

    assert handle.add(b"12") == bytes(3_000_000) + b"12"


class Founder(Where):
    """Spawns others, wherever there is room."""

    def found(self, count, nbytes):
        group = moo.on(Where).group(count, np.ones(nbytes, np.uint8))
        return group.call(Where.host).get()


@pytest.mark.slow
def test_so_may_the_group_of_an_actor_on_another_host(joined):
    founder = moo.on(Founder, host="b").spawn()

    assert len(founder.found(9, 16 << 20)) == 9
    assert founder.host() == "b"


@pytest.mark.slow
def test_a_group_may_have_more_constructor_arguments_than_a_channel_keeps(joined):
    start = np.ones(10 << 20, np.uint8)  # eight of these

    group = on("b").group(8, start)

    assert group.call(Where.host).get() == ["b"] * 8
    assert group[7].add(1)[-1] == 2


def test_a_group_is_placed_as_a_whole_or_not_at_all(joined):
    cpus = sum(row["cpus"] for row in moo.hosts())

    with pytest.raises(moo.PlacementError, match=f"never be had.*room for {cpus:g} of"):
        moo.on(Where, num_cpus=1).group(int(cpus) + 1)

    assert moo.actors() == []
    assert len(moo.on(Where, num_cpus=1).group(int(cpus)).call(Where.pid).get()) == cpus


@pytest.mark.slow
def test_two_sessions_reserve_from_the_same_hosts(joined):
    whole = next(row["cpus"] for row in moo.hosts() if row["name"] == "a")
    on("a", num_cpus=whole).spawn().pid()
    program = (
        "import os, mooactor as moo\n"
        "from tests.host.where import Where\n"
        f"moo.init({joined.address!r}, local=False)\n"
        "try:\n"
        "    moo.on(Where, host='a', num_cpus=1).spawn()\n"
        "except moo.PlacementError as error:\n"
        "    print('refused', error)\n"
        "print(moo.on(Where, num_cpus=1).spawn().host())\n"
    )

    def tries():
        done = run(joined, program)
        return "refused" in done and done.split()[-1] in "bc"

    assert eventually(tries)


def test_what_actors_print_elsewhere_appears_here(here):
    program = (
        "import mooactor as moo\n"
        "from tests.host.where import Where\n"
        f"with moo.init({here.address!r}, local=False):\n"
        "    moo.on(Where, host='b', name='parrot').spawn().say('hello')\n"
    )

    assert "host=b) hello" in run(here, program)


def run(cluster, program):
    """What a driver on its own prints."""
    done = subprocess.run(
        [*cluster.network.on("d"), sys.executable, "-c", program],
        env={**cluster.environment("d"), "MOOACTOR_HOST_NAME": "e"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def two():
    with cluster("ab") as made:
        yield made


@pytest.fixture
def fragile(two, as_driver):
    """A cluster whose hosts may be killed."""
    return as_driver(two)


@pytest.mark.slow
def test_the_death_of_a_host_is_the_death_of_its_actors(fragile):
    with moo.init(fragile.address, local=False):
        lost, stays = on("b").spawn(), on("a").spawn()
        pid, kept = lost.pid(), stays.pid()
        directory = fragile.directory / "b"
        assert list(directory.glob("mooactor-*"))
        fragile.members["b"].kill()

        with pytest.raises(moo.ActorDied) as caught:
            lost.sleep(60)

        assert caught.value.cause.kind == "host"
        assert "its host was lost, b:" in str(caught.value)
        assert stays.pid() == kept
        assert eventually(lambda: not psutil.pid_exists(pid))
        assert eventually(lambda: not list(directory.glob("mooactor-*")))


def ask_to_stop(cluster):
    with Client(cluster.address, str(cluster.key_file)) as client:
        (row,) = [row for row in client.rows() if row["name"] == "b"]
        talk = client.open(row)
        talk.post({"op": "stop"})
        assert client.wait(lambda: talk.closed is not None, 20)


ORDERLY = {
    "Ctrl-C": lambda cluster: cluster.members["b"].process.send_signal(signal.SIGINT),
    "SIGTERM": lambda cluster: cluster.members["b"].process.terminate(),
    "mooactor stop": ask_to_stop,
}


def names_of_hosts():
    return [row["name"] for row in moo.hosts()]


@pytest.mark.parametrize("by", ["SIGTERM", slow("Ctrl-C"), slow("mooactor stop")])
def test_a_host_that_is_ended_in_order_has_left_and_is_not_lost(fragile, by):
    with moo.init(fragile.address, local=False):
        ref = on("b").spawn().sleep.remote(60)
        host = fragile.members["b"]
        assert eventually(lambda: len(moo.actors()) == 1 and moo.actors()[0].pid)
        ORDERLY[by](fragile)

        with pytest.raises(moo.ActorDied) as caught:
            ref.get(timeout=20)
        assert host.process.wait(20) == 0
        assert eventually(lambda: names_of_hosts() == ["a"])
        with pytest.raises(moo.PlacementError) as turned_away:
            on("b").spawn()
        with pytest.raises(moo.PlacementError) as unknown:
            on("c").spawn()

    left = f"has left (mooactor host was ended by {by})"
    cause = caught.value.cause
    assert (cause.kind, cause.host) == ("host", "b")
    assert str(cause) == f"its host b {left}"
    again = "start `mooactor host` there again; the session has 'a' now"
    assert f"host 'b' {left}: {again}" in str(turned_away.value)
    assert "there is no host 'c' in this session; it has 'a'" in str(unknown.value)
    ends = [line for line in host.lines if "leaves" in line]
    assert ends == [f"mooactor host: host b leaves: ended by {by}\n"]


@pytest.mark.slow
def test_a_host_that_was_lost_is_remembered_until_it_is_back(fragile):
    with moo.init(fragile.address, local=False):
        fragile.members["b"].kill()
        assert eventually(lambda: names_of_hosts() == ["a"])
        lost = r"host 'b' was lost \(.+\): start `mooactor host` there again"
        with pytest.raises(moo.PlacementError, match=lost):
            on("b").spawn()

        fragile.start_host("b")
        assert eventually(lambda: names_of_hosts() == ["a", "b"])
        assert on("b").spawn().host() == "b"


@pytest.mark.slow
def test_an_actor_of_a_lost_host_is_restarted_on_another_one(fragile):
    with moo.init(fragile.address, local=False):
        policy = moo.Restart(max=5, within=60)
        group = moo.on(Where, num_cpus=1, restart=policy).group(2)
        assert sorted(group.call(Where.host).get()) == ["a", "b"]
        moves = group[group.call(Where.host).get().index("b")]
        fragile.members["b"].kill()

        def moved():
            try:
                return moves.host() == "a"
            except moo.MooError:
                return False

        assert eventually(moved)


@pytest.mark.slow
def test_a_host_that_comes_back_takes_part_again(fragile):
    with moo.init(fragile.address, local=False):
        fragile.members["b"].kill()
        assert eventually(lambda: [row["name"] for row in moo.hosts()] == ["a"])

        fragile.start_host("b")

        assert eventually(lambda: {row["name"] for row in moo.hosts()} == {"a", "b"})
        assert on("b").spawn().host() == "b"


@pytest.mark.slow
def test_the_broker_may_die_and_come_back(fragile):
    with moo.init(fragile.address, local=False):
        a, b = on("a").spawn(), on("b").spawn()
        fragile.broker.kill()
        assert (a.ask(b), b.ask(a)) == ("b", "a")
        assert on("b").spawn().host() == "b"

        fragile.start_broker()

        assert eventually(lambda: len(moo.hosts()) == 2)
        assert a.ask(on("b").spawn()) == "b"


def test_nothing_is_left_on_any_host_when_the_driver_is_killed(here):
    program = (
        "import mooactor as moo\n"
        "from tests.host.where import Where\n"
        f"moo.init({here.address!r}, local=False)\n"
        "group = moo.on(Where).group(6)\n"
        "print(*group.call(Where.pid).get(), flush=True)\n"
        "group[0].sleep(60)\n"
    )

    def below(*roots):
        return {process for root in roots for process in Process.of(root).descendants()}

    def directories():
        return set(here.directory.glob("*/mooactor-*"))

    def seconds():
        hosts = [member.pid for member in here.members.values()]
        old, old_directories = below(*hosts), directories()
        driver = subprocess.Popen(
            [*here.network.on("d"), sys.executable, "-c", program],
            env={**here.environment("d"), "MOOACTOR_HOST_NAME": "e"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert driver.stdout is not None
        pids = set(map(int, driver.stdout.readline().split()))
        assert len(pids) == 6
        started = below(driver.pid, *hosts) - old
        # actors, a zygote for each host, and the driver's agent
        assert {process.pid for process in started} > pids
        assert [process.name() for process in started].count("moo-zygote") >= 3
        assert len(directories() - old_directories) >= 3
        driver.kill()
        began = time.monotonic()
        driver.wait()
        driver.stdout.close()

        def left():
            running = [process for process in started if process.is_running()]
            # a spare may have been on its way
            return running or below(*hosts) - old or directories() - old_directories

        assert eventually(lambda: not left()), left()
        return time.monotonic() - began

    assert at_best(seconds, 3.0)


class Learns:
    """A member of a learner group."""

    def __init__(self, size):
        self.group = moo.LearnerGroup("learners", min_size=size)

    def total(self):
        values = np.ones(1000, np.float32)
        self.group.allreduce([values], op="sum").wait()
        return float(values.sum())


def test_a_learner_group_works_on_any_one_host(joined):
    learners = moo.on(Learns, host="b").group(2, 2)

    assert learners.call(Learns.total).get() == [2000.0, 2000.0]


@pytest.mark.slow
def test_a_learner_group_on_two_hosts_is_refused_in_one_sentence(joined):
    moo.on(Learns, host="a").spawn(1).total()
    other = moo.on(Learns, host="b").spawn(1)

    with pytest.raises(moo.ActorDied) as caught:
        other.total()

    assert isinstance(caught.value.cause.exception, moo.PlacementError)
    assert "has members on host a already" in str(caught.value)


@moo.actor(max_concurrency=2)
class Joins:
    """Joins learner groups of two, one at a time."""

    def join(self, name):
        self.group = moo.LearnerGroup(name, min_size=2)
        return self.group.size

    def barrier(self):
        self.group.barrier()

    def waits(self):
        """Whether it has the group's memory, waits for others, and has not heard that
        one was refused."""
        has_memory = "mooactor-segment" in Path("/proc/self/maps").read_text()
        return has_memory and len(current_runtime().agent._refusals) > 0


def assert_refused(refs, host):
    """All have the sentence, long before the 60 s of the group's timeout."""
    for ref in refs:
        with pytest.raises(moo.PlacementError, match=f"members on host {host} already"):
            ref.get(timeout=20)


def test_all_members_on_two_hosts_hear_that_at_once_and_may_form_on_one(joined):
    for host, other in ("ab", "ba"):
        first, second = (moo.on(Joins, host=one).spawn() for one in (host, other))
        waiting = first.join.remote(f"on {host}")
        assert eventually(first.waits)
        assert_refused([waiting, second.join.remote(f"on {host}")], host)

    group = moo.Group([first, moo.on(Joins, host="b").spawn()])

    assert group.call(Joins.join, "on b").get() == [2, 2]


@pytest.mark.slow
def test_a_newcomer_waits_for_its_group_though_another_one_was_refused(joined):
    a = moo.on(Joins, host="a")
    members, newcomer = a.group(2), a.spawn()
    members.call(Joins.join, "whole").get()
    waiting = newcomer.join.remote("whole")
    assert eventually(newcomer.waits)

    assert_refused([moo.on(Joins, host="b").spawn().join.remote("whole")], "a")
    assert eventually(lambda: not newcomer.waits())
    with pytest.raises(moo.CallTimeout):
        waiting.get(timeout=0.3)
    members.call(Joins.barrier).get()

    assert waiting.get() == 3


@pytest.mark.slow
def test_a_driver_and_a_member_on_another_host_both_hear_that(joined):
    waiting = moo.on(Joins, host="a").spawn().join.remote("mixed")

    with pytest.raises(moo.PlacementError, match="place them with"):
        moo.LearnerGroup("mixed", timeout=20)
    with pytest.raises(moo.PlacementError, match="place them with"):
        waiting.get(timeout=20)


@pytest.mark.slow
def test_arrays_cross_hosts_as_arguments_results_and_refs(joined):
    array = np.arange(3_000_000, dtype=np.int64)
    a, b = on("a").spawn(), on("b").spawn()

    assert (a.echo(array) == array).all()
    assert (b.echo(a.echo.remote(array)) == array).all()
    assert (a.echo(moo.put(array)) == array).all()


@pytest.mark.slow
def test_a_ref_whose_owner_has_died_with_its_host_fails_with_the_cause(fragile):
    with moo.init(fragile.address, local=False):
        a, b = on("a").spawn(), on("b").spawn()
        kept = b.keep()
        fragile.members["b"].kill()

        with pytest.raises(moo.ActorDied) as caught:
            a.echo(kept)

        assert caught.value.cause.kind == "host"


@binds_cores
def test_an_actor_with_cpus_of_its_own_is_bound_to_them_and_says_so(joined):
    class Cores:
        def cores(self):
            return sorted(os.sched_getaffinity(0)), os.environ["OMP_NUM_THREADS"]

    (cpus,) = [row["cpus"] for row in moo.hosts() if row["name"] == "a"]
    count = min(2, int(cpus))  # of threads, too: one would be those of any actor
    handle = moo.on(Cores, host="a", num_cpus=count).spawn()
    anywhere = moo.on(Cores, host="a").spawn()

    bound, threads = handle.cores()

    assert len(bound) == count and threads == str(count)
    everywhere = sorted(os.sched_getaffinity(0))
    assert anywhere.cores() == (everywhere, "1")
    (row,) = [row for row in moo.hosts() if row["name"] == "a"]
    shown = [(actor["cores"], actor["threads"]) for actor in row["actors"]]
    assert sorted(shown) == [([], 1), (bound, count)]


class _Hears:
    """The listener of a channel: keeps why it was closed."""

    why = ""

    def handle(self, channel, message):
        pass

    def channel_closed(self, channel, why):
        self.why = why


@pytest.mark.parametrize(
    "message",
    [
        {"what": "open"},
        {"what": "open", "place": 3},
        {"what": "open", "place": {"cwd": "/", "path": []}, "python": 3},
    ],
)
def test_a_malformed_message_of_a_member_ends_its_own_channel_only(joined, message):
    (row,) = [row for row in moo.hosts() if row["name"] == "a"]
    kept = on("a").spawn()
    before = kept.pid()
    secret = bytes.fromhex(joined.key_file.read_text().strip())
    node, hears = Node(secret, bind=joined.network.address("d")), _Hears()
    try:
        node.connect(row["address"], hears).post(message)
        assert node.run_until(lambda: hears.why, 20)
    finally:
        node.close()
    assert kept.pid() == before


def test_shared_memory_alone_is_refused_before_a_session_of_hosts_starts(
    here, monkeypatch
):
    with pytest.raises(ValueError, match="shared memory alone.*allow tcp, too"):
        moo.init(here.address, transport="shm")
    monkeypatch.setenv("MOOACTOR_TRANSPORT", "shm")
    with pytest.raises(ValueError, match="MOOACTOR_TRANSPORT=shm"):
        moo.init(here.address)


def test_an_actor_that_allows_shared_memory_alone_dies_and_says_why(joined):
    env = {"MOOACTOR_TRANSPORT": "shm"}
    with pytest.raises(moo.ActorDied, match="allow tcp, too"):
        on("a", env=env).spawn().host()


def test_what_an_actor_of_another_host_costs_is_what_was_measured(joined):
    count = 4
    array = np.ones(1 << 17)
    on("a").spawn().echo(array)
    agent = current_session()._agent.pid
    guests = joined.members["a"].pid

    def opened():
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in (own, agent, guests)]

    def settled():
        """Once it has been the same for a while: when an actor starts, pipes and a
        connection come and go."""
        seen = []

        def is_steady():
            seen.append(opened())
            return len(seen) >= 50 and seen[-50:] == 50 * seen[-1:]

        assert eventually(is_steady)
        return seen[-1]

    own = os.getpid()
    before = settled()
    peers = [on("a").spawn() for _ in range(count)]
    for peer in peers:
        peer.host()
    called = settled()
    for peer in peers:
        peer.echo(array)

    each = [(b - a) / count for a, b in zip(before, called, strict=True)]
    assert each == [5, 0, 3]
    stripes = 2 if os.cpu_count() < 24 else 4
    assert (opened()[0] - before[0]) / count <= openfiles.per_actor_away(stripes)


LOW = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
sys.argv = sys.argv[1:]
runpy.run_module('mooactor', run_name='__main__', alter_sys=True)
"""


@pytest.fixture
def low(here):
    """A host of this name, on which a process may open 200 files."""
    where = ["--bind", here.network.address("d"), "--name", "low"]
    words = ["mooactor", "host", "--join", here.address, *where]
    host = Program(
        [sys.executable, "-c", LOW, *words],
        {**here.environment("d"), "MOOACTOR_HOST_ID": "low"},
        "mooactor host low joined",
    )
    try:
        yield host.await_ready()
    finally:
        host.close()


@pytest.mark.slow
def test_the_least_limit_on_open_files_of_all_hosts_counts(here, low):
    most = openfiles.capacity(200, each=openfiles.per_actor_away(None))
    with moo.init(here.address, local=False):
        on("low").spawn().host()
        others = [on("a").spawn() for _ in range(most - 1)]
        with pytest.raises(moo.PlacementError, match="200 open files.*on host low"):
            on("a").spawn()
        assert others[-1].add(1) == 1


@pytest.mark.slow
def test_an_agent_takes_no_more_processes_than_it_has_files_for(here, low):
    program = (
        "import mooactor as moo\n"
        "from tests.host.test_many_hosts import on\n"
        f"moo.init({here.address!r}, local=False)\n"
        "kept = [on('low').spawn() for _ in range(6)]\n"
        "print([one.add(1) for one in kept], flush=True)\n"
        "input()\n"
    )
    others = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**here.environment("d"), "MOOACTOR_HOST_NAME": "other"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        for other in others:
            assert other.stdout.readline().strip() == str([1] * 6)
        with moo.init(here.address, local=False):
            with pytest.raises(moo.PlacementError, match="host low has 12 actors"):
                on("low").spawn().host()
    finally:
        for other in others:
            other.communicate("\n", timeout=30)
