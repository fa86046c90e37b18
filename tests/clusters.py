# SPDX-License-Identifier: MIT
"""Clusters for tests: several hosts on one switch, each with a cable that can be cut.

`Network` is the hosts, network namespaces joined by a bridge. The bridge has a
namespace of its own, so nothing of it is in this machine's own network, any number of
test runs can have one at a time, and this process is on it only `inside` a host.
`Cluster` is a network with programs: a broker, and ``mooactor host`` where it is told.
The fixture `whole_cluster` is one for all tests of a process, which may break it.

Files and pids are the same for all hosts, so each program gets a directory for
temporary files and a host identity of its own.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import pytest

from mooactor.cli.client import Client
from mooactor.host.session import current_session
from tests.conftest import eventually, spare
from tests.networks import inside, ip, limit, need_ipv6, remove_orphans, why_not
from tests.processes import Process

_numbers = itertools.count()
_PORT = "up0"  # a host's interface
_LOSS = """
table inet loss {{
    chain input {{
        type filter hook input priority 0; policy accept;
        {whose} numgen random mod 1000 < {permille} counter drop
    }}
}}
"""


class Network:
    """Hosts with the addresses 10.77.0.1, 10.77.0.2, … in the order of their names.

    Args:
      hosts: their names; one letter each if it is a string.
      families: 4, 6 or both: which addresses they have.
    """

    def __init__(
        self, hosts: str | list[str] = "abc", families: tuple[int, ...] = (4,)
    ) -> None:
        if 6 in families:
            need_ipv6()
        remove_orphans()
        self.hosts = list(hosts)
        prefix = f"moo-test-{os.getpid()}-c{next(_numbers)}"
        self._switch = f"{prefix}-switch"
        self.namespace = {host: f"{prefix}-{host}" for host in self.hosts}
        self._swallowed: set[tuple[str, str]] = set()
        self._losing: set[str] = set()
        try:
            self._build(families)
        except BaseException:
            self.close()
            raise

    def _build(self, families: tuple[int, ...]) -> None:
        ip("netns", "add", self._switch)
        ip(*f"-n {self._switch} link add switch type bridge".split())
        ip(*f"-n {self._switch} link set switch up".split())
        for index, host in enumerate(self.hosts):
            space, port = self.namespace[host], f"port{index}"
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
            ends = f"{port} netns {self._switch} type veth peer name {_PORT} netns"
            ip(*f"link add {ends} {space}".split())
            ip(*f"-n {self._switch} link set {port} master switch up".split())
            for family in families:
                address = f"{self.address(host, family)}/{24 if family == 4 else 64}"
                ip("-n", space, "addr", "add", address, "dev", _PORT, *_EXTRA[family])
            ip("-n", space, "link", "set", _PORT, "up")
        for host in self.hosts:
            self._await_up(host)

    def _await_up(self, host: str) -> None:
        assert eventually(functools.partial(self._is_up, host)), f"{host} has no link"

    def _is_up(self, host: str) -> bool:
        (found,) = self._show(host)
        return bool(found["operstate"] == "UP")

    def _show(self, host: str) -> Any:
        words = ["-j", "-s", "-n", self.namespace[host], "link", "show", _PORT]
        return json.loads(ip(*words))

    def address(self, host: str, family: int = 4) -> str:
        """The host's address on the switch."""
        number = self.hosts.index(host) + 1
        return f"10.77.0.{number}" if family == 4 else f"fd77::{number}"

    def on(self, host: str) -> list[str]:
        """The words before a command that make it run on `host`. The process that is
        started becomes the command, so its pid is the command's."""
        return ["ip", "netns", "exec", self.namespace[host]]

    def inside(self, host: str) -> contextlib.AbstractContextManager[None]:
        """This thread, and whatever it starts, is on `host` meanwhile."""
        return inside(self.namespace[host])

    # -- faults; each lasts until it is taken back, and `mend` takes back all

    def cut(self, host: str) -> None:
        """Pull the host's cable: its kernel notices."""
        self._port(host, "down")

    def heal(self, host: str) -> None:
        """Plug it in again."""
        self._port(host, "up")
        self._await_up(host)

    def _port(self, host: str, state: str) -> None:
        port = f"port{self.hosts.index(host)}"
        ip("-n", self._switch, "link", "set", port, state)

    def swallow(self, source: str, target: str) -> None:
        """Packets from `source` to `target` get lost, and no kernel knows."""
        words = f"to {self.address(target)} lladdr 02:00:00:00:00:01 dev {_PORT}"
        space = self.namespace[source]
        ip("-n", space, "neigh", "replace", *words.split(), "nud", "permanent")
        self._swallowed.add((source, target))

    def deliver(self, source: str, target: str) -> None:
        """The opposite of `swallow`."""
        words = f"neigh del to {self.address(target)} dev {_PORT}".split()
        # The kernel forgets it by itself when the host's cable is pulled meanwhile.
        subprocess.run(["ip", "-n", self.namespace[source], *words], stderr=DEVNULL)
        self._swallowed.discard((source, target))

    def lose(self, host: str, permille: int, source: str | None = None) -> None:
        """So many of a thousand packets (below 1000) do not reach the host."""
        whose = f'iifname "{_PORT}"'
        if source is not None:
            whose += f" ip saddr {self.address(source)}"
        rules = _LOSS.format(whose=whose, permille=permille)
        self.lose_none(host)
        self._nft(host, rules).check_returncode()
        self._losing.add(host)

    def lose_none(self, host: str) -> None:
        """The opposite of `lose`."""
        if host in self._losing:
            self._nft(host, "delete table inet loss").check_returncode()
            self._losing.discard(host)

    def mend(self) -> list[str]:
        """Everything is whole again. Returns the hosts whose cable was out."""
        for source, target in list(self._swallowed):
            self.deliver(source, target)
        healed = []
        for host in self.hosts:
            self.lose_none(host)
            if not self._is_up(host):
                self.heal(host)
                healed.append(host)
        return healed

    @contextlib.contextmanager
    def cut_off(self, host: str) -> Iterator[None]:
        """The host's cable is out meanwhile."""
        self.cut(host)
        try:
            yield
        finally:
            self.heal(host)

    @contextlib.contextmanager
    def swallowing(self, source: str, target: str) -> Iterator[None]:
        """A black hole for one direction meanwhile."""
        self.swallow(source, target)
        try:
            yield
        finally:
            self.deliver(source, target)

    @contextlib.contextmanager
    def slow(self, host: str, mbit: int) -> Iterator[None]:
        """So many Mbit/s each way at most over the host's cable, meanwhile."""
        ends = {
            self.namespace[host]: _PORT,
            self._switch: f"port{self.hosts.index(host)}",
        }
        with contextlib.ExitStack() as stack:
            for space, end in ends.items():
                limit(space, end, mbit)
                stack.callback(limit, space, end, None)
            yield

    def sent(self, host: str) -> int:
        """Bytes that the host has sent so far."""
        return self._count(host, "tx")

    def received(self, host: str) -> int:
        """Bytes that have reached the host so far."""
        return self._count(host, "rx")

    def _count(self, host: str, direction: str) -> int:
        return int(self._show(host)[0]["stats64"][direction]["bytes"])

    def _nft(self, host: str, rules: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.on(host), "nft", "-f", "-"],
            input=rules,
            capture_output=True,
            text=True,
        )

    def close(self) -> None:
        """Remove it, with the namespaces of all hosts."""
        for name in (*self.namespace.values(), self._switch):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


