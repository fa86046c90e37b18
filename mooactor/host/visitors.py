# SPDX-License-Identifier: MIT
"""Other sessions of the namespace that ask this home; `neighbor` has the messages.

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
from mooactor.control.lifeline import Message
from mooactor.host.eventloop import Line
from mooactor.host.farline import FarLine
from mooactor.host.fields import Refused, number, required, text
from mooactor.host.names import STARTING
from mooactor.host.requests import SERVED
from mooactor.host.supervised import Supervised, death_notice
from mooactor.process.checks import MOST_OF_A_NAME
from mooactor.process.exits import ExitRecord

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
        self._channel.post({"ev": "said", "line": self.number, "message": message})


class Visitor:
    """One other session, as this home sees it. What it asks before it has asked for
    names is malformed: see `neighbor`."""

    OPS = frozenset(("names", "poll", "request", "closed"))

    def __init__(self, home: Home, channel: Channel) -> None:
        self._home = home
        self._channel = channel
        self._lines: dict[int, VisitorLine] = {}
        self._follows = False

    def act_on(self, message: Message) -> None:
        """One message of the asker's.

        Raises:
          LookupError, Refused, ValueError: it is malformed.
        """
        op = message["op"]
        if op == "names":
            self._follow(message)
        elif not self._follows:
            raise LookupError("it asks for something before it asks for names")
        elif op == "poll":
            self._poll(message)
        elif op == "request":
            self._serve(message)
        else:
            self._close_line(number(message, "line"))

    # -- names -------------------------------------------------------------------

    @property
    def node_id(self) -> str:
        """Of its home's node, in hex."""
        return self._channel.peer.hex()

    @property
    def address(self) -> str:
        """Where its home listens."""
        return self._channel.address

    def _follow(self, message: Message) -> None:
        """Tell all names, and those to come, as soon as its home is a neighbor: before,
        its processes would be taken for strangers, who are dead."""
        neighbors, names = self._home.neighbors, self._home.names
        host, namespace = (
            text(message, key, MOST_OF_A_NAME) for key in ("host", "namespace")
        )
        if neighbors is None:
            raise Refused("this session has no namespace")
        if not self._follows:
            neighbors.visited(self, host, namespace)
            self._follows = True
            names.followers.append(self.tell)
        for name, actor in names.given():
            self.tell(name, actor)
        self._channel.post({"ev": "told"})

    def tell(self, name: str, actor: Supervised | None) -> None:
        """An actor has got a name, or nobody has it any more."""
        if actor is None:
            self._channel.post({"ev": "freed", "name": name})
            return
        about = {"label": actor.label, "handle": actor.handle}
        self._channel.post({"ev": "named", "name": name, "id": actor.id, **about})

    # -- questions ---------------------------------------------------------------

    def _poll(self, message: Message) -> None:
        question = number(message, "number")
        if message["about"] == "name":
            self._answer(question, self._holder(text(message, "name", MOST_OF_A_NAME)))
        else:
            self._answer_owner(question, number(message, "id"), tries=1)

    def _answer_owner(self, question: int, actor_id: int, tries: int) -> None:
        has = self._has(actor_id)
        if has or not tries:
            self._answer(question, has or None)
            return
        again = partial(self._answer_owner, question, actor_id, tries - 1)
        self._home.loop.later(_UNREAD_S, again)

    def _answer(self, question: int, value: str | bool | None) -> None:
        self._channel.post({"ev": "answer", "number": question, "value": value})

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
        is_driver = actor_id == actor_of(home.config["process_id"])
        return is_driver or actor_id in home.actors

    # -- requests ----------------------------------------------------------------

    def _serve(self, request: Message) -> None:
        line_number = number(request, "line")
        message = required(request, "message", dict)
        line = self._lines.get(line_number)
        if line is None:
            if len(self._lines) >= _MOST_LINES:
                raise Refused(f"no session has more than {_MOST_LINES} processes")
            line = VisitorLine(self._channel, line_number)
            self._lines[line_number] = line
            self._home.loop.watch_line(line, self._home.requests)
        if message.get("op") not in SERVED:
            raise LookupError(f"no visitor may ask {message.get('op')!r:.40}")
        if message["op"] == "watch" and self._is_dead_to(request):
            self._home.loop.post(line, self._silence_of(number(message, "id")))
        else:
            self._home.requests.serve(line, message)

    def _is_dead_to(self, request: Message) -> bool:
        """Whether the process that is to be watched would not answer the asker."""
        home, watched = self._home, number(request["message"], "id")
        assert home.neighbors is not None and home.config is not None
        actor = home.actors.get(actor_of(watched))
        if actor is not None and actor.process is not None:
            line: Line = actor.process.line
        elif watched == home.config["process_id"]:
            line = home.driver
        else:
            return False
        return home.neighbors.presumed.has(line, number(request, "process"))

    def _silence_of(self, process_id: int) -> Message:
        sites = self._home.sites
        host = sites.host_of(actor_of(process_id)) or sites.here.host
        record = ExitRecord("host", note=f"{host}: {_WRONGED}")
        return death_notice(process_id, record, None)

    def _close_line(self, line_number: int) -> None:
        line = self._lines.pop(line_number, None)
        if line is not None:
            self._home.loop.close_line(line)

    def tell_of_end(self) -> None:
        """This session is over: say how, for those who ask there for its actors."""
        home = self._home
        if home.ending:
            about = {"program": home.program, "how": home.how_ended}
            self._channel.post({"ev": "over", **about})

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
