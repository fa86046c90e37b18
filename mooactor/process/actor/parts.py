# SPDX-License-Identifier: MIT
"""The parts of a process that the worker of its actor uses."""

from __future__ import annotations

from typing import Protocol

from mooactor.control.links import Links
from mooactor.control.messenger import Messenger
from mooactor.control.sender import Sender
from mooactor.process.agent_client import AgentClient
from mooactor.process.housekeeper import Housekeeper
from mooactor.process.objects.borrow import Borrows
from mooactor.process.objects.handovers import Handovers
from mooactor.process.objects.payloads import Payloads
from mooactor.process.objects.results import Results
from mooactor.process.objects.values import Values
from mooactor.process.poller import Poller


class Parts(Protocol):
    """A `Runtime` has them all."""

    directory: str
    process_id: int
    actor_id: int
    # calls in and replies out
    messenger: Messenger
    poller: Poller
    links: Links
    sender: Sender
    housekeeper: Housekeeper
    # arguments and results
    payloads: Payloads
    values: Values
    handovers: Handovers
    results: Results
    borrows: Borrows
    # the host's agent, for snapshots and the end
    agent: AgentClient

    def flush(self) -> None:
        """Send all that waits to be sent."""

    def flush_if_due(self) -> None:
        """The same, but quick if nothing is known to be due."""
