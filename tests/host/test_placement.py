# SPDX-License-Identifier: MIT
"""The choice of hosts: never more than there is, and all or nothing."""

from __future__ import annotations

import random

import pytest

from mooactor.control.messages import Malformed, encode
from mooactor.host.placement import Candidate, NoPlace, choose
from mooactor.process.needs import Amount, Needs
from mooactor.process.protocol import REQUESTS


def host(name, cpus=4.0, gpus=0.0, memory=8e9, *, load=0.0, here=False, **labels):
    total = Amount(cpus, gpus, memory)
    return Candidate(name, total, total, load, labels, here, strict=True)


def needs(num_cpus=0.0, num_gpus=0.0, memory=0.0, host="", labels=None, order="spread"):
    amount = Amount(num_cpus, num_gpus, memory)
    return Needs(amount, host, labels or {}, order == "pack")


def names(found):
    return [one.name for one in found]


def test_the_most_free_cores_are_taken_first_and_the_drivers_host_among_equals():
    a, b, c = host("a", 4), host("b", 8), host("c", 8, here=True)

    assert names(choose([a, b, c], needs(), 4)) == ["c", "b", "c", "b"]


def test_actors_without_needs_are_spread_even_over_hosts_that_are_full():
    a, b = host("a", 1), host("b", 1)

    assert sorted(names(choose([a, b], needs(), 6))) == ["a"] * 3 + ["b"] * 3


def test_packing_fills_one_host_before_it_takes_the_next():
    a, b = host("a", 4), host("b", 2)

    found = names(choose([a, b], needs(num_cpus=1, order="pack"), 6))

    assert found == ["b", "b", "a", "a", "a", "a"]


def test_a_group_that_has_no_room_as_a_whole_says_how_far_it_would_get():
    hosts = [host("a", 4), host("b", 8), host("c", 4)]
    hosts[1].free = Amount(4.0, 0.0, 8e9)

    with pytest.raises(NoPlace, match="room for 6 of them now.*b: 4 CPUs.*for less"):
        choose(hosts, needs(num_cpus=2), 8)


def test_a_group_that_refusing_hosts_could_hold_may_have_room_later():
    hosts = [host("a", 4), host("b", 4)]

    with pytest.raises(NoPlace, match="room for 2 of them now, free is a: 4 CPUs;"):
        choose(hosts, needs(num_cpus=2), 4, refused={"b"})


def test_a_group_gets_gpus_as_hosts_give_them_out():
    hosts = [host("a", gpus=2.0), host("b", gpus=2.0)]
    for one in hosts:
        one.shares = [1.0, 1.0]

    assert sorted(names(choose(hosts, needs(num_gpus=0.6), 4))) == ["a", "a", "b", "b"]
    with pytest.raises(NoPlace, match="room for 4 of them now"):
        choose(hosts, needs(num_gpus=0.6), 5)
    hosts[0].free, hosts[0].shares = Amount(4.0, 1.0, 8e9), [1.0, 0.0]
    with pytest.raises(NoPlace, match="room for 3 of them now.*b: 2 GPUs;"):
        choose(hosts, needs(num_gpus=0.6), 4)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"num_cpus": 100}, "100 CPUs can never be had on any host; there is a with 4"),
        ({"num_gpus": 1}, "1 GPU can never be had"),
        ({"memory": 1e12}, "931 GiB can never be had"),
        ({"host": "z"}, "no host 'z' in this session; it has 'a'"),
        ({"host": "a", "num_cpus": 5}, "on host 'a'"),
        (
            {"labels": {"rack": "b2"}},
            "label rack=b2 can never be had .*: start a host with `--label rack=b2`",
        ),
        (
            {"host": "a", "labels": {"rack": "b2"}},
            "on host 'a'; .*: start host 'a' with `--label rack=b2`",
        ),
    ],
)
def test_an_impossible_request_fails_and_says_what_exists(asked, said):
    with pytest.raises(NoPlace, match=said):
        choose([host("a")], needs(**asked))


def test_less_is_to_be_asked_for_where_a_host_has_the_labels():
    with pytest.raises(NoPlace, match="a with 4 .*: ask for less"):
        choose([host("a", rack="b2")], needs(num_cpus=5, labels={"rack": "b2"}))


def test_labels_and_names_bind():
    hosts = [host("a", 64), host("b", rack="b2"), host("c", rack="c1")]

    assert names(choose(hosts, needs(labels={"rack": "b2"}), 2)) == ["b", "b"]
    assert names(choose(hosts, needs(host="c"), 2)) == ["c", "c"]


def test_a_request_that_makes_no_sense_is_refused():
    for fields in (
        {"amount": {"cpus": "2"}},
        {"amount": {"memory": -1}},
        {"amount": {"gpus": float("nan")}},
        {"labels": [1]},
        {"pack": "heap"},
    ):
        request = {"type": "Reserve", "ids": [], "needs": fields}
        with pytest.raises(Malformed, match="needs"):
            REQUESTS.decode(encode(request))


def test_random_groups_never_take_more_than_there_is():
    for seed in range(200):
        random_group(random.Random(seed))


def random_group(rng):
    hosts = [
        host(f"h{i}", rng.randrange(1, 9), rng.randrange(3), rng.choice([1e9, 4e9]))
        for i in range(rng.randrange(1, 6))
    ]
    asked = needs(
        num_cpus=rng.randrange(4),
        num_gpus=rng.choice([0, 0, 1]),
        memory=rng.choice([0.0, 1e9]),
        order=rng.choice(["spread", "pack"]),
    )
    count = rng.randrange(1, 12)
    # The slow answer: actors are alike, so each host has room for so many of them.
    room = sum(min(_times(one.total, asked.amount), count) for one in hosts)

    if room < count:
        said = f"room for {room} of them" if room else "never be had"
        with pytest.raises(NoPlace, match=said):
            choose(hosts, asked, count)
        return
    found = choose(hosts, asked, count)

    assert all(one.free == one.total for one in hosts), "the choice changes nothing"
    for one in hosts:
        times = names(found).count(one.name)
        assert times <= _times(one.total, asked.amount)


def _times(total, amount):
    pairs = [
        (total.cpus, amount.cpus),
        (total.gpus, amount.gpus),
        (total.memory, amount.memory),
    ]
    return min((int(has / asks) for has, asks in pairs if asks), default=10**6)
