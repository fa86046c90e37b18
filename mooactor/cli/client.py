# SPDX-License-Identifier: MIT
"""`Client`: a short-lived command's connections to the broker and to agents."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

import msgspec

from mooactor.cli.command import Failure
from mooactor.control import secret
from mooactor.control.channel import Channel
from mooactor.control.messages import Decoder, Malformed, Message
from mooactor.control.node import Node
from mooactor.control.outgoing import OutgoingChannel
from mooactor.host import addresses
from mooactor.host.members import FROM_BROKER, Members, Watch, rows_of
from mooactor.host.protocol import TO_COMMAND

VARIABLE = "MOOACTOR_ADDRESS"
PATIENCE_S = 5.0  # for the broker's answer

Row = dict[str, Any]  # of a member, as JSON has it, and its ``load``
ANSWERS: Decoder[Message] = Decoder(*FROM_BROKER.kinds, *TO_COMMAND.kinds)
A = TypeVar("A", bound=Message)


class Talk:
    """One channel of a command, and all that has come over it."""

    def __init__(self, row: Row, heard: Callable[[Talk, Message], None] | None) -> None:
        self.row = row
        self.received: list[Message] = []
        self.closed: str | None = None  # why
        self._heard = heard
        self.channel: OutgoingChannel | None = None

    def handle(self, channel: Channel, data: bytes) -> None:
        try:
            message = ANSWERS.decode(data)
        except Malformed:
            return  # it is of a later version
        if self._heard is None:
            self.received.append(message)
        else:
            self._heard(self, message)

    def channel_closed(self, channel: Channel, why: str) -> None:
        self.closed = why

    def post(self, message: Message) -> None:
        if self.channel is not None and self.closed is None:
            self.channel.post(message)

    @property
    def over(self) -> bool:
        """Whether the channel has ended as that of a node does which was told to end:
        it had taken what was posted, or took leave."""
        channel = self.channel
        assert channel is not None
        left = channel.delivered or (bool(channel.peer) and channel.parted)
        return self.closed is not None and left

    @property
    def refused(self) -> bool:
        """Whether nothing listened there, as far as this host could see."""
        assert self.channel is not None
        return self.closed is not None and self.channel.refused

    def answer(self, kind: type[A]) -> A | None:
        """The first message of this kind that came."""
        return next((m for m in self.received if isinstance(m, kind)), None)


class Client:
    """A node that is served while its command waits. A context manager.

    Ctrl-C ends the process at once, with the exit code `interrupted`: an exception that
    is raised within the node could leave a socket that nobody closes.
    """

    def __init__(
        self,
        connect: str | None = None,
        key_file: str | None = None,
        *,
        interrupted: int = 130,
    ) -> None:
        text = connect or os.environ.get(VARIABLE) or "127.0.0.1"
        try:
            self.addresses = list(map(str, addresses.parse_list(text)))
        except ValueError as error:
            raise Failure(str(error)) from None
        hosts = [addresses.parse(address).host for address in self.addresses]
        self._key = secret.load(key_file, hosts=hosts, may_make=False)
        self._broker: Talk | None = None
        # Answers come over the connections that this node opens: nobody needs to
        # reach it from another host.
        self._node = Node(self._key.secret)
        self._before: Any = None
        if threading.current_thread() is threading.main_thread():
            end = lambda *_: os._exit(interrupted)  # noqa: E731
            self._before = signal.signal(signal.SIGINT, end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._node.close()
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def wait(self, condition: Callable[[], object], timeout_s: float | None) -> bool:
        """Serve all channels until the condition holds; False if it never did."""
        return self._node.run_until(condition, timeout_s)

    def open(
        self, row: Row, heard: Callable[[Talk, Message], None] | None = None
    ) -> Talk:
        """A channel to the agent of a row. Without `heard`, messages are collected."""
        talk = Talk(row, heard)
        talk.channel = self._node.connect(row["address"], talk)
        return talk

    # -- the broker --------------------------------------------------------

    def rows(self) -> list[Row]:
        """The members of the cluster, as the broker that answers first knows them."""
        talks = [self._broker] if self._broker and self._broker.closed is None else []
        talks = talks or [self.open({"address": one}) for one in self.addresses]
        for talk in talks:
            talk.received.clear()
            talk.post(Watch())

        def over() -> bool:
            return any(map(_listed, talks)) or all(t.closed is not None for t in talks)

        self.wait(over, PATIENCE_S)
        self._broker = next(filter(_listed, talks), None)
        if self._broker is None:
            why = "; ".join(talk.closed or "it is busy" for talk in talks)
            where = ", ".join(talk.row["address"] for talk in talks)
            start = "start one with `mooactor broker`, or name another with --connect"
            step = secret.next_step(why, self._key, start)
            raise Failure(f"no broker answers at {where} ({why}): {step}")
        return [
            {**msgspec.to_builtins(row), "load": load}
            for message in self._broker.received
            if isinstance(message, Members)
            for row, load in rows_of(message)
        ]

    # -- agents ------------------------------------------------------------

    def ask(
        self, rows: Iterable[Row], message: Message, kind: type[A], timeout_s: float
    ) -> list[tuple[Row, A | None]]:
        """Ask several agents at once; None for each that has not answered in time."""
        talks = [self.open(row) for row in rows]
        for talk in talks:
            talk.post(message)
        self.wait(
            lambda: all(t.closed is not None or t.answer(kind) for t in talks),
            timeout_s,
        )
        answers = [(talk.row, talk.answer(kind)) for talk in talks]
        for talk in talks:
            if talk.channel is not None and talk.closed is None:
                talk.channel.close()
        return answers


def _listed(broker: Talk) -> bool:
    """Whether all of its rows have come."""
    return any(isinstance(m, Members) and not m.more for m in broker.received)


def homes(rows: Iterable[Row]) -> list[Row]:
    """The agents of drivers; each has one session."""
    return [row for row in rows if row["kind"] == "home"]
