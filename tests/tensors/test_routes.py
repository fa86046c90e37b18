# SPDX-License-Identifier: MIT
"""How an owner chooses what a peer gets its bytes by, and what it says of it."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from mooactor import ActorUnavailable
from mooactor.tensors import DataPlane
from mooactor.tensors.network import Network
from tests.tensors.endpoints import OFI, SHM, Endpoint
from tests.tensors.worker import KEY

MB = 1 << 20
ALL = ("shm", "ofi", "tcp")
Planes = Callable[..., DataPlane]


def arrives(sender: DataPlane, receiver: DataPlane) -> bool:
    sent = os.urandom(MB)
    descriptor = sender.export(sent, receiver.process_id)
    return bytes(receiver.import_(descriptor)) == sent


@pytest.fixture
def elsewhere(new_id: Callable[[], int]) -> Iterator[Planes]:
    """Makes planes that share no directory with others, nor a host identity."""
    planes: list[DataPlane] = []
    directories: list[tempfile.TemporaryDirectory[str]] = []

    def make(
        transports: Sequence[str] = ("shm", "tcp"), **options: object
    ) -> DataPlane:
        directories.append(tempfile.TemporaryDirectory(prefix="moo-plane-"))
        planes.append(
            DataPlane(
                directories[-1].name,
                new_id(),
                KEY,
                Network(tuple(transports), **options),  # type: ignore[arg-type]
            )
        )
        return planes[-1]

    yield make
    for plane in planes:
        plane.close()
    for directory in directories:
        directory.cleanup()


def introduced(sender: DataPlane, receiver: DataPlane) -> bool:
    sender.introduce(receiver.process_id, receiver.endpoint())
    return arrives(sender, receiver)


def test_by_default_there_is_shared_memory_and_nothing_else(new_plane, directory):
    here, there = new_plane(transports=None), new_plane(transports=None)
    assert arrives(here, there)
    assert here.route(there.process_id)[0] == "shm"
    assert not list(Path(directory).glob("*.endpoint"))
    with pytest.raises(ValueError, match="no endpoint"):
        here.endpoint()
    assert arrives(here, new_plane(transports=ALL))


def test_on_one_host_shared_memory_is_chosen(new_plane):
    here, there = new_plane(transports=ALL), new_plane(transports=ALL)
    assert here.route(there.process_id) == (None, "nothing was sent to it yet")
    assert arrives(here, there)
    transport, why = here.route(there.process_id)
    assert transport == "shm"
    assert "took our memory" in why
    assert here.host(here.process_id) == here.host(there.process_id)
    assert there.statistics()["fetched_tcp"] == 0


def test_between_hosts_it_is_tcp(elsewhere):
    here, there = elsewhere(), elsewhere()
    assert introduced(here, there)
    transport, why = here.route(there.process_id)
    assert transport == "tcp"
    assert "another host" in why
    assert here.host(there.process_id) == there.host(there.process_id)
    assert here.host(there.process_id) != here.host(here.process_id)
    assert there.statistics()["fetched_tcp"] == MB
    assert here.traffic(there.process_id) == (MB, 0)
    assert there.traffic(here.process_id) == (0, MB)


def test_with_a_common_fabric_it_is_that(elsewhere, fabric):
    here, there = elsewhere(ALL), elsewhere(["tcp", "ofi"])
    assert introduced(here, there)
    transport, why = here.route(there.process_id)
    assert transport == "ofi"
    assert f"both have {fabric}" in why
    assert there.statistics()["fetched_ofi"] == MB
    assert there.statistics()["fetched_tcp"] == 0


def test_a_fabric_that_is_not_to_be_had_is_done_without(elsewhere):
    here, there = elsewhere(ALL, provider="none"), elsewhere(ALL)
    assert introduced(here, there)
    assert here.route(there.process_id)[0] == "tcp"
    assert here.route(here.process_id)[1].startswith("ofi: ")


def test_if_nothing_else_is_allowed_that_is_an_error(elsewhere):
    with pytest.raises(ActorUnavailable, match="no allowed transport works here"):
        elsewhere(["ofi"], provider="none")


def test_what_is_forced_is_taken_on_one_host_too(new_plane):
    here, there = new_plane(transports=["tcp"]), new_plane(transports=ALL)
    assert arrives(here, there)
    assert arrives(there, here)
    assert here.route(there.process_id)[0] == "tcp"
    assert there.route(here.process_id)[0] == "tcp"


def test_nothing_in_common_is_one_clear_error(elsewhere):
    here, there = elsewhere(["tcp"]), elsewhere()
    endpoint = Endpoint.read(there.endpoint())
    here.introduce(there.process_id, endpoint.changed(transports=SHM | OFI))
    for _ in range(2):
        with pytest.raises(ActorUnavailable) as caught:
            here.export(bytes(MB), there.process_id)
    assert "this process has tcp, the other has shm ofi" in str(caught.value)
    assert here.statistics()["used"] == 0


def test_an_address_of_another_process_or_of_nobody_is_passed_over(elsewhere):
    here, there, stranger = elsewhere(), elsewhere(), elsewhere()
    endpoint = Endpoint.read(there.endpoint())
    with socket.create_server(("127.0.0.1", 0)) as unused:
        nobody = unused.getsockname()
    black_hole = ("192.0.2.1", 9)  # of no network
    others = (nobody, black_hole, *Endpoint.read(stranger.endpoint()).addresses)
    addresses = (*others, *endpoint.addresses)
    here.introduce(there.process_id, endpoint.changed(addresses=addresses))
    assert arrives(here, there)
    assert stranger.statistics()["links"] == 0


def test_what_is_no_endpoint_of_that_process_is_refused(new_plane):
    plane, other = new_plane(transports=ALL), new_plane(transports=ALL)
    for endpoint in (b"", b"MCRD", bytes(60), bytes(2000), other.endpoint()):
        with pytest.raises(ValueError, match="no endpoint of process"):
            plane.introduce(1 << 50, endpoint)


def test_a_closed_plane_leaves_no_endpoint_behind(directory, new_id):
    plane = DataPlane(directory, new_id(), KEY, Network(tuple(ALL)))
    assert list(Path(directory).glob("*.endpoint"))
    plane.close()
    assert not list(Path(directory).glob("*.endpoint"))
    assert not list(Path(directory).glob("*.new"))
