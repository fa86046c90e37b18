# SPDX-License-Identifier: MIT
"""The messages between agents, and those of commands to agents.

All go over channels, which nobody opens without the cluster's key; `members` has those
of brokers. `control.messages` says how they are encoded, and what that promises of
every sender. The requests and news of processes travel in them as bytes: the home of
the session decodes them, and no agent on the way.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mooactor.control.messages import (
    Decoder,
    Handle,
    Id,
    Ids,
    Incarnation,
    Message,
    Name,
    Names,
    Parcels,
    Path,
    Paths,
    SomeId,
    Text,
)
from mooactor.host.members import OF_A_MEMBER, Stop
from mooactor.host.output import (
    MOST_LINES,
    MOST_OF_LINES,
    TAIL_LINES,
    Pid,
    Printer,
)
from mooactor.process.environment import Place
from mooactor.process.needs import Amount
from mooactor.process.protocol import Life, PlaceNumber, Row, Stream

MOST_OF_DEVICES = 1 << 12
_MOST_FILES = 1 << 32  # of a process's limit on open ones
_Frame = Annotated[bytes, Meta(min_length=1, max_length=1 << 14)]  # for C: as it says
_Said = Annotated[bytes, Meta(max_length=1 << 24)]  # a frame of a lifeline
_Tail = Annotated[
    list[Annotated[str, Meta(max_length=1 << 12)]], Meta(max_length=TAIL_LINES)
]
_ActorName = Annotated[str, Meta(max_length=1000)]  # see `process.checks`


class Refused(Exception):
    """A request that cannot be done; its text is the reason."""


# -- the home of a session and its guests on other hosts -------------------
#
# A process has a number, given by the home; `OverLine` has what goes over its lifeline,
# both ways, and bytes, the parcels, stand for descriptors. Invariant: all that a
# process said and printed comes before its `Exited`, because a channel keeps the order.
# So has a place of a learner group; see `groups`.


class Invitation(msgspec.Struct):
    """To use a session's directory, for an agent on the same machine: see `remote`."""

    machine: Annotated[list[Text], Meta(max_length=16)]
    directory: Path
    device: Id
    inode: Id


class OfAProcess(Message):
    """About the process of that number."""

    number: Id


class Open(Message):
    """Host a session, of that mark. Answered by `Opened`."""

    session: Annotated[str, Meta(min_length=1, max_length=255)]
    place: Place
    python: Path
    argv: Paths
    preload: Names
    near: Invitation | None = None


class Start(OfAProcess):
    """Start a process of an actor, which has what it needs reserved. Answered by
    `Born`, `Failed` or `Denied`."""

    life: Life
    needs: Amount
    parcels: Parcels


class OverLine(OfAProcess):
    """Bytes for the lifeline of a process. The home says whether it is the request
    to stop, and the place of the learner group whose memory, `segment`, belongs to it.
    The parcels are the last field, as `messages.encode_in_parts` needs it."""

    message: _Said
    stops: bool
    segment: PlaceNumber | None
    parcels: Parcels


class Closed(OfAProcess):
    """It has closed its line, or the home has."""


class Kill(OfAProcess):
    """Kill it; or, if it is not born yet, forget it."""


class GroupFrame(Message):
    """Of a learner group's master for the agent of a place, or the other way."""

    place: PlaceNumber
    frame: _Frame


class GroupClosed(Message):
    """Nobody is in that place any more."""

    place: PlaceNumber


class Leave(Message):
    """Give back what this actor had reserved."""

    holder: Id


class Preload(Message):
    modules: Names


class Now(Message):
    """The next incarnation of an actor; None: it is over."""

    id: SomeId
    incarnation: Incarnation | None = None


class Close(Message):
    """The session is over."""


class Opened(Message):
    """`why` it cannot be; or whether it uses the directory of the invitation, and the
    limit of its processes on open files."""

    why: Text = ""
    near: bool = False
    files: Annotated[int, Meta(ge=0, le=_MOST_FILES)] = 0


class Born(OfAProcess):
    """`cores`: those that it is bound to. `devices`: its CUDA_VISIBLE_DEVICES."""

    pid: Pid
    cores: Ids
    devices: Annotated[str, Meta(max_length=MOST_OF_DEVICES)] | None = None


