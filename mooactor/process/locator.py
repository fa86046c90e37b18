# SPDX-License-Identifier: MIT
"""Where the processes are that this one talks to, in a session of several hosts.

The agent knows. It is asked once there is something to send, and answers as soon as the
process exists; it also tells of processes that asked for this one. An answer goes first
to the data plane, then to the messenger, then to the actions that wait for it.

Answers are handled in the thread that reads the lifeline.
"""

from __future__ import annotations

from collections.abc import Callable

from mooactor.control.complaints import say
from mooactor.control.links import Links
from mooactor.control.messenger import Messenger
from mooactor.errors import ActorUnavailable
from mooactor.process.agent_client import AgentClient
from mooactor.process.protocol import Gone, Locate, Located


class Locator:
    """See the module. On one host nothing is ever asked."""

    def __init__(
        self,
        agent: AgentClient,
        links: Links,
        messenger: Messenger,
        introduce: Callable[[int, bytes], None],
        spans_hosts: bool,
    ) -> None:
        """`introduce`: tell the data plane a process's endpoint."""
        self._agent = agent
        self._links = links
        self._messenger = messenger
        self._introduce = introduce
        self._spans_hosts = spans_hosts
        # By process: what is to be done once it is known where that is.
        self._awaiting: dict[int, list[Callable[[], None]]] = {}

    def locate(self, process_id: int) -> None:
        """Ask where a process is. A dead one is never found, but its death is told."""
        try:
            self._agent.tell(Locate(process_id))
        except ActorUnavailable:
            pass  # the session is over, which ends all that waits

    def meet(self, process_id: int) -> None:
        """Memory of this process was granted to another one on request."""
        self._links.watch(process_id)
        if self._spans_hosts:
            self.locate(process_id)  # it may be on another host, which we must call

    def when_located(self, process_id: int, action: Callable[[], None]) -> None:
        """Call `action` once it is known where the process is, or now."""
        self._awaiting.setdefault(process_id, []).append(action)
        if self._messenger.is_located(process_id):
            self._act(process_id)

    def on_located(self, message: Located | Gone) -> None:
        """The agent's answer, or its notice of one who asked for this process."""
        process_id = message.id
        if isinstance(message, Gone):
            self.forget(process_id)
            self._messenger.forget(process_id)
            return
        if message.caller:  # it asked for us, to call us
            self._links.watch(process_id)
        address = None if message.same else message.address
        if address is not None and message.endpoint:
            self._introduce_data(message)
        self._messenger.located(process_id, message.host, address, message.caller)
        self._act(process_id)

    def _introduce_data(self, message: Located) -> None:
        """A process of another session may be of another version: it can be called all
        the same, and the use of its data says that it has no endpoint."""
        try:
            self._introduce(message.id, message.endpoint)
        except ValueError as error:
            where = f"host {message.host!r:.80}"
            say(f"mooactor: data of {where} cannot be used here: {error}")

    def forget(self, process_id: int) -> None:
        """It is dead: drop what waits for it."""
        self._awaiting.pop(process_id, None)

    def _act(self, process_id: int) -> None:
        for action in self._awaiting.pop(process_id, ()):
            action()
