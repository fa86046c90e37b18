# SPDX-License-Identifier: MIT
"""The messages between the processes of a session and their host's agent.

A process makes a `Request`. One with a ``rid`` is answered by the `Reply` of that
number, which every process takes out of its own count. The agent says beside
`NEWS`. Both go over lifelines, and between hosts and sessions in messages of agents
(see `host.protocol`). `control.messages` says how they are encoded, and what that
promises.
"""

import os
from collections.abc import Mapping
from typing import Annotated, Literal

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
    Path,
    Paths,
    Seconds,
    SomeId,
    Text,
    leaves_of,
)
from mooactor.control.reach import Reach
from mooactor.process.environment import Place
from mooactor.process.exits import ExitRecord
from mooactor.process.needs import Labels, Needs
from mooactor.process.supervision import Restart, Supervision, When
from mooactor.tensors.network import Network

Variables = Annotated[dict[Path, Path], Meta(max_length=1 << 16)]
_ActorName = Annotated[str, Meta(max_length=1000)]  # see `checks.name`
_Label = Annotated[str, Meta(max_length=1 << 16)]
_Threads = Annotated[int, Meta(ge=1)]
_RandomStream = Annotated[bytes, Meta(max_length=64)]
Stream = Annotated[int, Meta(ge=1, le=2)]  # stdout or stderr
_Key = Annotated[str, Meta(max_length=1 << 11)]
_Short = Annotated[str, Meta(max_length=256)]
Endpoint = Annotated[bytes, Meta(max_length=4096)]
PlaceNumber = Annotated[int, Meta(ge=1, le=0xFFFFFFFF)]  # see `host.groups`


def packed(variables: Mapping[str, str]) -> dict[bytes, bytes]:
    """Variables of an environment, as a message has them."""
    return {os.fsencode(key): os.fsencode(value) for key, value in variables.items()}


def unpacked(variables: Mapping[bytes, bytes]) -> dict[str, str]:
    """The reverse of it."""
    return {os.fsdecode(key): os.fsdecode(value) for key, value in variables.items()}


# -- parts of messages -----------------------------------------------------


class Member(msgspec.Struct):
    """The place of a child among those of its supervisor. `limited`: by its own policy,
    too."""

    key: _Key
    when: When
    limited: bool


class Cluster(msgspec.Struct):
    """How to join one: its brokers, its key, and the namespace to share."""

    addresses: Annotated[list[Name], Meta(min_length=1, max_length=256)]
    secret: bytes
    namespace: _ActorName | None = None


class Life(msgspec.Struct, omit_defaults=True):
    """The description of one process of an actor's, for itself.

    ``namesakes``: how many actors had its name before; ``stream``: the seed of its
    random streams, if it has no name; ``carried``: which of the two parcels come as
    descriptors; ``cores``: those that it is bound to, none: all; ``away``: it is not on
    the host of its session's home.
    """

    actor_id: SomeId
    incarnation: Incarnation
    label: _Label
    env: Variables
    threads: _Threads
    directory: Path
    key: bytes
    driver: Id | None
    network: Network
    name: _ActorName | None = None
    namesakes: Id = 0
    policy: Restart | None = None
    place: Place | None = None
    stream: _RandomStream | None = None
    memory_limit: Id | None = None
    seed: Id | None = None
    setup: bytes | None = None
    reach: Reach | None = None
    payload: bytes | None = None
    snapshot: bytes | None = None
    carried: Annotated[list[Literal["payload", "snapshot"]], Meta(max_length=2)] = []
    cores: Ids = []
    away: bool = False


# -- requests --------------------------------------------------------------


class Request(Message, kw_only=True):
    """A question or an order to the agent. Without ``rid`` it wants no answer."""

    rid: Id | None = None


class OfAnActor(Request):
    """A request about an actor, whose `Spawn` may come over another line."""

    id: Id


class Configure(Request):
    """The first message of the driver's: what session this is. ``mark`` names it in the
    cluster; ``logs_by_lifeline``: where the program's stdout is not descriptor 1."""

    directory: Path
    key: bytes
    process_id: Id
    mark: Name
    place: Place
    python: Path
    argv: Paths
    preload: Names
    network: Network
    forward_logs: bool = True
    logs_by_lifeline: bool = False
    local: bool = True
    pid: Id | None = None
    memory_limit: Id | None = None
    seed: Id | None = None
    setup: bytes | None = None
    reach: Reach | None = None
    cluster: Cluster | None = None


