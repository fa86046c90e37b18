# SPDX-License-Identifier: MIT
"""A broker and members on two hosts, and the cable between them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mooactor.control import secret
from tests import networks
from tests.conftest import eventually
from tests.networks import Cable

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(networks.why_not() is not None, reason="no namespaces"),
]
ROOT = Path(__file__).parents[2]
ADDRESS = "tcp://10.99.1.1:4431"


class Program:
    """A program on one of the hosts; its lines are collected."""

    def __init__(self, where: list[str], *words: str) -> None:
        self.process = subprocess.Popen(
            [*where, sys.executable, "-m", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        self.lines: list[str] = []
        self._thread = threading.Thread(
            target=self.lines.extend, args=(self.process.stdout,)
        )
        self._thread.start()

    def said(self) -> list[list[Any]]:
        return [json.loads(line) for line in self.lines]

    def count(self, *words: str) -> int:
        """How often it has said something that begins so."""
        return sum(said[: len(words)] == list(words) for said in self.said())

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Hosts:
    """Two hosts: a broker and the member "near" on the first, "far" on the second."""

    def __init__(self, directory: Path) -> None:
        self.cable = Cable()
        self.key = secret.make(str(directory / "key")).source
        self.programs: list[Program] = []
        listen = ("--listen", ADDRESS, "--key-file", self.key)
        self.broker = self.start("a", "mooactor", "broker", *listen)
        assert eventually(lambda: self.broker.lines), "no broker"
        self.near, self.far = self.member("a", "near"), self.member("b", "far")
        for member in (self.near, self.far):
            for name in ("near", "far"):
                assert eventually(lambda m=member, n=name: m.count("host", n))

    def start(self, host: str, *words: str) -> Program:
        self.programs.append(Program(self.cable.on(host), *words))
        return self.programs[-1]

    def member(self, host: str, name: str) -> Program:
        return self.start(host, "tests.cluster.member", name, self.key, ADDRESS)

    def close(self) -> None:
        for program in self.programs:
            program.close()
        self.cable.close()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    found = Hosts(tmp_path)
    yield found
    found.close()


def test_a_cut_that_heals_soon_is_no_news(hosts: Hosts) -> None:
    with hosts.cable.pulled():
        time.sleep(1.0)  # of three seconds of patience
    hosts.far.tell("7")
    assert eventually(lambda: hosts.near.count("host", "far", "7"))
    for member in (hosts.near, hosts.far):
        assert member.count("gone") == member.count("lost") == 0
        assert member.count("joined") == 1


def test_a_host_that_is_cut_off_is_gone_and_comes_back(hosts: Hosts) -> None:
    with hosts.cable.pulled():
        assert eventually(lambda: hosts.near.count("gone", "far"))
        assert eventually(lambda: hosts.far.count("lost"))
        assert hosts.far.count("gone") == 0  # it knows nothing of the others
    assert eventually(lambda: hosts.far.count("joined") == 2)
    assert eventually(lambda: hosts.near.count("host", "far") == 2)
    assert hosts.near.count("gone") == 1


def test_a_host_whose_packets_get_lost_is_gone_too(hosts: Hosts) -> None:
    with hosts.cable.swallowing():  # no kernel knows
        assert eventually(lambda: hosts.near.count("gone", "far"))
    assert eventually(lambda: hosts.near.count("host", "far") == 2)
