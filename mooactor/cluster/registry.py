# SPDX-License-Identifier: MIT
"""The members of a cluster, as they have announced themselves: the broker's memory.

A pure state machine: it has no socket and no clock. Messages leave through the function
that it was made with. All it knows is told to it again by its members, so nothing is
lost with it.

* A *member* is an agent, at the other end of a channel of the broker's. It has one
  *row*, which is what it last announced. The registry keeps rows in memory, and hands
  them on to others: so each has a bound, and fields of the types that the others
  expect. It keeps and sends the bytes that came.
* Names of hosts are unique. A name belongs to the node that announced it first, for as
  long as that one lives. Homes, the agents of drivers, have names, too, but nobody is
  placed there by name except by their own driver; their names may be any.
* A node may announce itself again over a new channel, which then takes the place of the
  old one.
* A *watcher* gets all rows at once, with the loads of now, and from then on each change
  exactly once, in the order of the changes, which is the same for all watchers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from mooactor.control.envelope import VERSION as WIRE
from mooactor.control.messages import Message, encode, readable
from mooactor.host.members import (
    MAX_BYTES,
    MAX_LABELS,
    Announce,
    Changed,
    Gone,
    Row,
    SomeRow,
    in_messages,
)
from mooactor.host.protocol import Refused

MAX_LABEL_BYTES = MAX_BYTES // 2  # the rest is for what sessions reserve
_COMPARED = ("mooactor", "python", "torch")
_rows = msgspec.msgpack.Decoder(Row)
_some_rows = msgspec.msgpack.Decoder(SomeRow)
_NOT_DECODED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Post = Callable[[Any, Message], None]


class Announcement(NamedTuple):
    """A row, and the fields of it that the broker itself needs."""

    name: str
    id: str
    kind: str
    address: str
    session: str  # of a home; else empty
    versions: tuple[str, ...]  # as `_COMPARED`
    row: bytes  # encoded
    load: float | None = None

    def __str__(self) -> str:
        """For a log, whose reader knows nothing of homes. Several programs may be on
        one host: ``mooactor status`` has their sessions, too."""
        if self.kind == "host":
            return f"host {self.name}"
        which = f" (session {self.session})" if self.session else ""
        return f"program on {self.name}{which}"


def read(message: Announce) -> Announcement:
    """The content of a message.

    Raises:
      Refused: a field of the row is missing or wrong, or the member speaks another
        version of the wire.
    """
    try:
        _check_wire(_some_rows.decode(message.row))
        row = _rows.decode(message.row)
    except _NOT_DECODED as error:
        raise Refused(f"the announcement: {error!s:.300}") from None
    versions = tuple(map(sys.intern, row.versions.compared()))
    kind = sys.intern(row.kind)
    session = row.sessions[0] if kind == "home" and row.sessions else ""
    texts = row.name, row.id, kind, row.address, session
    return Announcement(*texts, versions, message.row, message.load)


def check_labels(labels: dict[str, str]) -> None:
    """Whether a host with these can be announced, however much is reserved there.

    Raises:
      Refused: there are too many, or they are too long.
    """
    if len(labels) > MAX_LABELS:
        raise Refused(f"there are {len(labels)} labels; {MAX_LABELS} are possible")
    size = len(encode(labels))
    if size > MAX_LABEL_BYTES:
        raise Refused(f"the labels have {size} bytes; {MAX_LABEL_BYTES} are possible")


def _check_wire(row: SomeRow) -> None:
    versions = row.versions
    if versions.get("wire") != WIRE:
        raise Refused(
            f"{row.name!r:.80} has mooactor {versions.get('mooactor')!r:.40}, "
            f"which speaks version {versions.get('wire')!r:.20} of the wire, and this "
            f"broker version {WIRE}: install the same mooactor on both"
        )


def differences(mine: Announcement, others: Iterable[Announcement]) -> list[str]:
    """Sentences on versions of a member that differ from those of others, for its log:
    nothing is refused for them."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for other in others:
        if other.versions == mine.versions or other.id == mine.id:
            continue
        for what, here, there in zip(
            _COMPARED, mine.versions, other.versions, strict=True
        ):
            if here != there:
                names.setdefault((what, here, there), []).append(other.name)
    return [
        f"{what} is {here} here, {there} on {_some(found)}"
        for (what, here, there), found in sorted(names.items())
    ]


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


