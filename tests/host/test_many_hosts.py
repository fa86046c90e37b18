# SPDX-License-Identifier: MIT
"""Sessions on several hosts: network namespaces with a broker and `mooactor host`."""

from __future__ import annotations

import os
import sys
import types

import pytest

import mooactor as moo
from mooactor.control.node import Node
from tests.host.where import Where, on
from tests.marks import binds_cores


def test_actors_run_on_the_hosts_that_they_were_given_and_call_each_other(joined):
    a, b = on("a").spawn(), on("b").spawn()

    assert (a.host(), b.host()) == ("a", "b")
    assert (a.ask(b), b.ask(a)) == ("b", "a")
    assert sorted(moo.on(Where).group(4).call(Where.host).get()) == ["a", "a", "b", "b"]


def test_a_module_that_a_host_lacks_is_named_with_the_host(joined, monkeypatch):
    module = types.ModuleType("nowhere_to_be_found")
    exec("class Lost:\n def host(self): pass", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)

    lost = moo.on(module.Lost, host="b").spawn()

    with pytest.raises(moo.ActorDied, match="'nowhere_to_be_found' on host b: copy"):
        lost.host()


def test_hosts_says_what_there_is_and_who_runs_there(joined):
    handle = on("b", num_cpus=1).spawn(3)
    assert handle.add(4) == 7

    rows = {row["name"]: row for row in moo.hosts()}

    assert sorted(rows) == ["a", "b"]
    assert all(row["alive"] and row["address"] for row in rows.values())
    assert rows["b"]["free"]["cpus"] == rows["b"]["cpus"] - 1
    assert [row["pid"] for row in rows["b"]["actors"]] == [handle.pid()]


def test_a_group_is_placed_as_a_whole_or_not_at_all(joined):
    cpus = sum(row["cpus"] for row in moo.hosts())

    with pytest.raises(moo.PlacementError, match=f"room for {cpus:g} of"):
        moo.on(Where, num_cpus=1).group(int(cpus) + 1)

    assert moo.actors() == []
    assert len(moo.on(Where, num_cpus=1).group(int(cpus)).call(Where.pid).get()) == cpus


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


def test_an_actor_that_allows_shared_memory_alone_dies_and_says_why(joined):
    env = {"MOOACTOR_TRANSPORT": "shm"}
    with pytest.raises(moo.ActorDied, match="allow tcp, too"):
        on("a", env=env).spawn().host()


class _Hears:
    """The listener of a channel: keeps why it was closed."""

    why = ""

    def handle(self, channel, message):
        pass

    def channel_closed(self, channel, why):
        self.why = why


def test_a_malformed_message_of_a_member_ends_its_own_channel_only(joined):
    (row,) = [row for row in moo.hosts() if row["name"] == "a"]
    kept = on("a").spawn()
    before = kept.pid()
    secret = bytes.fromhex(joined.key_file.read_text().strip())
    for message in (
        {"type": "Open"},
        {"type": "Open", "place": 3},
        {"type": "Open", "place": {"cwd": b"/", "path": []}, "python": 3},
    ):
        node, hears = Node(secret, bind=joined.network.address("d")), _Hears()
        try:
            node.connect(row["address"], hears).post(message)
            assert node.run_until(lambda heard=hears: heard.why, 20)
        finally:
            node.close()
    assert kept.pid() == before
