# SPDX-License-Identifier: MIT
"""The work of each process on a machine of so many cores and GPUs."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from impala import (
    LayoutSettings,
    Newcomers,
    SettingsError,
    SupplySettings,
    choose_layout,
    share,
)
from impala.layout import spread

FLOW = SupplySettings()


def test_what_is_learned_is_the_same_on_any_number_of_cores() -> None:
    for cores, batch in itertools.product([1, 2, 3, 12, 16, 64, 256], [8, 32]):
        layout = choose_layout(LayoutSettings(), batch, FLOW, cores=cores, gpus=0)
        part = share(batch, layout.learners)
        assert layout.learners * part == batch  # no round without update
        assert layout.in_flight * layout.envs_per_actor <= FLOW.lag * batch
        assert layout.actors == min(cores, FLOW.lag * batch)
        assert layout.in_flight >= layout.actors  # all of them have work
        assert layout.device == "cpu"


def test_it_is_as_the_table_in_the_documentation_says() -> None:
    for cores, *decided in ((2, 2, 1, 16), (16, 16, 4, 2), (64, 64, 4, 1)):
        layout = choose_layout(LayoutSettings(), 8, FLOW, cores=cores, gpus=0)
        assert list(layout.decided().values()) == decided


def test_each_gpu_has_a_learner_with_an_equal_part_unless_the_cpu_is_asked_for() -> (
    None
):
    for gpus, learners in ((1, 1), (2, 2), (3, 2), (8, 8)):
        layout = choose_layout(LayoutSettings(), 8, FLOW, cores=64, gpus=gpus)
        assert (layout.learners, layout.device) == (learners, "cuda")
    settings = LayoutSettings(learners=4, device="cpu")
    layout = choose_layout(settings, 8, FLOW, cores=4, gpus=2)
    assert str(layout) == "4 cores: 4 actors of 8 environments, 4 learners on cpu"


def host(name: str, cpus: float, gpus: int = 0) -> dict[str, Any]:
    return {"name": name, "cpus": cpus, "gpus": gpus}


def test_several_hosts_have_the_actors_of_one_machine_with_all_their_cores() -> None:
    hosts = [host("b", 4), host("a", 16), host("c", 12)]
    layout = choose_layout(LayoutSettings(), 8, FLOW, cores=4, gpus=0, hosts=hosts)
    alone = choose_layout(LayoutSettings(learners=1), 8, FLOW, cores=32, gpus=0)
    assert layout.decided() == alone.decided()  # as many learners as the driver's allow
    assert (layout.hosts, set(layout.learner_hosts)) == (("b", "a", "c"), {"b"})
    assert Counter(layout.actor_hosts) == {"b": 4, "a": 16, "c": 12}
    assert [layout.actor_hosts[actor] for actor in (0, 4, 31)] == ["b", "a", "c"]
    assert str(layout).startswith("32 cores on 3 hosts: 32 actors of 1 environments")


def test_learners_that_are_asked_for_are_spread_over_the_hosts() -> None:
    hosts = [host("b", 2, 1), host("a", 2, 0), host("c", 2, 4)]
    for asked, gpus, expected, part in (
        ({"learners": 3, "device": "cpu"}, 0, ("b", "a", "c"), 2),
        ({"learners": 4, "device": "cpu"}, 0, ("b", "b", "a", "c"), 2),
        ({"learners": 5}, 1, ("b", "c", "c", "c", "c"), 1),
        ({}, 1, ("b",), 8),
    ):
        settings = LayoutSettings(**asked)  # type: ignore[arg-type]
        layout = choose_layout(settings, 8, FLOW, cores=2, gpus=gpus, hosts=hosts)
        assert layout.learner_hosts == expected
        assert (layout.hosts[0], share(8, layout.learners)) == ("b", part)


def test_actors_go_where_each_has_most_cores() -> None:
    for cpus, actors, expected in (
        ((2, 2, 2), 6, (2, 2, 2)),
        ((2, 2, 2), 4, (2, 1, 1)),
        ((4, 2), 12, (8, 4)),
        ((64, 64), 64, (32, 32)),
        ((0, 2), 3, (0, 3)),
    ):
        rows = [host(name, one) for name, one in zip("abc", cpus, strict=False)]
        counts = Counter(spread(rows, actors))
        assert tuple(counts[row["name"]] for row in rows) == expected
    with pytest.raises(SettingsError, match="no host offers CPUs: start one with"):
        spread([host("a", 0), host("b", 0)], 1)


def test_what_does_not_go_together_is_refused_in_a_sentence() -> None:
    for wrong, gpus, reason in (
        ({"learners": 4}, 2, "--learners 4: each needs a GPU of its own"),
        ({"device": "cuda"}, 0, "--device cuda, but torch sees no GPU here"),
        ({"learners": 9}, 0, "--batch 8 is too small for 9 learners"),
        ({"envs_per_actor": 65}, 0, "--envs-per-actor 65: one call brings more"),
    ):
        settings = LayoutSettings(**wrong)  # type: ignore[arg-type]
        with pytest.raises(SettingsError, match=reason) as caught:
            choose_layout(settings, 8, FLOW, cores=4, gpus=gpus)
        assert len(str(caught.value).splitlines()) == 1
    whole = replace(FLOW, deterministic=True)
    with pytest.raises(SettingsError, match="does not split over 3 learners"):
        choose_layout(LayoutSettings(learners=3), 8, whole, cores=4, gpus=0)


def test_a_host_that_joins_gets_an_actor_for_each_cpu_once() -> None:
    newcomers = Newcomers({"a"}, lambda row: int(row["cpus"]), there=4, most=9)
    rows = [host("a", 4), host("b", 3), host("c", 0)]
    assert newcomers.look(rows) == [(4, "b"), (5, "b"), (6, "b")]
    assert newcomers.look(rows) == []
    rows[2] = host("c", 8)  # more than may play at once
    assert newcomers.look(rows) == [(7, "c"), (8, "c")]
    assert newcomers.look([*rows, host("d", 1)]) == []


def test_a_host_that_joins_gets_actors_and_learners_as_the_settings_say() -> None:
    def added(supply: SupplySettings = FLOW, gpus: int = 0, **settings: Any) -> Any:
        hosts = [host("a", 4, gpus), host("b", 4, gpus)]
        chosen = LayoutSettings(**settings)
        found = choose_layout(chosen, 8, supply, cores=4, gpus=gpus, hosts=hosts)
        rows = [*hosts, host("c", 3, 2 * gpus), host("d", 1)]
        learners, actors = (kind.look(rows) for kind in found.newcomers())
        return [name for _, name in learners], [name for _, name in actors]

    assert added() == ([], ["c", "c", "c", "d"])
    assert added(actors=2) == ([], [])
    assert added(actors=2, learners=1) == (["c", "d"], [])  # b chose to have none
    assert added(actors=2, learners=7) == (["c"], [])  # one for each of 8 unrolls
    assert added(actors=2, learners=1, gpus=1) == (["c", "c"], [])
    assert added(replace(FLOW, deterministic=True), learners=2) == ([], [])


def test_one_host_of_a_cluster_is_as_one_machine_unless_others_may_join() -> None:
    one = {"cores": 2, "gpus": 0, "hosts": [host("a", 2)]}
    layout = choose_layout(LayoutSettings(), 8, FLOW, **one)
    assert layout == choose_layout(LayoutSettings(), 8, FLOW, cores=2, gpus=0)
    assert not (layout.hosts or any(layout.actor_hosts + layout.learner_hosts))
    joined = LayoutSettings(connect="tcp://a:4431")
    layout = choose_layout(joined, 8, FLOW, **one)
    assert (layout.actor_hosts, layout.hosts) == (("a", "a"), ("a",))
    assert str(layout).startswith("2 cores on 1 host: 2 actors")
