# SPDX-License-Identifier: MIT
"""Without a key of the user's nothing listens for other hosts, whoever asks for it."""

from __future__ import annotations

import glob
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.cli import main
from mooactor.control import secret
from mooactor.tensors import interfaces
from tests.cluster.clusters import Command, clean_environment
from tests.conftest import eventually
from tests.processes import Process

BEYOND = ["*", "0.0.0.0", "::", "10.0.0.5", "fd00::5", "::ffff:0.0.0.0"]
NAME = socket.gethostname()
BROKER = "127.0.0.1:4431"  # nobody needs to be there
Refused = Callable[..., str]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of a user without a key."""
    for name in os.environ.keys() - clean_environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def command(config: Path) -> Iterator[Callable[..., Command]]:
    """Starts commands of that user, which say that they are ready, and end with the
    test."""
    started: list[Command] = []

    def start(*words: str, **environment: str) -> Command:
        started.append(Command(*words, **environment))
        assert eventually(lambda: started[-1].out), started[-1].text()
        return started[-1]

    yield start
    for one in reversed(started):
        one.close()


@pytest.fixture
def refused(config: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """The one sentence with which a command refuses to begin; no key was made."""

    def why(*words: str) -> str:
        before = set(config.rglob("*"))
        assert main([*words]) == 2
        out, err = capsys.readouterr()
        (line,) = err.splitlines()
        assert out == "" and set(config.rglob("*")) == before
        return line

    return why


def program_is_refused(monkeypatch: pytest.MonkeyPatch, where: str) -> str:
    monkeypatch.setenv("MOOACTOR_BIND", where)
    with pytest.raises(moo.AuthError) as caught:
        moo.init(f"tcp://{BROKER}")
    return str(caught.value)


def test_hosts_and_programs_are_refused_with_the_command_to_run(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where in BEYOND:
        host = refused("host", "--join", BROKER, "--bind", where)
        for said in (host, program_is_refused(monkeypatch, where)):
            assert f"no key for {where}" in said and "run `mooactor keygen`" in said


def test_a_broker_is_refused_with_the_command_to_run(refused: Refused) -> None:
    for where in ("*:0", "0.0.0.0:0", "[::]:0", f"{NAME}:0"):
        assert "run `mooactor keygen`" in refused("broker", "--listen", where)


@pytest.fixture
def outer() -> tuple[str, str]:
    """An interface of this machine that others reach, and its address."""
    for name, address in interfaces.addresses().items():
        if name != "lo":
            return name, address
    pytest.skip("this machine has the loopback interface alone")


def test_an_interface_is_judged_by_its_address(
    outer: tuple[str, str], refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, address = outer
    for words in (
        ("host", "--join", BROKER, "--bind", name),
        ("broker", "--listen", f"{name}:0"),
    ):
        assert f"no key for {address}" in refused(*words)
    assert f"no key for {address}" in program_is_refused(monkeypatch, name)


def test_the_local_key_opens_no_port_to_others_when_it_is_named_either(
    config: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = secret.load(hosts=["127.0.0.1"]).source
    link = config / "key-of-mine"
    link.symlink_to(local)
    for path in (local, str(link)):
        key = ("--key-file", path)
        host = ("host", "--join", BROKER, "--bind", "*")
        assert "no key for *" in refused(*host, *key)
        assert "no key for *" in refused("broker", "--listen", "*:0", *key)
        assert "no key for 10.0.0.5" in refused("host", "--join", "10.0.0.5", *key)
        run = ("run", "--hosts", "localhost,far", *key, __file__)
        assert "no key for far" in refused(*run)
    monkeypatch.setenv(secret.FILE_VARIABLE, local)
    assert "no key for *" in program_is_refused(monkeypatch, "*")


# -- who listens where -------------------------------------------------------------


@moo.actor
class Listener:
    """Says who it is, and so has begun."""

    def pid(self) -> int:
        return os.getpid()


def test_with_the_local_key_every_process_listens_on_the_loopback_interface(
    command: Callable[..., Command], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = command("broker", "--listen", "lo:0").out[0].split()[-1]
    words = ("host", "--join", address, "--name", "b")
    command(*words, "--bind", "lo", MOOACTOR_HOST_ID="b")
    for variable in ("NAME", "ID"):  # this process is on another host
        monkeypatch.setenv(f"MOOACTOR_HOST_{variable}", "laptop")
    with moo.init(address, transport="shm,tcp"):
        near, far = (moo.on(Listener, host=h).spawn() for h in ("laptop", "b"))
        assert near.pid() != far.pid()
        us = {process.pid for process in Process.of(os.getpid()).family()}
        assert {near.pid(), far.pid()} < us
        listens = {where for pid in us for where in listening(pid)}
        assert listens == {"0100007F"}
        # An actor with a variable of its own dies of it.
        wide = moo.on(Listener, host="b", env={"MOOACTOR_BIND": "::"}).spawn()
        with pytest.raises(moo.ActorDied) as caught:
            wide.pid()
        assert "AuthError: there is no key for ::" in str(caught.value.cause)


def listening(pid: int) -> Iterator[str]:
    """The addresses of its TCP listeners, as the kernel writes them."""
    mine: set[Any] = set()
    for path in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            mine.add(os.readlink(path))
        except OSError:
            continue  # closed a moment ago
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in mine:
                yield fields[1].partition(":")[0]
