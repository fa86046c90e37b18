# SPDX-License-Identifier: MIT
"""`mooactor host` as its users run it: its options, its end, and the end of all."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from tests.clusters import Cluster, Network
from tests.conftest import at_best, eventually
from tests.host.where import Where
from tests.processes import Process

PORTS = range(20000, 20012)


PORT = 4440  # beside that of the cluster of all tests


@pytest.fixture
def made(whole_cluster: Cluster) -> Iterator[Cluster]:
    """Another broker on the same network, and no hosts yet."""
    made = Cluster(whole_cluster.network, broker="d", port=PORT)
    made.start_broker()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def here(made: Cluster, as_driver: Callable[..., Cluster]) -> Cluster:
    return as_driver(made)


# -- options -------------------------------------------------------------------


@pytest.mark.slow
def test_labels_and_memory_of_hosts_decide_who_runs_there_and_groups_are_packed(
    here: Cluster,
) -> None:
    here.start_host("a", "--label", "rack=b1", "--memory", "2GB", "--num-cpus", "4")
    here.start_host("b", "--label", "rack=b2", "--memory", "8GB", "--num-cpus", "4")
    with moo.init(here.address, local=False):
        packed = moo.on(Where, num_cpus=1, pack=True).group(4)
        assert len(set(packed.call(Where.host).get())) == 1
        for member in packed:
            moo.kill(member)
        spread = moo.on(Where, num_cpus=1, spread=True).group(2)
        assert sorted(spread.call(Where.host).get()) == ["a", "b"]
        rows = {row["name"]: row for row in moo.hosts()}
        assert rows["a"]["labels"] == {"rack": "b1"}
        assert rows["b"]["memory"] == 8 * 10**9
        for rack, host in (("b1", "a"), ("b2", "b")):
            assert moo.on(Where, labels={"rack": rack}).spawn().host() == host
        assert moo.on(Where, memory=4e9).spawn().host() == "b"
        with pytest.raises(moo.PlacementError, match="rack"):
            moo.on(Where, labels={"rack": "b3"}).spawn()
        with pytest.raises(ValueError, match="pack"):
            moo.on(Where, pack=True, spread=True).spawn()


def ports_of(net: Network, host: str) -> set[int]:
    """The TCP ports that somebody listens at there, and not only for itself."""
    words = [*net.on(host), "cat", "/proc/net/tcp", "/proc/net/tcp6"]
    lines = subprocess.run(words, capture_output=True, text=True).stdout.splitlines()
    fields = [line.split() for line in lines if " 0A " in line]
    own = ("0100007F:", "00000000000000000000000001000000:")
    return {int(f[1].split(":")[1], 16) for f in fields if not f[1].startswith(own)}


@pytest.mark.slow
def test_every_listener_stays_in_the_range_of_ports(
    here: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = f"{PORTS.start}-{PORTS.stop - 1}"
    others = {host: ports_of(here.network, host) for host in "abd"}
    for host in "ab":
        here.start_host(host, "--ports", ports)
    monkeypatch.setenv("MOOACTOR_PORTS", ports)
    with moo.init(here.address, local=False):
        a, b = (moo.on(Where, host=host).spawn() for host in "ab")
        assert a.ask(b) == "b" and b.ask(a) == "a"
        assert len(a.echo(b.echo(bytes(1 << 20)))) == 1 << 20
        for host in "ab":
            assert ports_of(here.network, host) - others[host] <= set(PORTS)
            assert len(ports_of(here.network, host) - others[host]) > 1
        assert ports_of(here.network, "d") - others["d"] <= set(PORTS)


# -- the end -------------------------------------------------------------------


@pytest.mark.quiet
@pytest.mark.slow
def test_a_host_ends_within_three_seconds_of_a_signal(here: Cluster) -> None:
    def seconds(number: signal.Signals) -> float:
        host = here.start_host("a")
        with moo.init(here.address, local=False):
            moo.on(Where, host="a").spawn().host()
            began = time.monotonic()
            host.process.send_signal(number)
            assert host.process.wait(60) == 0
            return time.monotonic() - began

    for number in (signal.SIGINT, signal.SIGTERM):
        assert at_best(lambda number=number: seconds(number), 3.0)


def directories(made: Cluster, host: str) -> list[Path]:
    """Those of sessions that are left on a host."""
    return list((made.directory / host).glob("mooactor-*"))


@pytest.mark.slow
def test_nothing_is_left_when_all_are_killed_at_once(made: Cluster) -> None:
    program = (
        "import mooactor as moo\n"
        "from tests.host.where import Where\n"
        f"moo.init({made.address!r})\n"
        "handles = [moo.on(Where, host=h).spawn() for h in ('a', 'b', 'd')]\n"
        "refs = [h.keep() for h in handles]\n"
        "print(*[h.pid() for h in handles], flush=True)\n"
        "handles[0].sleep(600)\n"
    )

    made.start("a", "b")
    with subprocess.Popen(
        [*made.network.on("d"), sys.executable, "-c", program],
        env={**made.environment("d"), "MOOACTOR_HOST_NAME": "d"},
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdout is not None
        assert len(driver.stdout.readline().split()) == 3
        assert made.broker is not None
        programs = [*made.members.values(), made.broker]
        roots = [driver, *(program.process for program in programs)]
        everyone = {p for r in roots for p in Process.of(r.pid).family()}
        assert len(everyone) > 10
        for root in roots:
            root.kill()

        def left() -> list[Any]:
            running = [p for p in everyone if p.is_running()]
            return running or [d for h in "abd" for d in directories(made, h)]

        assert eventually(lambda: not left()), left()