class Spawn(Request):
    """Start an actor. Its constructor's arguments are `payload`, or the descriptor that
    comes with this. A refusal without ``rid`` is told as the actor's death."""

    id: SomeId
    label: _Label
    handle: Handle
    payload: bytes | None = None
    name: _ActorName | None = None
    policy: Restart | None = None
    env: Variables = {}
    place: Place | None = None
    threads: _Threads = 1
    stream: _RandomStream | None = None
    needs: Needs = Needs()
    preload: Names = []
    detached: bool = False
    member: Member | None = None


class Reserve(Request):
    """Places for several actors that will be spawned: for all, or for none."""

    ids: Ids
    needs: Needs = Needs()


class Unreserve(Request):
    """They will not be spawned after all."""

    ids: Ids


class Ready(Request):
    """The sender's constructor has returned."""


class Failed(Request):
    """The sender's constructor has raised this."""

    error: Handle


class Stopping(Request):
    """The sender ends because it was asked to."""


class Snapshot(Request):
    """Keep this, or what the descriptor has, for the sender's next incarnation."""

    data: bytes | None = None


class Survey(Request):
    """The answer to `Surveyed`."""

    number: Id
    mailbox: Id
    memory: Id


class Supervise(Request):
    """The sender is a supervisor. Answered with its children by key: the id of each, 0
    of one that somebody has ended."""

    rules: Supervision


class CloseTeam(Request):
    """The supervisor stops: answered with the ids of the children that run."""


class StopChild(Request):
    id: Id


class Count(Request):
    """Answered with counts of this session."""


class LookUp(Request):
    """Answered with the handle of the actor of that name, None if it comes too late."""

    name: _ActorName
    timeout: Seconds | None = None


class Segment(Request):
    """The memory of a learner group's place: that of all processes of the sender's host
    with the same `share`; None: of the sender alone."""

    group: _ActorName
    share: Text | None = None


class ListActors(Request):
    """Answered with a `Row` for each actor that is not over."""


class ListHosts(Request):
    """Answered with a `HostRow` for each host."""


class Reachable(Request):
    """The sender listens there; `endpoint` is of its data plane."""

    address: _Short
    endpoint: Endpoint


class Locate(Request):
    """Answered by `Located`, once it is known where that process is."""

    id: SomeId


class Unreached(Request):
    """The sender has no connection to that process. For `latest` and `mark` see
    `process.peers`."""

    id: SomeId
    latest: Id
    mark: Id
    why: _Short


class Shutdown(Request):
    """End the session, within `grace` seconds (None: the usual), without waiting for
    the actors in `given_up`."""

    grace: Seconds | None = None
    given_up: Ids = []


class Kill(OfAnActor):
    """Answered when it is gone, with whether there was such an actor."""


class AwaitEnd(OfAnActor):
    """Answered when it is gone. `stopped`: the incarnation that the sender has stopped.
    If that has died, the stop is for the one after it."""

    stopped: Incarnation | None = None


class Watch(OfAnActor):
    """Tell the sender of its deaths, `Died`, from this incarnation on."""

    incarnation: Id


class Monitor(OfAnActor):
    """Tell the sender of each `Event`, under the number `monitor`."""

    monitor: Id


class Unmonitor(Request):
    id: Id
    monitor: Id


class GetHandle(OfAnActor):
    """Answered with the handle of that actor, or None."""


class Link(OfAnActor):
    """Answered with the number, 0 or 1, of the first that is over; None: linked."""

    other: Id


class Unlink(Request):
    id: Id
    other: Id


#: All of the above.
REQUESTS: Decoder[Request] = Decoder(*leaves_of(Request))
#: Those that processes of other sessions of the namespace may make; see `namespaces`.
SERVED = (Watch, Monitor, Unmonitor, Kill, AwaitEnd, Locate, GetHandle)
Served = Watch | Monitor | Unmonitor | Kill | AwaitEnd | Locate | GetHandle
SERVED_REQUESTS: Decoder[Served] = Decoder(*SERVED)


# -- what the agent says ---------------------------------------------------


