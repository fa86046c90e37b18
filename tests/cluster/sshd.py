# SPDX-License-Identifier: MIT
"""Real ssh servers for tests, each on its own port, and a client that knows them.

`Servers.path` goes in front of PATH: its ``ssh`` is the system's, with a configuration
in which ``b``, ``c`` and so on are these servers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.processes import Process

_SERVER = """\
Port {port}
ListenAddress {address}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
MaxStartups 100
{variables}
"""
_CLIENT = """\
Host {name}
    HostName {address}
    Port {port}
    IdentityFile {folder}/user
    IdentitiesOnly yes
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
"""


def why_not() -> str | None:
    """Why there can be no ssh server here, or None."""
    if program() is None:
        return "needs an ssh server (Debian: apt-get install openssh-server)"
    if shutil.which("ssh") is None:
        return "needs an ssh client (Debian: apt-get install openssh-client)"
    return None


def program() -> str | None:
    return shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")


class Servers:
    """Running servers; a context manager ends them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "bin"
        self.path.mkdir()
        for name in ("host", "user"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f"]
            subprocess.run([*words, str(folder / name)], check=True)
        client = self.path / "ssh"
        real = shutil.which("ssh")
        client.write_text(f'#!/bin/sh\nexec {real} -F {folder}/config "$@"\n')
        client.chmod(0o755)
        (folder / "config").touch()
        self._running: dict[str, subprocess.Popen[bytes]] = {}  # by name
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)  # it insists, as root

    def add(
        self,
        name: str,
        address: str = "127.0.0.1",
        on: Sequence[str] = (),
        environment: Mapping[str, str] = {},
    ) -> None:
        """Start a server that the client calls `name`, with the words `on` before its
        command. All that it starts has these variables."""
        pairs = " ".join(f'"{name}={value}"' for name, value in environment.items())
        variables = f"SetEnv {pairs}" if pairs else ""
        while not (port := self._start(name, address, on, variables)):
            pass  # another program has taken the port meanwhile
        values = {"port": port, "address": address, "folder": self.folder}
        with (self.folder / "config").open("a") as file:
            file.write(_CLIENT.format(name=name, **values))

    def _start(self, name: str, address: str, on: Sequence[str], variables: str) -> int:
        """The port of a server that answers, or 0."""
        port = _free_port()
        values = {"port": port, "address": address, "folder": self.folder}
        values["variables"] = variables
        config = self.folder / f"sshd-{name}"
        config.write_text(_SERVER.format(**values))
        log = self.folder / f"log-{name}"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*on, program() or "", "-D", "-e", "-f", str(config)],
                stdin=subprocess.DEVNULL,
                stderr=file,
            )

        def settled() -> bool:
            return process.poll() is not None or "Server listening" in log.read_text()

        assert eventually(settled), log.read_text()
        if process.poll() is None:
            self._running[name] = process
            return port
        assert "in use" in log.read_text(), log.read_text()
        return 0

    def sessions(self, name: str) -> list[Process]:
        """The processes of the server, one for each of its connections."""
        below = Process.of(self._running[name].pid).descendants()
        return [process for process in below if process.name().startswith("sshd")]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.path}:{os.environ['PATH']}"}

    def close(self) -> None:
        for process in self._running.values():
            process.terminate()
            process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextlib.contextmanager
def servers(folder: Path) -> Iterator[Servers]:
    """Skip where there can be none."""
    if reason := why_not():
        pytest.skip(reason)
    running = Servers(folder)
    try:
        yield running
    finally:
        running.close()
