# SPDX-License-Identifier: MIT
"""The members of a cluster: their rows, and the messages between them and its brokers.

A member is an agent; what it announces of itself is its `Row`. A broker keeps and sends
rows encoded, as they came: it decodes each once, when that is announced. The rows of a
large cluster come in several messages, so that neither side is held up by one.

Beside its row a member tells, with each message, the load of its machine. That changes
all the time, so it is no part of the row: each change of a row goes to all who watch.
The broker keeps the last one, for those who ask.
"""

import functools
import os
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from mooactor.control.envelope import VERSION as WIRE
from mooactor.control.messages import Decoder, Id, Malformed, Message, Name, Text
from mooactor.host.addresses import is_reachable
from mooactor.process.environment import is_host_name
from mooactor.process.needs import Amount

#: With which one that ends in good order closes its channels, to brokers and to the
#: homes of sessions. Every other reason is how it was lost.
FAREWELL = "it has left"
AT_A_TIME = 256  # rows in one message
MAX_BYTES = 1 << 16  # of a row, encoded
MAX_LABELS = 64
Labels = Annotated[dict[Text, Text], Meta(max_length=MAX_LABELS)]
_Load = Annotated[float, Meta(ge=0, le=1e6)]
_Share = Annotated[float, Meta(ge=-1e6, le=1e6)]
_Whole = Annotated[int, Meta(ge=0)]
_RowBytes = Annotated[bytes, Meta(max_length=MAX_BYTES)]
_Addresses = Annotated[list[Name], Meta(max_length=64)]


class Versions(msgspec.Struct):
    """Of mooactor, Python and torch (None: not there), and of the wire."""

    mooactor: str = "unknown"
    python: str = "unknown"
    torch: str | None = None
    wire: int = 0

    def compared(self) -> tuple[str, str, str]:
        """Those in which members may differ, each as a word."""
        return self.mooactor[:40], self.python[:40], str(self.torch)[:40]


class Row(msgspec.Struct):
    """The announcement of a member.

    Fields of later versions are passed on with the bytes, and not looked at.
    """

    name: Name  # of the host
    id: Name  # of the node, in hex: another one after each start
    address: Name  # at which other nodes reach it, tcp://ADDR:PORT
    # "host": `mooactor host`; "home": the agent of a driver, which offers what it has
    # to its own session only: nobody else places actors there.
    kind: Literal["host", "home"]
    cpus: _Whole  # that it offers
    gpus: _Whole
    memory: _Whole  # bytes
    labels: Labels  # the user's
    free: Amount  # what of cpus, gpus and memory is not taken
    versions: Versions
    sessions: Annotated[list[Name], Meta(max_length=1 << 12)]  # that run there
    actors: _Whole  # the number of those that run there
    # The part of each GPU that is not taken; None: not known.
    shares: Annotated[list[_Share], Meta(max_length=1 << 12)] | None = None
    # Reservations of sessions, each by its mark.
    reserved: Annotated[dict[Name, Amount], Meta(max_length=1 << 12)] = {}
    namespace: Text | None = None  # of a home

    def __post_init__(self) -> None:
        if not is_host_name(self.name):
            raise ValueError(f"name={self.name!r:.40} is no name")
        if not is_reachable(self.address):
            raise ValueError(f"address={self.address!r:.80} is none")

    @property
    def total(self) -> Amount:
        """Its offer."""
        return Amount(self.cpus, self.gpus, self.memory)


class SomeRow(msgspec.Struct):
    """The part of a row that is read of a member of any version."""

    name: str = ""
    versions: dict[str, Any] = {}


# -- to a broker -----------------------------------------------------------


class Announce(Message):
    """The sender's row. The first time it is answered by `Joined`, and by `Size` when
    the members are many more; or each time by `Refusal`."""

    row: _RowBytes
    load: _Load | None = None


class Still(Message):
    """The sender lives, and its row is the same. If it has none here, the answer is
    `AnnounceAgain`."""

    load: _Load | None = None


class Watch(Message):
    """Answered by `Members`, several if there are many rows, and then by each change:
    `Changed` and `Gone`."""


class StandBy(Message):
    """The sender is a second broker at that address. The answer is `Brokers`, as
    members are told, who announce themselves to it as well."""

    address: Name


class Stop(Message):
    """End: a broker with its stand-bys and the one that it stands by, a host, or the
    session of a home. There is no answer."""


OF_A_MEMBER = (Announce, Still, Watch, StandBy)
TO_BROKER: Decoder[Message] = Decoder(*OF_A_MEMBER, Stop)


# -- from a broker ---------------------------------------------------------


class Joined(Message):
    """`brokers`: its stand-bys. `notes`: sentences on versions that differ."""

    brokers: _Addresses
    members: Id
    notes: Annotated[list[Text], Meta(max_length=16)]


class Refusal(Message):
    """`taken`: another live node has the name."""

    why: Text
    taken: bool = False


class AnnounceAgain(Message):
    """It does not know the sender's row."""


class Size(Message):
    members: Id


class Members(Message):
    """Rows, each with the load of its machine. The last message of an answer has no
    ``more``."""

    rows: Annotated[list[tuple[_RowBytes, _Load | None]], Meta(max_length=AT_A_TIME)]
    more: bool = False


class Changed(Message):
    """A member is new, or has another row."""

    row: _RowBytes


class Gone(Message):
    name: Name
    id: Name
    why: Text


class Brokers(Message):
    """Its stand-bys."""

    addresses: _Addresses


FROM_BROKER: Decoder[Message] = Decoder(
    Joined,
    Refusal,
    AnnounceAgain,
    Size,
    Members,
    Changed,
    Gone,
    Brokers,
    Stop,
)

# -- rows ------------------------------------------------------------------

_rows: Decoder[Row] = Decoder(Row)


def in_messages(rows: Sequence[tuple[bytes, float | None]]) -> Iterator[Members]:
    """The messages with these rows, which are encoded, each with its load."""
    for start in range(0, max(1, len(rows)), AT_A_TIME):
        end = start + AT_A_TIME
        yield Members(list(rows[start:end]), end < len(rows))


def row_of(data: bytes) -> Row | None:
    """A row of a broker's; None if it is none by which a home can place actors."""
    try:
        return _rows.decode(data)
    except Malformed:
        return None


def rows_of(message: Members) -> list[tuple[Row, float | None]]:
    """The rows of a message, each with the load of its machine."""
    found = [(row_of(data), load) for data, load in message.rows]
    return [(row, load) for row, load in found if row is not None]


def load_average() -> float | None:
    """The number of processes of this machine that ran or waited to run, in the mean of
    the last minute, as ``uptime`` has it. None where the kernel does not tell."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


@functools.cache
def versions() -> Versions:
    """Those of this host; none of the packages is imported."""
    import platform

    return Versions(
        _installed("mooactor") or "unknown",
        platform.python_version(),
        _installed("torch"),
        WIRE,
    )


def _installed(name: str) -> str | None:
    from importlib import metadata  # 6 ms, which a session of its own does without

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