_EXTRA = {4: (), 6: ("nodad",)}


class Program:
    """A command of ours that runs on a host, such as ``mooactor host``.

    Args:
      words: the command line.
      ready: the beginning of the line that it prints when it is ready.
    """

    def __init__(
        self, words: list[str], env: dict[str, str], ready: str, cwd: str | None = None
    ) -> None:
        self.words = words
        self.lines: deque[str] = deque(maxlen=1000)  # of stdout and stderr
        self._ready, self._is_ready = ready, threading.Event()
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
            cwd=cwd,
        )
        self._reader = threading.Thread(target=self._read, name="program's output")
        self._reader.start()

    def _read(self) -> None:
        out = self.process.stdout
        assert out is not None
        for line in out:
            self.lines.append(line)
            if line.startswith(self._ready):
                self._is_ready.set()

    def await_ready(self, seconds: float = 60.0) -> Program:
        """Wait for its line."""
        assert eventually(self._has_news, seconds), self
        assert self._is_ready.is_set(), f"{self} ended"
        return self

    def _has_news(self) -> bool:
        return self._is_ready.is_set() or not self._reader.is_alive()

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """kill -9, and wait until it is reaped. Its children may live on."""
        self.process.kill()
        self.process.wait()

    def stop(self, seconds: float = 20.0) -> int:
        """SIGTERM; its exit status."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self} took no notice of SIGTERM") from None

    def close(self) -> None:
        """Kill it if it still runs, and close its output."""
        self.kill()
        self._reader.join(20)
        assert not self._reader.is_alive(), f"a child of {self.words} has its output"
        assert self.process.stdout is not None
        self.process.stdout.close()

    def __repr__(self) -> str:
        return f"<{' '.join(self.words)}>:\n{''.join(self.lines)}"


class Cluster:
    """A network, with a broker and hosts that have joined it.

    Args:
      network: where they run.
      directory: for the key and for temporary files; removed by `close`.
      broker: the host of the broker.
      port: of the broker.
    """

    def __init__(
        self,
        network: Network,
        directory: str | None = None,
        *,
        broker: str | None = None,
        port: int = 4431,
    ) -> None:
        self.network = network
        self._is_own = directory is None
        self.directory = Path(directory or tempfile.mkdtemp(prefix="moo-c-"))
        self.directory.mkdir(exist_ok=True)
        self.key_file = self.directory / "key"
        if not self.key_file.exists():
            self.key_file.write_text(os.urandom(32).hex() + "\n")
            self.key_file.chmod(0o600)
        self.broker_host = broker or network.hosts[0]
        self.port = port
        self.broker: Program | None = None
        self.members: dict[str, Program] = {}

    @property
    def address(self) -> str:
        """For ``moo.init`` and ``--join``."""
        return f"tcp://{self.network.address(self.broker_host)}:{self.port}"

    def environment(self, host: str) -> dict[str, str]:
        """Of the programs on a host, and of drivers there."""
        private = self.directory / host
        private.mkdir(exist_ok=True)
        return {
            **os.environ,
            "TMPDIR": str(private),
            "MOOACTOR_KEY_FILE": str(self.key_file),
            "MOOACTOR_HOST_ID": host,
        }

    def run(self, host: str, *words: str, ready: str) -> Program:
        """Start a ``mooactor`` command there."""
        command = [sys.executable, "-m", "mooactor", *words]
        return Program(
            [*self.network.on(host), *command], self.environment(host), ready
        )

    def start_broker(self, *options: str, wait: bool = True) -> Program:
        """Start it, also again after its death."""
        _close(self.broker)
        listen = f"{self.network.address(self.broker_host)}:{self.port}"
        words = ("broker", "--listen", listen, *options)
        self.broker = self.run(
            self.broker_host, *words, ready="mooactor broker at tcp://"
        )
        return self.broker.await_ready() if wait else self.broker

    def start_host(self, host: str, *options: str, wait: bool = True) -> Program:
        """Have a host join under its name, also again after its death."""
        _close(self.members.get(host))
        where = ("--bind", self.network.address(host))
        words = ("host", "--join", self.address, "--name", host, *where, *options)
        made = self.run(host, *words, ready=f"mooactor host {host} joined")
        self.members[host] = made
        return made.await_ready() if wait else made

    def start(self, *hosts: str) -> Cluster:
        """The broker and these hosts, which start at the same time."""
        self.start_broker()
        for host in hosts:
            self.start_host(host, wait=False)
        self.await_ready()
        return self

    def await_ready(self) -> None:
        """Wait for all that were started: the broker and its hosts."""
        for program in (self.broker, *self.members.values()):
            if program is not None:
                program.await_ready()

    def have_joined(self) -> bool:
        """Whether the present broker has all hosts, after deaths of it and of them."""
        if self.broker is None:
            return False
        said = list(self.broker.lines)
        news = [[s for s in said if f"host {host} has" in s] for host in self.members]
        return all(lines and "has joined" in lines[-1] for lines in news)

    def zygote(self, host: str) -> int:
        """The pid of the zygote of a host that has one session."""
        return Process.of(self.members[host].pid).zygote().pid

    def close(self) -> None:
        """End everything that still runs there."""
        self._end_programs()
        if self._is_own:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _end_programs(self) -> None:
        for program in (*self.members.values(), self.broker):
            _close(program)
        self.members, self.broker = {}, None


def _close(program: Program | None) -> None:
    if program is not None:
        program.close()


@contextlib.contextmanager
def network(
    hosts: str | list[str] = "abc", families: tuple[int, ...] = (4,)
) -> Iterator[Network]:
    """A network for a fixture; skips where there can be none."""
    if why := why_not():
        pytest.skip(why)
    made = Network(hosts, families)
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def cluster(hosts: str = "abc", driver: str = "d") -> Iterator[Cluster]:
    """A broker and the hosts, for a fixture; one host more, for the driver.

    The broker runs where the driver does::

        with cluster() as made, made.network.inside("d"):
            with moo.init(made.address): ...
    """
    with network([*hosts, driver]) as net:
        made = Cluster(net, broker=driver)
        try:
            yield made.start(*hosts)
        finally:
            made.close()


class LastingCluster(Cluster):
    """Hosts a and b, and d for the broker and for drivers: for one test after the
    other. Its programs are no leaks, whoever has started them anew."""

    def __init__(self) -> None:
        super().__init__(Network("abd"), broker="d")
        self._options: dict[str, tuple[str, ...]] = {}  # of hosts that have any

    def start_host(self, host: str, *options: str, wait: bool = True) -> Program:
        self._options[host] = options
        made = super().start_host(host, *options, wait=wait)
        spare(made.pid, "moo-janitor")
        return made

    def start_broker(self, *options: str, wait: bool = True) -> Program:
        made = super().start_broker(*options, wait=wait)
        spare(made.pid)
        return made

    def mend(self, *, anew: bool = False) -> None:
        """All is as it was at first: the cables, the programs, and what they know."""
        if anew:
            self._end_programs()
        for host in self.network.mend():
            if host in self.members:  # it would be lost, and come back, a moment later
                self.members[host].kill()
        for program in (self.broker, *self.members.values()):
            if program is not None and program.process.poll() is None:
                program.process.send_signal(signal.SIGCONT)
        if self.broker is None or self.broker.process.poll() is not None:
            self.start_broker()
        for host in self.members.keys() - {"a", "b"}:
            self.members.pop(host).close()
        for host in "ab":
            member = self.members.get(host)
            if not member or member.process.poll() is not None or self._options[host]:
                self.start_host(host, wait=False)
        self.await_ready()
        for host in "ab":
            spare(self.members[host].pid, "moo-janitor")
        assert eventually(self._is_whole), self.broker

    def _is_whole(self) -> bool:
        """Whether the broker has these hosts, and no others."""
        with self.network.inside("d"):
            with Client(self.address, str(self.key_file)) as client:
                rows = client.rows()
        return sorted(row["name"] for row in rows if row["kind"] == "host") == [
            "a",
            "b",
        ]

    def close(self) -> None:
        for member in self.members.values():
            if member.process.poll() is None:
                member.stop()  # in order: nothing of it, as its janitor, is left then
        super().close()
        self.network.close()


@functools.cache
def _lasting() -> LastingCluster:
    """This process's: conftests that import `lasting_cluster` share it."""
    return LastingCluster()


