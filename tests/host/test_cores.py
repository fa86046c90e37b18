# SPDX-License-Identifier: MIT
"""Cores for actors: each has its own, on one NUMA node where that is possible."""

from __future__ import annotations

import random

from mooactor.host.resources import (
    VARIABLE,
    Amount,
    Cores,
    Grant,
    Resources,
    parse_list,
)


def test_an_actor_gets_cores_of_one_node_if_one_has_enough():
    cores = Cores(range(8), [range(4), range(4, 8)])
    assert cores.take("a", 3) == [0, 1, 2]
    assert cores.take("b", 4) == [4, 5, 6, 7]
    assert cores.take("c", 1) == [3]


def test_small_requests_leave_whole_nodes_to_large_ones():
    cores = Cores(range(8), [range(4), range(4, 8)])
    cores.take("a", 1)
    cores.take("b", 1)
    assert cores.take("c", 4) == [4, 5, 6, 7]


def test_without_enough_cores_an_actor_is_bound_to_none():
    cores = Cores(range(2))
    assert cores.take("a", 2) == [0, 1]
    assert cores.take("b", 1) == []
    cores.give_back("a")
    assert cores.take("b", 1) == [0]


def test_an_account_that_binds_nothing_gives_gpus_all_the_same(monkeypatch):
    monkeypatch.setenv(VARIABLE, "GPU-4,GPU-7")
    account = Resources.of_this_host(cpus=4, binds=False)

    grant = account.take(("session", 1), Amount(cpus=1.0, gpus=1.0))

    assert grant == Grant({VARIABLE: "GPU-4"}, cores=[])
    assert account.reserved() == Amount(cpus=1.0, gpus=1.0)


def test_lists_of_the_kernel_are_read():
    assert parse_list("0-3,8\n") == [0, 1, 2, 3, 8]
    assert parse_list("0,2-3") == [0, 2, 3]
    assert parse_list("\n") == []


def test_no_core_is_ever_given_to_two():
    for seed in range(50):
        rng = random.Random(seed)
        cores, held = Cores(range(12), [range(4), range(4, 8), range(8, 12)]), {}
        for step in range(100):
            if held and rng.random() < 0.4:
                holder = rng.choice(sorted(held))
                cores.give_back(holder)
                del held[holder]
            else:
                held[step] = cores.take(step, rng.randrange(1, 7))
            given = [core for some in held.values() for core in some]
            assert len(given) == len(set(given))
            assert all(cores.of(holder) == some for holder, some in held.items())
        for holder in held:
            cores.give_back(holder)
        assert len(cores.take("all", 12)) == 12
