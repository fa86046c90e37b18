# SPDX-License-Identifier: MIT
"""Lines to processes that this agent reaches through another agent's channel."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from mooactor.control.lifeline import Received
from mooactor.control.messages import Message


class FarLine(abc.ABC):
    """See `eventloop.Line`: it has no descriptor, and never keeps anything back.
    ``number`` names it at the other end of the channel."""

    polled = False
    kept = 0  # the channel has the bound

    def __init__(self, number: int) -> None:
        self.number = number

    def fileno(self) -> int:
        return -1

    def post(
        self, message: Message | bytes, fds: Sequence[int] = (), *, hold: bool = False
    ) -> bool:
        assert not isinstance(message, bytes)  # agents alone hand on what is encoded
        self.hand_on(message, fds)
        return False

    @abc.abstractmethod
    def hand_on(self, message: Message, fds: Sequence[int]) -> None:
        """Send it over the channel."""

    def flush(self) -> bool:
        return False

    def receive_nowait(self) -> list[Received]:
        return []

    def give_up(self) -> None:  # noqa: B027
        """There is nothing to give up."""

    def close(self) -> None:  # noqa: B027
        """The other end hears of it otherwise, if at all."""
