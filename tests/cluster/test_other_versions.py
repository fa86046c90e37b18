# SPDX-License-Identifier: MIT
"""Drivers, hosts and brokers that speak different versions of the wire."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mooactor.control import envelope, frames
from tests.cluster.clusters import Cluster, Command, clean_environment
from tests.cluster.launched import ROOT
from tests.processes import Process

pytestmark = pytest.mark.slow

OTHER = 99
# There are two wires: of calls, whose version a member announces, and of channels
# between nodes, which say theirs in their first frame.
WIRES = {
    "mooactor.control.envelope.VERSION": envelope.VERSION,
    "mooactor.control.frames.WIRE": frames.WIRE,
}
# It lives until its input ends, so that others can look for what it has left.
DRIVER = """
import sys
import mooactor as moo


class Alone:
    def answers(self):
        return True


try:
    moo.init(sys.argv[1])
except moo.MooError as error:
    print(f"{type(error).__name__}: {error}", flush=True)
sys.stdin.read()
with moo.init():
    print(moo.spawn(Alone).answers())
"""


@pytest.fixture(params=WIRES)
def constant(request: pytest.FixtureRequest) -> str:
    """The version of one of the wires, by its name in the sources."""
    return str(request.param)


@pytest.fixture
def otherwise(constant: str, tmp_path: Path) -> dict[str, str]:
    """The environment of a program in whose processes that version is `OTHER`."""
    module = constant.rpartition(".")[0]
    folder = tmp_path / "patched"
    folder.mkdir()
    text = f"import {module}\n{constant} = {OTHER}\n"
    (folder / "sitecustomize.py").write_text(text)
    return {"PYTHONPATH": f"{folder}:{ROOT}"}


@contextmanager
def driver(
    cluster: Cluster, address: str, environment: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """`DRIVER`, with a directory of its own for temporary files."""
    temporary(cluster).mkdir()
    own = {
        "TMPDIR": str(temporary(cluster)),
        "MOOACTOR_KEY_FILE": cluster.key.source,
        "MOOACTOR_HOST_NAME": "driver",
    }
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, address],
        env=clean_environment() | own | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process


def temporary(cluster: Cluster) -> Path:
    return cluster.directory / "tmp"


def host(cluster: Cluster, name: str, address: str, **environment: str) -> Command:
    words = ("host", "--join", address, "--name", name, "--key-file")
    return cluster.command(*words, cluster.key.source, **environment)


def members(cluster: Cluster, address: str) -> list[str]:
    """The hosts and sessions that the broker knows."""
    said = cluster.ask("status", "--connect", address, "--json").out[0]
    found = json.loads(said)
    assert found["sessions"] == []
    return [row["name"] for row in found["hosts"]]


def refusals(said: str, address: str) -> list[str]:
    return re.findall(f"the broker at {address} refuses this .*", said)


def assert_names_both(refusal: str, constant: str, host: str) -> None:
    """It names both versions, the host if the broker has understood its name, and what
    to do."""
    assert repr(host) in refusal or constant.endswith(".WIRE"), refusal
    named = re.findall(r"version (\d+)", refusal)
    assert sorted(map(int, named)) == sorted((OTHER, WIRES[constant])), refusal
    assert "install" in refusal


def test_a_driver_is_refused_and_leaves_nothing(
    cluster: Cluster, otherwise: dict[str, str], constant: str
) -> None:
    _, address = cluster.broker()
    with driver(cluster, address, otherwise) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith("VersionMismatch: "), said
        (refusal,) = refusals(said, address)
        assert_names_both(refusal, constant, "driver")
        left: list[Any] = Process.of(process.pid).descendants()
        assert [*left, *temporary(cluster).iterdir()] == []
        assert members(cluster, address) == []
        assert process.communicate()[0] == "True\n"  # it can have a session alone


def test_a_host_is_refused_once_and_others_join(
    cluster: Cluster, otherwise: dict[str, str], constant: str
) -> None:
    _, address = cluster.broker()
    other = host(cluster, "b", address, **otherwise)
    assert cluster.until(lambda: refusals(other.text(), address)), other.text()
    same = host(cluster, "c", address)
    assert cluster.until(lambda: same.out), same.text()
    assert members(cluster, address) == ["c"]

    assert other.signal() == 0

    assert other.out == []
    (refusal,) = refusals(other.text(), address)
    assert_names_both(refusal, constant, "b")
    assert "lost the broker" not in other.text()


def test_a_broker_of_another_version_is_named_and_its_successor_is_joined(
    cluster: Cluster, otherwise: dict[str, str], constant: str
) -> None:
    first, address = cluster.broker()
    joined = host(cluster, "b", address)
    assert cluster.until(lambda: joined.out), joined.text()
    listen = address.removeprefix("tcp://")
    first.close()
    second, _ = cluster.broker(listen=listen, **otherwise)
    assert cluster.until(lambda: refusals(joined.text(), address)), joined.text()
    assert_names_both(refusals(joined.text(), address)[0], constant, "b")
    second.close()

    cluster.broker(listen=listen)

    assert cluster.until(lambda: f"joined {address}" in "".join(joined.err))
    assert members(cluster, address) == ["b"]
