# SPDX-License-Identifier: MIT
"""``moo.init`` and hosts, beside brokers that refuse, or that are not there."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mooactor.cli.host import _News
from mooactor.control import secret
from tests.cluster.clusters import Cluster, Command

# -- hosts -----------------------------------------------------------------------


def host(cluster: Cluster, address: str, key: secret.Key, *more: str) -> Command:
    words = ("host", "--name", "h", "--join", address, "--key-file", key.source)
    return cluster.command(*words, *more)


def said_of(host: Command, beginning: str) -> list[str]:
    return [line for line in host.err if line.startswith(f"mooactor host: {beginning}")]


@pytest.mark.slow
def test_a_host_says_each_thing_about_its_broker_once_and_goes_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    first, address = cluster.broker()
    first.signal(signal.SIGKILL)
    h = host(cluster, address, cluster.key, "--wait")
    assert cluster.until(lambda: len(h.err) >= 2), h.text()
    assert h.err[0] == f"mooactor host: uses the {cluster.key}\n"
    assert h.err[1].startswith(f"mooactor host: no broker at {address} yet (no answer ")
    assert "nothing listens there): see whether `mooactor broker` runs" in h.err[1]
    assert h.err[1].endswith(f"; the key here is {cluster.key}\n")
    other = secret.make(str(tmp_path / "other"))
    words = ("broker", "--listen", address, "--key-file", other.source)
    stranger = cluster.command(*words)
    refused = f"the broker at {address} refuses this host: it holds another key, "
    assert cluster.until(lambda: said_of(h, refused)), h.text()
    assert h.err[-1].endswith(
        f"{other.fingerprint}, and this side {cluster.key.fingerprint}\n"
    )
    stranger.signal(signal.SIGKILL)
    broker, _ = cluster.broker(listen=address)
    assert cluster.until(lambda: h.out), h.text()
    broker.signal(signal.SIGKILL)
    assert cluster.until(lambda: said_of(h, f"lost the broker at {address}: "))
    cluster.broker(listen=address)
    assert cluster.until(lambda: said_of(h, f"joined {address}")), h.text()
    assert len(said_of(h, "lost the broker")) == 1


def test_a_host_with_another_key_than_its_broker_ends(
    cluster: Cluster, tmp_path: Path
) -> None:
    _, address = cluster.broker()
    other = secret.make(str(tmp_path / "other"))
    h = host(cluster, address, other)
    assert cluster.until(lambda: h.ended), h.text()
    assert h.wait() == 1 and not h.out
    assert h.err[-1] == (
        f"mooactor host: the broker at {address} refuses this host: it holds another "
        f"key, {cluster.key.fingerprint}, and this side {other.fingerprint}: copy the "
        "broker's key file here, or restart the broker with this one; the key here is "
        f"{other}; with --wait it goes on trying\n"
    )


@pytest.mark.parametrize("joined", ["before", "meanwhile", "never"])
def test_a_host_whose_name_is_taken_ends_unless_it_has_joined_any_broker(
    joined: str,
) -> None:
    timers: list[Callable[[], None]] = []
    said: list[str] = []
    serving: Any = SimpleNamespace(
        loop=SimpleNamespace(later=lambda delay, action: timers.append(action)),
        log=said.append,
        ready=said.append,
        stop=lambda: said.append("stop"),
    )
    news = _News(serving, "b", secret.Key(b"k" * 32, "FILE"))
    if joined == "before":
        news.joined("tcp://10.0.0.1:4431", [])
    news.refused("tcp://10.0.0.2:4431", "there is another one", True)
    if joined == "meanwhile":
        news.joined("tcp://10.0.0.1:4431", [])
    for action in timers:
        action()
    assert ("stop" in said) == (news.refusal is not None) == (joined == "never")