@dataclass(slots=True)
class _Entry:
    member: Hashable
    announced: Announcement
    load: float | None


class Registry:
    """Rows by name, and those who watch them.

    Args:
      post: sends a message to a watcher.
    """

    def __init__(self, post: Post) -> None:
        self._post = post
        self._entries: dict[str, _Entry] = {}
        self._by_member: dict[Hashable, str] = {}
        self._watchers: dict[Hashable, None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def rows(self) -> list[tuple[bytes, float | None]]:
        """Every member's row, encoded, and its load, by name, hosts first."""

        def place(entry: _Entry) -> tuple[bool, str, str]:
            announced = entry.announced
            return announced.kind != "host", announced.name, announced.id

        found = sorted(self._entries.values(), key=place)
        return [(entry.announced.row, entry.load) for entry in found]

    def latest(self) -> Iterator[Announcement]:
        """Those of all members, the latest first."""
        return (entry.announced for entry in reversed(self._entries.values()))

    def members(self) -> list[Any]:
        return list(self._by_member)

    # -- members -----------------------------------------------------------

    def announce(self, member: Hashable, announced: Announcement) -> str | None:
        """Take what a member announces, new or changed.

        Returns why it is refused, None if it is not. A refused member is no member, and
        a row that it had is gone.
        """
        key = _key(announced)
        held = self._entries.get(key)
        if held is not None and held.announced.id != announced.id:
            if held.member != member:
                why = _name_is_taken(held.announced)
                self.leave(member, why)
                return why
            self.leave(member, "another node has its channel now")
            held = None
        self._drop_others(member, key, announced)
        before = None if held is None else held.announced.row
        self._entries.pop(key, None)  # so that it is the latest
        self._entries[key] = _Entry(member, announced, announced.load)
        self._by_member[member] = key
        if announced.row != before:
            self._tell_all(Changed(announced.row))
        return None

    def _drop_others(self, member: Hashable, key: str, new: Announcement) -> None:
        """A member has one row, and a row has one member."""
        former = self._by_member.get(member)
        if former is not None and former != key:
            self.leave(member, f"it is {new.name} now")
        held = self._entries.get(key)
        if held is not None and held.member != member:
            del self._by_member[held.member]

    def is_member(self, member: Hashable) -> bool:
        return member in self._by_member

    def still(self, member: Hashable, load: float | None = None) -> bool:
        """It lives, and its row has not changed; False if it has none here. Its load is
        no news for watchers."""
        key = self._by_member.get(member)
        if key is None:
            return False
        self._entries[key].load = load
        return True

    def leave(self, member: Hashable, why: str) -> Announcement | None:
        """It is gone; what it announced last, if it did."""
        key = self._by_member.pop(member, None)
        if key is None:
            return None
        last = self._entries.pop(key).announced
        self._tell_all(Gone(last.name, last.id, readable(why)))
        return last

    # -- watchers ----------------------------------------------------------

    @property
    def watchers(self) -> int:
        """Their number."""
        return len(self._watchers)

    def watch(self, watcher: Hashable) -> None:
        """Send it all rows now, and every change from now on."""
        self._watchers[watcher] = None
        for message in in_messages(self.rows()):
            self._post(watcher, message)

    def unwatch(self, watcher: Hashable) -> None:
        self._watchers.pop(watcher, None)

    def _tell_all(self, event: Message) -> None:
        for watcher in self._watchers:
            self._post(watcher, event)


def _key(announced: Announcement) -> str:
    """Hosts are known by name, homes by their node."""
    is_host = announced.kind == "host"
    return f"host {announced.name}" if is_host else f"home {announced.id}"


def _name_is_taken(other: Announcement) -> str:
    return (
        f"another host is called {other.name!r}, at {other.address}, and it is alive: "
        "choose a name with --name, or stop that one"
    )
