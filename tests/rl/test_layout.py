# SPDX-License-Identifier: MIT
"""Who does what on a machine of so many cores and GPUs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from mooactor.rl import (
    LayoutSettings,
    Newcomers,
    SettingsError,
    SupplySettings,
    choose_layout,
    spread_actors,
)

FLOW = SupplySettings()


@pytest.mark.parametrize("cores", [1, 2, 3, 12, 16, 64, 256])
@pytest.mark.parametrize("batch", [8, 32])
def test_what_is_learned_is_the_same_on_any_number_of_cores(
    cores: int, batch: int
) -> None:
    layout = choose_layout(LayoutSettings(), batch, FLOW, cores=cores, gpus=0)
    assert layout.learners * layout.local_batch == batch
    assert layout.in_flight * layout.envs_per_actor <= FLOW.lag * batch
    assert layout.actors == min(cores, FLOW.lag * batch)
    assert layout.in_flight >= layout.actors  # all of them have work
    assert layout.device == "cpu"


@pytest.mark.parametrize(
    ("cores", "actors", "environments", "learners"),
    [(2, 2, 16, 1), (16, 16, 2, 4), (64, 64, 1, 4)],
)
def test_it_is_as_the_table_in_the_documentation_says(
    cores: int, actors: int, environments: int, learners: int
) -> None:
    layout = choose_layout(LayoutSettings(), 8, FLOW, cores=cores, gpus=0)
    assert layout.decided() == {
        "actors": actors,
        "learners": learners,
        "envs_per_actor": environments,
    }


@pytest.mark.parametrize(("gpus", "learners"), [(1, 1), (2, 2), (3, 2), (8, 8)])
def test_with_gpus_there_is_one_learner_for_each_that_has_an_equal_part(
    gpus: int, learners: int
) -> None:
    layout = choose_layout(LayoutSettings(), 8, FLOW, cores=64, gpus=gpus)
    assert (layout.learners, layout.device) == (learners, "cuda")


def test_whoever_asks_for_the_cpu_gets_it() -> None:
    settings = LayoutSettings(learners=4, device="cpu")
    layout = choose_layout(settings, 8, FLOW, cores=4, gpus=2)
    assert (layout.learners, layout.device) == (4, "cpu")
    assert str(layout) == "4 cores: 4 actors of 8 environments, 4 learners on cpu"


def host(name: str, cpus: float) -> dict[str, Any]:
    return {"name": name, "cpus": cpus}


def test_several_hosts_have_the_actors_of_one_machine_with_all_their_cores() -> None:
    hosts = [host("b", 4), host("a", 16), host("c", 12)]
    layout = choose_layout(LayoutSettings(), 8, FLOW, cores=4, gpus=0, hosts=hosts)
    alone = choose_layout(LayoutSettings(learners=1), 8, FLOW, cores=32, gpus=0)
    assert layout.decided() == alone.decided()  # as many learners as the driver's allow
    assert layout.learner_host == "b"
    assert Counter(layout.actor_hosts) == {"b": 4, "a": 16, "c": 12}
    assert [layout.host_of(actor) for actor in (0, 4, 31)] == ["b", "a", "c"]
    assert str(layout).startswith("32 cores on 3 hosts: 32 actors of 1 environments")


def test_one_host_of_a_cluster_is_as_one_machine() -> None:
    layout = choose_layout(
        LayoutSettings(), 8, FLOW, cores=2, gpus=0, hosts=[host("a", 64)]
    )
    assert layout == choose_layout(LayoutSettings(), 8, FLOW, cores=2, gpus=0)
    assert layout.host_of(0) == "" and layout.learner_host == ""


@pytest.mark.parametrize(
    ("cpus", "actors", "expected"),
    [
        ((2, 2, 2), 6, (2, 2, 2)),
        ((2, 2, 2), 4, (2, 1, 1)),
        ((4, 2), 12, (8, 4)),
        ((64, 64), 64, (32, 32)),
        ((0, 2), 3, (0, 3)),
    ],
)
def test_actors_go_where_each_has_most_cores(
    cpus: tuple[int, ...], actors: int, expected: tuple[int, ...]
) -> None:
    rows = [host(name, one) for name, one in zip("abc", cpus, strict=False)]
    counts = Counter(spread_actors(rows, actors))
    assert tuple(counts[row["name"]] for row in rows) == expected


def test_a_cluster_without_cores_is_refused() -> None:
    with pytest.raises(SettingsError, match="no host offers CPUs: start one with"):
        spread_actors([host("a", 0), host("b", 0)], 1)


@pytest.mark.parametrize(
    ("wrong", "gpus", "reason"),
    [
        ({"learners": 4}, 2, "--learners 4: each needs a GPU of its own, and torch se"),
        ({"learners": 4, "device": "cuda"}, 1, "--learners 4: .*choose --device cpu"),
        ({"device": "cuda"}, 0, "--device cuda, but torch sees no GPU here"),
        ({"learners": 3}, 0, "--batch 8 does not split over 3 learners"),
        ({"learners": 3}, 4, "--batch 8 does not split over 3 learners"),
        ({"envs_per_actor": 65}, 0, "--envs-per-actor 65: one call brings more than"),
    ],
)
def test_what_does_not_go_together_is_refused_in_a_sentence(
    wrong: dict[str, Any], gpus: int, reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason) as caught:
        choose_layout(LayoutSettings(**wrong), 8, FLOW, cores=4, gpus=gpus)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("flow", "reason"),
    [
        (SupplySettings(lag=60), "--lag 60 with --max-lag 50"),
        (SupplySettings(deterministic=True), "need at least as many actors"),
    ],
)
def test_a_flow_that_would_stop_is_refused(flow: SupplySettings, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        choose_layout(LayoutSettings(actors=1, learners=2), 8, flow, cores=2, gpus=0)


def test_a_host_that_joins_gets_an_actor_for_each_cpu_once() -> None:
    newcomers = Newcomers({"a"}, actors=4, most=9)
    rows = [host("a", 4), host("b", 3), host("c", 0)]
    assert newcomers.look(rows) == [(4, "b"), (5, "b"), (6, "b")]
    assert newcomers.look(rows) == []
    rows[2] = host("c", 8)  # more than may play at once
    assert newcomers.look(rows) == [(7, "c"), (8, "c")]
    assert newcomers.look([*rows, host("d", 1)]) == []


def test_the_actors_grow_unless_their_number_is_given_or_the_order() -> None:
    hosts = [host("a", 4), host("b", 4)]

    def grows(supply: SupplySettings = FLOW, **settings: Any) -> bool:
        chosen = LayoutSettings(**settings)
        found = choose_layout(chosen, 8, supply, cores=4, gpus=0, hosts=hosts)
        return bool(found.newcomers().look([host("c", 1)])) and found.grows

    assert grows()
    assert not grows(actors=2)
    assert not grows(replace(FLOW, deterministic=True))


def test_one_host_of_a_cluster_that_others_may_join_is_named() -> None:
    layout = choose_layout(
        LayoutSettings(connect="tcp://a:4431"),
        8,
        FLOW,
        cores=2,
        gpus=0,
        hosts=[host("a", 2)],
    )
    assert layout.actor_hosts == ("a", "a") and layout.learner_host == "a"
    assert str(layout).startswith("2 cores on 1 host: 2 actors")