class Failed(OfAProcess):
    """The host has no process for it. `again`: it may have one if it is asked again."""

    note: Text
    again: bool = False


class Denied(OfAProcess):
    """There is not enough left of what it needs."""

    note: Text


class Dying(OfAProcess):
    """It is dead, and about to be reaped."""


class Exited(OfAProcess):
    status: Annotated[int, Meta(ge=0, le=0xFFFF)]
    stderr: _Tail
    oom: bool


class Printed(Message):
    """Lines of one process, joined by newlines, of its stdout (1) or stderr (2)."""

    stream: Stream
    printer: Printer
    lines: Annotated[bytes, Meta(max_length=MOST_OF_LINES)]

    def __post_init__(self) -> None:
        newlines = self.lines.count(b"\n")
        if newlines >= MOST_LINES:
            raise ValueError(f"there are {newlines} newlines in one message")


#: Messages to a guest. The others are for somebody else, who gets an answer.
TO_GUEST: Decoder[Any] = Decoder(
    Open,
    Start,
    OverLine,
    Closed,
    Kill,
    GroupFrame,
    GroupClosed,
    Leave,
    Preload,
    Now,
    Close,
    Stop,
    *OF_A_MEMBER,
)
TO_HOME: Decoder[Any] = Decoder(
    Opened,
    Born,
    Failed,
    Denied,
    OverLine,
    Closed,
    GroupFrame,
    Dying,
    Exited,
    Printed,
)


# -- the homes of one namespace --------------------------------------------


class AskNames(Message):
    """Tell the names of now, and each change: the first message of both sides. `host`:
    the asker's."""

    host: Name
    namespace: _ActorName


class Poll(Message):
    """Who has that name, or that actor? Answered by `Answer`; see `namespaces`."""

    number: Id
    name: _ActorName | None = None
    id: Id | None = None


class Ask(Message):
    """A request of a process, with its line's number."""

    line: Id
    message: _Said


class LineClosed(Message):
    """That process of the asker's is gone."""

    line: Id


class Named(Message):
    name: _ActorName
    label: Text
    handle: Handle


class Freed(Message):
    """Nobody has that name any more."""

    name: _ActorName


class AllNamed(Message):
    """These were all names of now."""


class Answer(Message):
    """The answerer's knowledge; None: nothing."""

    number: Id
    value: Text | bool | None = None


class Said(Message):
    """To a process of the asker's. It must fit into a frame of its lifeline."""

    line: Id
    message: Annotated[bytes, Meta(max_length=12 << 20)]


class Over(Message):
    """The answerer's session has ended; the channel does, too."""

    program: Text


TO_NEIGHBOR: Decoder[Any] = Decoder(
    AskNames, Poll, Ask, LineClosed, Named, Freed, AllNamed, Answer, Said, Over
)


# -- commands --------------------------------------------------------------


class Status(Message):
    """Answered by `SessionStatus`."""


class Logs(Message):
    """Lines of the actor of that name. Answered by a `Line` for each, with `LeftOut`
    where a slow reader does not get some, then `End`. With `follow` that comes once no
    actor of this name will run again."""

    name: Text
    follow: bool = False


class StatusRow(Row, tag="status"):
    """One actor. `mailbox`, `memory`: None if it has not answered."""

    restarts: Incarnation = 0
    mailbox: Id | None = None
    memory: Id | None = None


class SessionStatus(Message):
    """`driver`: what the session's program is called."""

    session: Name
    driver: Text
    actors: Annotated[list[StatusRow], Meta(max_length=1 << 16)]


class Line(Message):
    """A line of stdout (1) or stderr (2), and the `Printer` of it."""

    line: Annotated[str, Meta(max_length=1 << 18)]
    stream: Stream
    label: Text
    pid: Id
    id: Name = ""
    incarnation: Incarnation = 0
    host: Name = ""


class LeftOut(Message):
    """So many lines that the reader does not get."""

    lines: Id


class End(Message):
    """`found`: whether there was such an actor. `label`, `why`: of the last one, if it
    was followed, and how it ended."""

    found: bool
    label: Text | None = None
    why: Text | None = None


TO_DESK: Decoder[Any] = Decoder(Status, Logs, Stop, AskNames)
TO_COMMAND: Decoder[Any] = Decoder(SessionStatus, Line, LeftOut, End)
