# SPDX-License-Identifier: MIT
"""Hosts as containers have them: odd networks, and directories that are not shared.

Always there is a transport that works, or one error that says why there is none.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mooactor import ActorDied, ActorUnavailable, InternalError
from tests.conftest import eventually
from tests.marks import slow
from tests.networks import HOSTS, ip, need_ipv6
from tests.transports.pairs import Hosts
from tests.transports.worker import Worker

MB = 1 << 20


def arrives(sender: Worker, receiver: Worker) -> bool:
    message = sender.call("offer", receiver.id, "random", MB, 1)
    receiver.call("take", message)
    return bool(receiver.call("check", "random", MB, 1) == "")


def introduce(*workers: Worker) -> None:
    """As the control plane does between machines."""
    for one in workers:
        for other in workers:
            if one is not other:
                one.call("introduce", other.id, other.call("endpoint"))


def refusal(sender: Worker, receiver: Worker) -> str:
    """The text of the one error."""
    with pytest.raises(ActorUnavailable) as caught:
        sender.call("offer", receiver.id, "random", MB, 1)
    sender.call("drop")
    assert sender.settled()
    return str(caught.value)


@pytest.fixture
def directories(hosts: Hosts) -> Iterator[dict[str, str]]:
    """One for each host, which the other cannot see."""
    with (
        tempfile.TemporaryDirectory(prefix="moo-matrix-") as one,
        tempfile.TemporaryDirectory(prefix="moo-matrix-") as other,
    ):
        yield dict(zip(HOSTS, (one, other), strict=True))


# -- directories -----------------------------------------------------------


@pytest.mark.slow
def test_containers_that_share_only_the_kernel_use_the_network(hosts, directories):
    a, b = (
        hosts.start(host, "shm", "tcp", directory=directories[host]) for host in HOSTS
    )
    introduce(a, b)
    assert arrives(a, b) and arrives(b, a)
    for one, other in ((a, b), (b, a)):
        transport, why = one.call("route", other.id)
        assert (transport, "another host" in why) == ("tcp", True)


@pytest.mark.slow
def test_so_do_containers_whose_directories_have_the_same_name(hosts):
    a = hosts.start("a", "shm", "tcp")
    hide = 'mount -t tmpfs -o mode=700 none "$0" && exec "$@"'
    b = hosts.start(
        hosts.process("b", ["sh", "-c", hide, hosts.directory]), "shm", "tcp"
    )
    assert len(list(Path(hosts.directory).glob("*.endpoint"))) == 1  # b's is not here
    introduce(a, b)
    assert arrives(a, b) and arrives(b, a)
    assert a.call("route", b.id)[0] == b.call("route", a.id)[0] == "tcp"


def test_containers_that_share_a_directory_and_no_network_use_its_memory(hosts):
    hosts.cable.set("down")
    a, b = (hosts.start(host, "shm", "tcp") for host in HOSTS)
    assert arrives(a, b) and arrives(b, a)
    assert a.call("route", b.id)[0] == "shm"


@pytest.mark.slow
def test_with_neither_the_error_says_what_was_tried(hosts, directories):
    a, b = (
        hosts.start(host, "shm", "tcp", directory=directories[host]) for host in HOSTS
    )
    introduce(a, b)
    hosts.cable.set("down")
    assert "10.99.1.2" in refusal(a, b)


# -- addresses -------------------------------------------------------------


@pytest.mark.parametrize("families", [slow((4,)), (6,), slow((4, 6))], ids=str)
def test_any_family_of_addresses_will_do(hosts):
    a, b = (hosts.start(host, "tcp") for host in HOSTS)
    assert arrives(a, b) and arrives(b, a)


@pytest.mark.slow
@pytest.mark.parametrize("families", [()], ids=["none"])
def test_without_a_common_family_there_is_one_clear_error(hosts):
    need_ipv6()
    spaces = hosts.cable.namespace
    ip(*f"-n {spaces['a']} addr add 10.99.1.1/24 dev up0".split())
    ip(*f"-n {spaces['b']} addr add fd99:1::2/64 dev up0 nodad".split())
    a, b = (hosts.start(host, "tcp") for host in HOSTS)
    assert "fd99:1::2" in refusal(a, b)
    assert "10.99.1.1" in refusal(b, a)


@pytest.mark.slow
def test_who_listens_for_its_own_host_only_cannot_be_reached(hosts):
    """As all do by default."""
    a, b = (hosts.start(host, "tcp", bind=None) for host in HOSTS)
    assert "127.0.0.1" in refusal(a, b)


# -- interfaces ------------------------------------------------------------


def test_an_interface_that_is_dead_is_passed_over(hosts):
    hosts.cable.add_link("up1", 2)
    a, b = (hosts.start(host, "tcp") for host in HOSTS)
    with hosts.cable.swallowing("up0", 1):
        assert arrives(a, b) and arrives(b, a)


@pytest.mark.slow
def test_of_two_interfaces_the_other_is_taken_when_one_breaks(hosts):
    hosts.cable.add_link("up1", 2)
    a, b = (hosts.start(host, "tcp") for host in HOSTS)
    assert arrives(a, b) and arrives(b, a)
    first, second = ("up0", "up1")
    if hosts.cable.sent("a", first) < hosts.cable.sent("a", second):
        first, second = second, first
    with hosts.cable.pulled(first):
        assert eventually(lambda: arrives_again(a, b))
        assert eventually(lambda: arrives_again(b, a))
        assert hosts.cable.sent("a", second) > MB


def arrives_again(sender: Worker, receiver: Worker) -> bool:
    """False as long as the way that broke is not given up; what was lent by it has
    ended then, also for who asks by the next one."""
    try:
        return arrives(sender, receiver)
    except (ActorDied, ActorUnavailable, InternalError):
        return False


@pytest.mark.slow
def test_where_no_interface_answers_there_is_one_clear_error_until_one_does(hosts):
    a, b = (hosts.start(host, "tcp") for host in HOSTS)
    with hosts.cable.swallowing():
        assert "10.99.1.2" in refusal(a, b)
    assert eventually(lambda: arrives_again(a, b))
