# SPDX-License-Identifier: MIT
"""Clusters for tests: real brokers in processes of their own, members in this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mooactor.control import secret
from mooactor.control.channel import Channel
from mooactor.control.messages import Decoder, Message
from mooactor.control.node import Node
from mooactor.host.eventloop import EventLoop
from mooactor.host.members import Row, Stop
from mooactor.host.membership import Membership
from mooactor.host.protocol import Logs, Status
from tests.cluster.rows import row
from tests.control.nodes import Recorder

COMMAND = [sys.executable, "-m", "mooactor"]


class Command:
    """A `mooactor` command in a process of its own; its output is collected."""

    def __init__(
        self, *command: str, words: Sequence[str] = (), **environment: str
    ) -> None:
        """`words`: of another program, in the place of a command."""
        self.process = subprocess.Popen(
            words or [*COMMAND, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment() | environment,
        )
        self.out: list[str] = []
        self.err: list[str] = []
        pipes = ((self.process.stdout, self.out), (self.process.stderr, self.err))
        self._threads = [
            threading.Thread(target=lines.extend, args=(pipe,)) for pipe, lines in pipes
        ]
        for thread in self._threads:
            thread.start()

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def wait(self, timeout: float = 30.0) -> int:
        """Its exit code; the output is complete then."""
        code = self.process.wait(timeout)
        for thread in self._threads:
            thread.join(timeout)
        return code

    def text(self) -> str:
        return "".join(self.out) + "".join(self.err)

    def signal(self, number: int = signal.SIGTERM) -> int:
        """Send it, and return the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def close(self) -> None:
        if not self.ended:
            self.process.kill()
        self.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


def clean_environment() -> dict[str, str]:
    """Without the variables that lead to a cluster of the user's, or to a key."""
    names = ("MOOACTOR_ADDRESS", secret.VARIABLE, secret.FILE_VARIABLE)
    return {k: v for k, v in os.environ.items() if k not in names}


class Member:
    """An agent, as a broker sees it; what it is told is kept."""

    def __init__(
        self,
        loop: EventLoop,
        key: bytes,
        brokers: Sequence[str],
        name: str,
        **more: Any,
    ) -> None:
        self.node = Node(key)
        fields = {"address": self.node.address, **more}
        self.row = row(name, self.node.id.hex(), **fields)
        self.joined: list[str] = []
        self.notes: list[str] = []
        self.refused: list[str] = []
        self.lost: list[str] = []
        self.seen: list[Row] = []
        self.gone: list[tuple[str, str]] = []
        self.membership = Membership(
            self.node,
            brokers,
            lambda: replace(self.row),
            loop.later,
            on_joined=self._on_joined,
            on_refused=lambda address, why, _: self.refused.append(why),
            on_lost=lambda address, why: self.lost.append(address),
            on_host=self.seen.append,
            on_gone=lambda found, why: self.gone.append((found.name, why)),
        )

    def _on_joined(self, address: str, notes: list[str]) -> None:
        self.joined.append(address)
        self.notes += notes

    def names(self) -> list[str]:
        return sorted(found.name for found in self.membership.members())


class Cluster:
    """The processes and nodes of one test, and the loop that serves the nodes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.key = secret.make(str(directory / "key"))
        self.loop = EventLoop()
        self.members: list[Member] = []
        self.nodes: list[Node] = []
        self.commands: list[Command] = []

    def command(
        self, *command: str, words: Sequence[str] = (), **environment: str
    ) -> Command:
        """`words`: as `Command` takes them."""
        own = {"XDG_CONFIG_HOME": str(self.directory / "config")}  # no user's keys
        self.commands.append(Command(*command, words=words, **own | environment))
        return self.commands[-1]

    def ask(self, *words: str) -> Command:
        """A command with this cluster's key, served to its end."""
        command = self.command(*words, "--key-file", self.key.source)
        assert self.until(lambda: command.ended), command.text()
        command.wait()
        return command

    def visit(self, address: str) -> tuple[Channel, Recorder]:
        """A channel of a node that has the key and is no member, and its listener."""
        node, recorder = Node(self.key.secret), Recorder()
        self.nodes.append(node)
        return node.connect(address, recorder), recorder

    def broker(
        self, *words: str, listen: str = "127.0.0.1:0", **environment: str
    ) -> tuple[Command, str]:
        """A broker that is ready, and its address."""
        words = ("broker", "--listen", listen, "--key-file", self.key.source, *words)
        command = self.command(*words, **environment)
        assert self.until(lambda: command.out or command.ended), "no broker"
        assert command.out, command.wait() or command.text()
        line = command.out[0].rstrip()
        assert line.startswith("mooactor broker at tcp://"), line
        return command, line.rpartition(" ")[2]

    def member(self, name: str, *brokers: str, **more: Any) -> Member:
        """A member that has joined, or will soon."""
        member = Member(self.loop, self.key.secret, brokers, name, **more)
        self.members.append(member)
        self.nodes.append(member.node)
        return member

    def leave(self, member: Member) -> None:
        member.membership.close()
        self.members.remove(member)
        self.nodes.remove(member.node)
        member.node.close()

    def until(self, condition: Callable[[], object], timeout: float = 30.0) -> bool:
        """Serve all nodes until the condition holds; False if it does not in time."""
        deadline = time.monotonic() + timeout
        while not condition():
            now = time.monotonic()
            if now > deadline:
                return False
            self.loop.serve(now + 0.01)
            for node in self.nodes:
                node.serve()
        return True

    def mend(self, commands: int = 0) -> None:
        """End all but the first so many commands."""
        for member in list(self.members):
            self.leave(member)
        while self.nodes:
            self.nodes.pop().close()
        for command in self.commands[commands:]:
            command.close()
        del self.commands[commands:]

    def close(self) -> None:
        self.mend()
        self.loop._selector.close()


REQUESTS: Decoder[Message] = Decoder(Status, Logs, Stop)


class Agent:
    """The answers of a driver's agent or a host to `mooactor` commands."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.asked: list[Message] = []
        self.answers: dict[type[Message], list[Message]] = {}
        self.on_stop: Callable[[], None] | None = None
        member.node.accept = lambda channel: self

    def handle(self, channel: Channel, data: bytes) -> None:
        message = REQUESTS.decode(data)
        self.asked.append(message)
        for answer in self.answers.get(type(message), ()):
            channel.post(answer)
        if isinstance(message, Stop) and self.on_stop is not None:
            self.on_stop()

    def channel_closed(self, channel: Channel, why: str) -> None: ...
