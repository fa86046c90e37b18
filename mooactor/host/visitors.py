# SPDX-License-Identifier: MIT
"""Other sessions of the namespace that ask this home; `protocol` has the messages.

A process of theirs is a line like any other: it watches, kills and looks for actors of
this session by the same requests as a process of its own. It spawns nothing here, and
nothing here belongs to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from mooactor.control.channel import Channel
from mooactor.control.keys import actor_of
from mooactor.control.messages import Message, encode, readable
from mooactor.host.eventloop import FarLine, Line
from mooactor.host.names import STARTING
from mooactor.host.protocol import (
    AllNamed,
    Answer,
    Ask,
    AskNames,
    Freed,
    LineClosed,
    Named,
    Over,
    Poll,
    Refused,
    Said,
)
from mooactor.host.supervised import Supervised
from mooactor.process.exits import ExitRecord
from mooactor.process.protocol import SERVED_REQUESTS, Died, Watch, death_notice

if TYPE_CHECKING:
    from mooactor.host.home import Home

# An actor that nobody knows may be one whose spawn is still unread on a line.
_UNREAD_S = 0.02
_MOST_LINES = 1 << 14  # more than one session can have processes
_WRONGED = (
    "its session had lost that of the caller, so it takes the caller for dead; an "
    "actor that is spawned now can call it"
)


class VisitorLine(FarLine):
    """To a process of another session."""

    def __init__(self, channel: Channel, number: int) -> None:
        super().__init__(number)
        self._channel = channel

    def hand_on(self, message: Message, fds: Sequence[int]) -> None:
        self._channel.post(Said(self.number, encode(message)))


class Visitor:
    """One other session, as this home sees it. A request before that for
    names is malformed: see `neighbor`."""

    def __init__(self, home: Home, channel: Channel) -> None:
        self._home = home
        self._channel = channel
        self._lines: dict[int, VisitorLine] = {}
        self._follows = False

    def act_on(self, message: Message) -> None:
        """One message of the asker's.

        Raises:
          Refused, ValueError: it is malformed, or cannot be now.
        """
        if isinstance(message, AskNames):
            self._follow(message)
        elif not self._follows:
            raise Refused("it asks for something before it asks for names")
        elif isinstance(message, Poll):
            self._poll(message)
        elif isinstance(message, Ask):
            self._serve(message)
        elif isinstance(message, LineClosed):
            self._close_line(message.line)

    # -- names -------------------------------------------------------------------

    @property
    def node_id(self) -> str:
        """Of its home's node, in hex."""
        return self._channel.peer.hex()

    @property
    def address(self) -> str:
        """Where its home listens."""
        return self._channel.address

    def _follow(self, message: AskNames) -> None:
        """Tell all names, and those to come, as soon as its home is a neighbor: before,
        its processes would be taken for strangers, who are dead."""
        neighbors, names = self._home.neighbors, self._home.names
        if neighbors is None:
            raise Refused("this session has no namespace")
        if not self._follows:
            neighbors.visited(self, message.host, message.namespace)
            self._follows = True
            names.followers.append(self.tell)
        for name, actor in names.given():
            self.tell(name, actor)
        self._channel.post(AllNamed())

    def tell(self, name: str, actor: Supervised | None) -> None:
        """An actor has got a name, or nobody has it any more."""
        if actor is None:
            self._channel.post(Freed(name))
            return
        self._channel.post(Named(name, actor.id, actor.label, actor.handle))

    # -- questions ---------------------------------------------------------------

    def _poll(self, message: Poll) -> None:
        if message.name is not None:
            self._answer(message.number, self._holder(message.name))
        else:
            self._answer_owner(message.number, message.id or 0, tries=1)

    def _answer_owner(self, question: int, actor_id: int, tries: int) -> None:
        has = self._has(actor_id)
        if has or not tries:
            self._answer(question, has or None)
            return
        again = partial(self._answer_owner, question, actor_id, tries - 1)
        self._home.loop.later(_UNREAD_S, again)

    def _answer(self, question: int, value: str | bool | None) -> None:
        self._channel.post(Answer(question, value))

    def _holder(self, name: str) -> str | None:
        actor, neighbors = self._home.names.holder(name), self._home.neighbors
        if actor is not None:
            return f"{actor.label} of another session"
        claimed = neighbors is not None and neighbors.has_claimed(
            name, self._channel.peer
        )
        return STARTING if claimed else None

    def _has(self, actor_id: int) -> bool:
        home = self._home
        assert home.config is not None
        is_driver = actor_id == actor_of(home.config.process_id)
        return is_driver or actor_id in home.actors

    # -- requests ----------------------------------------------------------------

    def _serve(self, message: Ask) -> None:
        request, line_number = SERVED_REQUESTS.decode(message.message), message.line
        line = self._lines.get(line_number)
        if line is None:
            if len(self._lines) >= _MOST_LINES:
                raise Refused(f"no session has more than {_MOST_LINES} processes")
            line = VisitorLine(self._channel, line_number)
            self._lines[line_number] = line
            self._home.loop.watch_line(line, self._home.requests)
        asker = message.process
        if isinstance(request, Watch) and self._is_dead_to(request.id, asker):
            self._home.loop.post(line, self._silence_of(request.id))
        else:
            self._home.requests.serve(line, request)

    def _is_dead_to(self, watched: int, asker: int) -> bool:
        """Whether the process that is to be watched would not answer the asker."""
        home = self._home
        assert home.neighbors is not None and home.config is not None
        actor = home.actors.get(actor_of(watched))
        if actor is not None and actor.process is not None:
            line: Line = actor.process.line
        elif watched == home.config.process_id:
            line = home.driver
        else:
            return False
        return home.neighbors.presumed.has(line, asker)

    def _silence_of(self, process_id: int) -> Died:
        sites = self._home.sites
        host = sites.host_of(actor_of(process_id)) or sites.here.host
        record = ExitRecord("host", note=f"{host}: {_WRONGED}")
        return death_notice(process_id, record)

    def _close_line(self, line_number: int) -> None:
        line = self._lines.pop(line_number, None)
        if line is not None:
            self._home.loop.close_line(line)

    def tell_of_end(self) -> None:
        """This session is over: say so, for those who ask there for its actors."""
        if self._home.ending:
            self._channel.post(Over(readable(self._home.program)))

    def end(self, why: str) -> None:
        """Close its channel: its home cannot be reached, or this session is over."""
        self._channel.close(why)
        self.close()

    def close(self) -> None:
        """That session is gone, or cannot be reached."""
        for line_number in list(self._lines):
            self._close_line(line_number)
        if self._follows:
            self._follows = False
            self._home.names.followers.remove(self.tell)
            assert self._home.neighbors is not None
            self._home.neighbors.left(self)