@pytest.fixture(scope="session")
def lasting_cluster() -> Iterator[LastingCluster]:
    """See `whole_cluster`. For fixtures of modules, such as a session on its hosts."""
    if why := why_not():
        pytest.skip(why)
    made = _lasting()
    try:
        made.mend()
        yield made
    finally:
        made.close()
        _lasting.cache_clear()


@pytest.fixture
def whole_cluster(
    lasting_cluster: LastingCluster, request: pytest.FixtureRequest
) -> Iterator[LastingCluster]:
    """The cluster of this process: hosts a and b, and d for drivers. A test finds it
    whole, and may cut cables, and stop, kill and start programs. It is mended after
    each test, and its programs start anew after one that has failed."""
    failed = request.session.testsfailed
    yield lasting_cluster
    in_use = current_session() is not None  # the session of a module is on its hosts
    lasting_cluster.mend(anew=request.session.testsfailed > failed and not in_use)


@contextlib.contextmanager
def driver_on(
    made: Cluster, host: str = "d", name: str | None = None
) -> Iterator[None]:
    """This process is a driver on a host of a cluster meanwhile, under that name."""
    with pytest.MonkeyPatch.context() as patch, made.network.inside(host):
        for key, value in made.environment(host).items():
            patch.setenv(key, value)
        patch.setenv("MOOACTOR_HOST_NAME", name or host)
        patch.setenv("MOOACTOR_ADDRESS", made.address)
        yield
