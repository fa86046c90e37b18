# SPDX-License-Identifier: MIT
"""Without a key of the user's nothing listens for other hosts, whoever asks for it."""

from __future__ import annotations

import glob
import ipaddress
import os
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.control import addresses, secret
from mooactor.tensors import interfaces
from tests.cluster.clusters import Command, clean_environment
from tests.conftest import eventually
from tests.processes import Process

BEYOND = ["*", "0.0.0.0", "::", "10.0.0.5", "fd00::5", "::ffff:0.0.0.0"]
NAME = socket.gethostname()
BROKER = "127.0.0.1:4431"  # nobody needs to be there


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of a user without a key."""
    for name in os.environ.keys() - clean_environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def command(config: Path) -> Iterator[Callable[..., Command]]:
    """Starts commands of that user, which end with the test."""
    started: list[Command] = []

    def start(*words: str, **environment: str) -> Command:
        started.append(Command(*words, **environment))
        return started[-1]

    yield start
    for one in reversed(started):
        one.close()


def why_not(command: Command) -> str:
    """The one sentence with which it refuses to begin."""
    assert command.wait() == 2, command.text()
    assert command.out == []
    (line,) = command.err
    return line


@pytest.mark.parametrize("where", BEYOND)
def test_a_host_is_refused_with_the_command_to_run(
    where: str, config: Path, command: Callable[..., Command]
) -> None:
    said = why_not(command("host", "--join", BROKER, "--bind", where))
    assert f"no key for {where}" in said and "run `mooactor keygen`" in said
    assert not list(config.iterdir())  # no key was made


@pytest.mark.parametrize("where", ["*:0", "0.0.0.0:0", "[::]:0", f"{NAME}:0"])
def test_a_broker_is_refused_with_the_command_to_run(
    where: str, config: Path, command: Callable[..., Command]
) -> None:
    assert "run `mooactor keygen`" in why_not(command("broker", "--listen", where))
    assert not list(config.iterdir())


@pytest.mark.parametrize("where", BEYOND)
def test_a_program_is_refused_with_the_command_to_run(
    where: str, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOOACTOR_BIND", where)
    with pytest.raises(moo.AuthError, match="run `mooactor keygen`") as refused:
        moo.init(f"tcp://{BROKER}")
    assert f"no key for {where}" in str(refused.value)
    assert not list(config.iterdir())


@pytest.fixture
def outer() -> tuple[str, str]:
    """An interface of this machine that others reach, and its address."""
    for name, address in interfaces.addresses().items():
        if name != "lo":
            return name, address
    pytest.skip("this machine has the loopback interface alone")


def test_an_interface_is_judged_by_its_address(
    outer: tuple[str, str],
    config: Path,
    command: Callable[..., Command],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, address = outer
    for words in (
        ("host", "--join", BROKER, "--bind", name),
        ("broker", "--listen", f"{name}:0"),
    ):
        assert f"no key for {address}" in why_not(command(*words))
    monkeypatch.setenv("MOOACTOR_BIND", name)
    with pytest.raises(moo.AuthError, match=f"no key for {address}"):
        moo.init(f"tcp://{BROKER}")
    assert not list(config.iterdir())
    broker = command("broker", "--listen", "lo:0")
    assert eventually(lambda: broker.out), broker.text()
    assert " at tcp://127.0.0.1:" in broker.out[0]


def test_the_name_of_a_host_is_no_address_to_listen_on(
    config: Path, command: Callable[..., Command], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = why_not(command("host", "--join", BROKER, "--bind", NAME))
    assert f"--bind={NAME!r}: no interface of this host" in said
    monkeypatch.setenv("MOOACTOR_BIND", NAME)
    with pytest.raises(ValueError, match="no interface of this host"):
        moo.init(f"tcp://{BROKER}")
    assert not list(config.iterdir())


@pytest.mark.slow
def test_the_local_key_opens_no_port_to_others_when_it_is_named_either(
    config: Path, command: Callable[..., Command], monkeypatch: pytest.MonkeyPatch
) -> None:
    local = secret.load(hosts=["127.0.0.1"]).source
    link = config / "key-of-mine"
    link.symlink_to(local)
    for path in (local, str(link)):
        key = ("--key-file", path)
        host = command("host", "--join", BROKER, "--bind", "*", *key)
        assert "no key for *" in why_not(host)
        assert "no key for *" in why_not(command("broker", "--listen", "*:0", *key))
        assert "no key for 10.0.0.5" in why_not(
            command("host", "--join", "10.0.0.5", *key)
        )
        run = command("run", "--hosts", "localhost,far", *key, __file__)
        assert "no key for far" in why_not(run)
    monkeypatch.setenv(secret.FILE_VARIABLE, local)
    monkeypatch.setenv("MOOACTOR_BIND", "*")
    with pytest.raises(moo.AuthError):
        moo.init(f"tcp://{BROKER}")
    broker = command("broker", "--ports", "20000-29999")
    assert eventually(lambda: broker.out)
    assert " at tcp://127.0.0.1:2" in broker.out[0]


@moo.actor
class Listener:
    """Says who it is, and so has begun."""

    def pid(self) -> int:
        return os.getpid()


@pytest.fixture
def address(
    config: Path, command: Callable[..., Command], monkeypatch: pytest.MonkeyPatch
) -> str:
    """Of a broker that a host b has joined; this process is on another host."""
    broker = command("broker", "--listen", "127.0.0.1:0")
    assert eventually(lambda: broker.out), broker.text()
    address = broker.out[0].split()[-1]
    words = ("host", "--join", address, "--name", "b")
    host = command(*words, "--bind", "lo", MOOACTOR_HOST_ID="b")
    assert eventually(lambda: host.out), host.text()
    monkeypatch.setenv("MOOACTOR_HOST_NAME", "laptop")
    monkeypatch.setenv("MOOACTOR_HOST_ID", "laptop")
    return address


@pytest.mark.slow
def test_with_the_local_key_every_process_listens_on_the_loopback_interface(
    address: str,
) -> None:
    with moo.init(address, transport="shm,tcp"):
        near, far = (moo.on(Listener, host=h).spawn() for h in ("laptop", "b"))
        assert near.pid() != far.pid()
        us = {process.pid for process in Process.of(os.getpid()).family()}
        assert {near.pid(), far.pid()} < us
        listens = {where for pid in us for where in listening(pid)}
        assert listens == {"0100007F"}


@pytest.fixture
def open_address(
    outer: tuple[str, str], config: Path, command: Callable[..., Command]
) -> str:
    """As `address`, of a cluster with a key, at an interface that others reach."""
    name, address = outer
    secret.make(str(config / "mooactor" / "key"))
    broker = command("broker", "--listen", f"{name}:0")
    assert eventually(lambda: broker.out), broker.text()
    where = broker.out[0].split()[-1]
    assert where.startswith(addresses.form(address, ""))
    words = ("host", "--join", where, "--name", "b", "--bind", name)
    host = command(*words, MOOACTOR_HOST_ID="b")
    assert eventually(lambda: host.out), host.text()
    return where


@pytest.mark.slow
def test_with_a_key_every_process_listens_at_the_interface_that_was_named(
    outer: tuple[str, str], open_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, address = outer
    monkeypatch.setenv("MOOACTOR_BIND", name)
    with moo.init(open_address, transport="shm,tcp"):
        far = moo.on(Listener, host="b").spawn()
        assert far.pid() != os.getpid()
        us = [process.pid for process in Process.of(os.getpid()).family()]
        found = {where for pid in us for where in listening(pid)}
        assert found == {as_the_kernel_writes(address)}


@pytest.mark.slow
def test_a_host_listens_where_it_was_told_whatever_holds_for_the_program(
    outer: tuple[str, str], open_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOOACTOR_BIND", "*")
    with moo.init(open_address, transport="shm,tcp"):
        far = moo.on(Listener, host="b").spawn()
        assert set(listening(far.pid())) == {as_the_kernel_writes(outer[1])}
        assert set(listening(os.getpid())) <= {"0" * 8, "0" * 32}


def as_the_kernel_writes(address: str) -> str:
    """In words of four bytes, each as a number of this machine."""
    packed = ipaddress.ip_address(address).packed
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words)


@pytest.mark.parametrize(
    ("host", "where"), [("laptop", "*"), ("b", "::"), ("b", "0.0.0.0")]
)
def test_an_actor_with_a_variable_of_its_own_dies_of_it(
    address: str, host: str, where: str
) -> None:
    with moo.init(address):
        actor = moo.on(Listener, host=host, env={"MOOACTOR_BIND": where}).spawn()
        with pytest.raises(moo.ActorDied) as caught:
            actor.pid()
        assert f"AuthError: there is no key for {where}" in str(caught.value.cause)


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
