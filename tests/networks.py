# SPDX-License-Identifier: MIT
"""Hosts for tests: network namespaces joined by cables that can be pulled.

`Cable` is two hosts and the links between them. Processes are put there with the
words of `Cable.on`, actors by MOOACTOR_NETNS; files and unix sockets are the same for
all of them.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import itertools
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator

import pytest

from mooactor.process.system import enter_network_namespace
from tests.conftest import eventually

HOSTS = "ab"
_numbers = itertools.count()
_PREFIX = "moo-test"


@functools.cache
def why_not() -> str | None:
    """Why there can be no namespaces here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need `ip` (package iproute2)"
    name = f"{_PREFIX}-{os.getpid()}-probe"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return "this machine allows no network namespaces"
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return None


def need_ipv6() -> None:
    """Skip the test on a machine that has no IPv6 at all."""
    try:
        socket.socket(socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")


def ip(*arguments: str) -> str:
    """Run `ip`, and return what it prints."""
    return subprocess.run(
        ["ip", *arguments], check=True, capture_output=True, text=True
    ).stdout


def limit(namespace: str, interface: str, mbit: int | None, burst_kb: int = 64) -> None:
    """Let so many Mbit/s leave by the interface; None: as many as it can. A busy
    machine reaches a high rate only with bursts of several of the 64 KB that its
    sockets send at once."""
    words = ["tc", "-n", namespace, "qdisc"]
    words += ["del" if mbit is None else "add", "dev", interface, "root"]
    if mbit is not None:
        words += f"tbf rate {mbit}mbit burst {burst_kb}k latency 200ms".split()
    subprocess.run(words, check=True, capture_output=True)


def _is_up(namespace: str, interface: str) -> bool:
    (found,) = json.loads(ip("-n", namespace, "-j", "link", "show", interface))
    return bool(found["operstate"] == "UP")


@functools.cache
def remove_orphans() -> None:
    """Remove the namespaces of test runs that were killed."""
    for path in glob.glob(f"/run/netns/{_PREFIX}-*"):
        owner = path.split("-")[2]
        if not os.path.exists(f"/proc/{owner}"):
            subprocess.run(["ip", "netns", "delete", os.path.basename(path)])


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This thread, and whatever it starts, is in a namespace meanwhile."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        enter_network_namespace(namespace)
        yield
    finally:
        enter_network_namespace(f"/proc/self/fd/{home}")
        os.close(home)


class Cable:
    """Two namespaces, "a" and "b", with a link between them: "up0" at both ends.

    Args:
      families: 4, 6 or both: which addresses the ends have.
    """

    def __init__(self, families: tuple[int, ...] = (4,)) -> None:
        if 6 in families:
            need_ipv6()
        remove_orphans()
        number = f"{os.getpid()}-{next(_numbers)}"
        self.namespace = {host: f"{_PREFIX}-{number}-{host}" for host in HOSTS}
        for name in self.namespace.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        self.add_link("up0", 1, families)

    def on(self, host: str) -> list[str]:
        """The words before a command that make it run on `host`."""
        return ["ip", "netns", "exec", self.namespace[host]]

    def add_link(
        self, name: str, subnet: int, families: tuple[int, ...] = (4,)
    ) -> None:
        """Another link: an interface `name` at both ends."""
        a, b = self.namespace.values()
        ip(*f"link add {name} netns {a} type veth peer name {name} netns {b}".split())
        for index, space in enumerate((a, b), 1):
            if 4 in families:
                address = f"10.99.{subnet}.{index}/24"
                ip("-n", space, "addr", "add", address, "dev", name)
            if 6 in families:
                address = f"fd99:{subnet}::{index}/64"
                ip("-n", space, "addr", "add", address, "dev", name, "nodad")
            ip("-n", space, "link", "set", name, "up")
        self.await_up(name)

    def await_up(self, name: str) -> None:
        """Until then libfabric does not take the interface, in a process that starts
        now, and has the loopback alone for the rest of its life."""
        for space in self.namespace.values():
            assert eventually(functools.partial(_is_up, space, name))

    def close(self) -> None:
        for name in self.namespace.values():
            ip("netns", "delete", name)