class Row(msgspec.Struct, tag="actor"):
    """One actor, for `moo.actors` and `moo.hosts`."""

    id: Name  # in hex
    label: _Label
    name: _ActorName | None
    pid: Id | None
    cores: Ids
    cuda_visible_devices: Text | None
    threads: Id | None
    incarnation: Incarnation
    state: Name
    owner: _Label | None
    detached: bool
    host: Name = ""


class Amounts(msgspec.Struct):
    """Processors, GPUs and bytes of memory, as shown: whole ones are integers."""

    cpus: int | float
    gpus: int | float
    memory: int


class HostRow(msgspec.Struct, tag="host"):
    """One host, for `moo.hosts`, with the actors of this session that run there."""

    name: Name
    address: Name
    cpus: int | float
    gpus: int | float
    memory: int
    labels: Labels
    free: Amounts
    alive: bool
    actors: Annotated[list[Row], Meta(max_length=1 << 16)]


_Items = Annotated[list[Id | Text | Row | HostRow], Meta(max_length=1 << 16)]
_Counts = Annotated[dict[_Key, Id], Meta(max_length=1 << 16)]
Value = None | bool | Id | Handle | _Items | _Counts


class Reply(Message):
    """The answer to a request: its value, or that it was ``failed``, or why it is
    ``refused``, with a note. ``segment``: the place of a learner group, whose
    descriptors the agent of the process's own host adds."""

    rid: Id
    value: Value = None
    failed: Text | None = None
    refused: Literal["name taken", "no room"] | None = None
    note: Text = ""
    segment: PlaceNumber | None = None


class Died(Message):
    """The end of a process: `following` is the incarnation that comes next, None if
    none does."""

    id: Id
    incarnation: Incarnation
    record: ExitRecord
    following: Incarnation | None = None


What = Literal["started", "restarted", "died", "stopped"]


class Event(Message):
    """Something happened to an actor that the process monitors; `last`: nothing comes
    after it."""

    what: What
    actor: _Label
    incarnation: Incarnation
    record: ExitRecord | None = None
    last: bool = False
    monitor: Id = 0

    def __post_init__(self) -> None:
        if (self.record is not None) != (self.what in ("died", "stopped")):
            raise ValueError(f"{self.what} with the record {self.record!r:.80}")


class Located(Message):
    """Where a process can be reached. `same`: by a file in the directory of this one;
    `caller`: it is about to call this one."""

    id: SomeId
    host: Name
    address: Text
    endpoint: Endpoint
    same: bool = False
    caller: bool = False


class Gone(Message):
    """A process that was to be located will never be there."""

    id: Id


class CannotReach(Message):
    """A process of that host has no connection to this one; see `Unreached`."""

    id: Id
    host: Name
    address: Text
    latest: Id
    mark: Id
    why: _Short


class Surveyed(Message):
    """Answer with a `Survey` of that number."""

    number: Id


class Stop(Message):
    """The process shall end, within so many seconds; None: the usual."""

    grace: Seconds | None = None


class Log(Message):
    """To the driver: a line for its stdout (1) or stderr (2)."""

    stream: Stream
    line: str


class Joined(Message):
    """To the driver, as all that follow: a broker has taken the session."""

    broker: Name
    notes: Names = []


class Refused(Message):
    """No broker takes it; the first reason."""

    broker: Name
    why: Text


class NotJoined(Message):
    """The agent cannot take part in a cluster."""

    why: Text


class BrokerLost(Message):
    broker: Name
    why: Text


class Ended(Message):
    """Somebody ends the session."""

    by: Name


class LostSnapshot(Message):
    why: Text


NEWS: Decoder[Message] = Decoder(
    Reply,
    Died,
    Event,
    Located,
    Gone,
    CannotReach,
    Surveyed,
    Stop,
    Log,
    Joined,
    Refused,
    NotJoined,
    BrokerLost,
    Ended,
    LostSnapshot,
)
#: All that another session's home may say to a process.
NEWS_OF_OTHERS: Decoder[Message] = Decoder(Reply, Died, Event, Located, Gone)


def death_notice(
    process_id: int, record: ExitRecord, following: int | None = None
) -> Died:
    """The notice of the end of that process."""
    return Died(process_id & ~0xFFFF, process_id & 0xFFFF, record, following)
