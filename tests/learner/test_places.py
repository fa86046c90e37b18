# SPDX-License-Identifier: MIT
"""The places of a group: segments and agents, with the master, in this process."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from mooactor.control.messages import Malformed
from mooactor.host import groups
from mooactor.tensors.collective import GroupAgent, SharedGroup
from mooactor.tensors.network import Network
from tests.conftest import eventually
from tests.learner.places import LoneAgent


@pytest.fixture
def agent() -> Iterator[LoneAgent]:
    made = LoneAgent()
    yield made
    made.close()


def serve_until(agent: LoneAgent, *joined: SharedGroup) -> bool:
    """Whether they are all in, once the agent has served them."""

    def are_in() -> bool:
        agent.serve()
        return all(group.ready(0.0) for group in joined)

    return eventually(are_in, 20.0)


def test_members_of_two_places_form_one_group_and_know_where_each_is(
    agent: LoneAgent,
) -> None:
    joined = [
        SharedGroup(*agent.memory(share), number, 3, 20.0)
        for number, share in ((11, "a"), (12, "b"), (13, "b"))
    ]
    assert serve_until(agent, *joined)
    for group in joined:
        assert [process_id for _, process_id, _ in group.members()] == [11, 12, 13]
        assert {(pid, host) for pid, _, host in group.members()} == {
            (os.getpid(), "here")
        }
        assert group.describe().hosts == 2
    for group in joined:
        group.leave()


def test_a_long_name_of_a_host_is_cut() -> None:
    agent = LoneAgent("ä" * 40)
    alone = SharedGroup(*agent.memory(), 1, 1, 20.0)
    assert serve_until(agent, alone)
    assert [host for *_, host in alone.members()] == ["ä" * 31]
    alone.leave()
    agent.close()


def test_what_is_no_frame_is_refused(agent: LoneAgent) -> None:
    agent.memory()
    for frame in (b"x", bytes(64), b"\xff" * (1 << 14)):
        with pytest.raises(Malformed, match="no frame of a learner group's master"):
            agent.groups.take(1, frame)
        with pytest.raises(Malformed, match="no frame of a learner group's agent"):
            agent.masters.take(agent.as_site, 1, frame)
        agent.groups.take(2, frame)  # of no place
        agent.masters.take(agent.as_site, 2, frame)


def test_a_place_of_ones_own_is_given_back_after_its_process(
    agent: LoneAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_LINGER_S", 0.01)
    line: Any = object()
    kept, own = agent.memory(), agent.memory(line)
    both = [SharedGroup(*place, 1, 2, 20.0) for place in (kept, own)]
    assert serve_until(agent, *both)
    both[1].leave()

    agent.masters.line_closed(line)

    assert eventually(lambda: agent.serve() or not is_open(own[0]))
    assert is_open(kept[0]) and agent.memory() == kept
    both[0].leave()


def is_open(segment: int) -> bool:
    try:
        return "mooactor-group" in os.readlink(f"/proc/self/fd/{segment}")
    except OSError:
        return False


def test_who_cannot_listen_is_told_why(agent: LoneAgent) -> None:
    def join(network: Network) -> None:
        SharedGroup(*agent.memory(), 1, 1, 20.0, network=network)

    with pytest.raises(OSError, match="192.0.2.1.*MOOACTOR_BIND takes"):
        join(Network(("shm", "tcp"), bind="192.0.2.1"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"ports {port}-{port} of .* are taken"):
            join(Network(("shm", "tcp"), bind="127.0.0.1", ports=(port, port)))


def test_a_segment_that_is_too_small_is_refused() -> None:
    segment = os.memfd_create("small")
    try:
        with pytest.raises(ValueError, match="not valid for a learner group"):
            GroupAgent(segment, 1, "here")
    finally:
        os.close(segment)
