# SPDX-License-Identifier: MIT
"""Announcements of members, as a broker takes them.

A row is what `host.members` says. The broker keeps rows in memory, and hands them on to
others: so each has a bound, and fields of the types that the others expect. It keeps
and sends the bytes that came.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from mooactor.control.envelope import VERSION as WIRE
from mooactor.control.messages import encode
from mooactor.host.members import MAX_BYTES, MAX_LABELS, Announce, Row, SomeRow
from mooactor.host.protocol import Refused

MAX_LABEL_BYTES = MAX_BYTES // 2  # the rest is for what sessions reserve
_COMPARED = ("mooactor", "python", "torch")
_rows = msgspec.msgpack.Decoder(Row)
_some_rows = msgspec.msgpack.Decoder(SomeRow)
_NOT_DECODED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


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
