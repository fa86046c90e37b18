# SPDX-License-Identifier: MIT
"""``mooactor run`` with the example on three hosts, one of which vanishes and comes
back: training goes on at the rate that the others give it, and then at the full one.
Each host has a learner; that of the host that is away is missing meanwhile.

The environments take their time, so the actors that are there say what the rate is, and
not this machine's processors.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.launched import Launched
from tests.cluster.sshd import Servers, servers
from tests.clusters import Network, network
from tests.conftest import eventually
from tests.examples.conftest import EXAMPLE, flags_of, metrics
from tests.examples.paced_env import STEPS_PER_S

ACTORS = {"a": 1, "b": 4, "c": 1}
WINDOW_S = 3.0
PATIENCE_S = 150.0
# Shares of the rate that all actors can have. Without b it is a third at most.
WITHOUT_B, WITH_B = (0.2, 0.4), (0.6, 1.1)


@pytest.fixture
def net() -> Iterator[Network]:
    with network("abc") as made:
        yield made


@pytest.fixture
def ssh(net: Network, tmp_path: Path) -> Iterator[Servers]:
    """Each host has one."""
    folder = tmp_path / "ssh"
    folder.mkdir()
    with servers(folder) as running:
        for host in net.hosts:
            own = tmp_path / host
            own.mkdir()
            variables = {"TMPDIR": str(own), "MOOACTOR_HOST_ID": host}
            running.add(host, net.address(host), net.on(host), variables)
        yield running


class Rate:
    """The rate of training, as a run's metrics.csv tells it."""

    def __init__(self, read: Callable[[], list[dict[str, str]]]) -> None:
        self._read = read
        self._since_s = 0.0

    def _rows(self) -> list[tuple[float, int]]:
        """The seconds and the steps of each; the last may not be whole yet."""
        whole = [row for row in self._read() if None not in row.values()]
        return [(float(row["wall_s"]), int(row["step"])) for row in whole]

    def of_late(self) -> float:
        """As a share of what all actors can play; 0 if too few reports are there."""
        rows = self._rows()
        since_s = max(self._since_s, rows[-1][0] - WINDOW_S) if rows else 0.0
        recent = [row for row in rows if row[0] > since_s]
        if len(recent) < 3:
            return 0.0
        (began_s, first), (ended_s, last) = recent[0], recent[-1]
        most = STEPS_PER_S * sum(ACTORS.values())
        return (last - first) / (ended_s - began_s) / most

    def becomes(self, least: float, most: float) -> bool:
        """Whether it is within these bounds before long."""
        return eventually(lambda: least < self.of_late() < most, PATIENCE_S)

    def learners(self) -> int:
        """Those that there are of late."""
        whole = [row for row in self._read() if None not in row.values()]
        return int(whole[-1]["learners"])

    def forget(self) -> None:
        """The past."""
        self._since_s = self._rows()[-1][0]


@pytest.mark.slow
@pytest.mark.quiet
@pytest.mark.timeout(600)
def test_a_run_slows_down_without_a_host_and_is_as_fast_as_before_with_it(
    net: Network, ssh: Servers, tmp_path: Path
) -> None:
    settings: dict[str, object] = {"env": "tests.examples.paced_env:Paced-v0"}
    settings |= {"actors": sum(ACTORS.values()), "envs_per_actor": 2, "unroll": 5}
    settings |= {"total_steps": 10**9, "run_dir": tmp_path / "run", "learners": 3}
    hosts = [f"{host} num_cpus={actors}\n" for host, actors in ACTORS.items()]
    (tmp_path / "hosts").write_text("".join(hosts))
    words = ["--hostfile", str(tmp_path / "hosts"), "--grace", "60"]
    words += [str(EXAMPLE), *flags_of(settings)]
    run = Launched(words, tmp_path, ssh.environment(), on=net.on("a"))
    rate = Rate(lambda: metrics(tmp_path / "run"))
    try:
        assert eventually((tmp_path / "run" / "metrics.csv").exists, PATIENCE_S)
        assert rate.becomes(*WITH_B)
        assert eventually(lambda: rate.learners() == 3, PATIENCE_S)  # one on each host
        with net.cut_off("b"):
            assert rate.becomes(*WITHOUT_B)
            assert eventually(lambda: rate.learners() == 2, PATIENCE_S)
            rate.forget()  # from here on b has no part in it, and it goes on so
            assert rate.becomes(*WITHOUT_B)
        assert rate.becomes(*WITH_B)
        assert eventually(lambda: rate.learners() == 3, PATIENCE_S)
        assert "host b has left: " in run.err  # it was not only slow
        run.signal(signal.SIGINT)
        assert run.end() == 0
        assert "go on with: --run-dir" in run.out
        assert int(metrics(tmp_path / "run")[-1]["lost_calls"]) > 0
    finally:
        if run.process.poll() is None:
            run.signal(signal.SIGKILL)
            run.end()
