# SPDX-License-Identifier: MIT
"""The announcement of a member: its row, checked.

The broker keeps rows in memory, and hands them on to others: so each has a bound, and
fields of the types that the others expect. It keeps and sends them encoded, because
10 000 rows take half a second to encode.

=============  =====================================================================
field          meaning
=============  =====================================================================
``name``       of the host
``id``         of the node, in hex: another one after each start
``address``    at which other nodes reach it, ``tcp://ADDR:PORT``
``kind``       ``"host"``: `mooactor host`; ``"home"``: the agent of a driver, which
               offers what it has to its own session only: nobody else places actors
               there
``cpus``       whole cores that it offers
``gpus``       GPUs
``memory``     bytes
``labels``     the user's, strings by name
``free``       what of cpus, gpus and memory is not taken
``shares``     what of each GPU is not taken; may be missing
``versions``   of mooactor, python and torch (None: not there), and of the wire
``reserved``   what sessions have reserved of it, each by its mark; may be missing
``sessions``   that run there
``actors``     the number of actors that run there
=============  =====================================================================

Other fields are kept as they are. Beside its row a member tells, with each message, the
``load`` of its machine; see `mooactor.host.load`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from mooactor.control import plain
from mooactor.control.envelope import VERSION as WIRE
from mooactor.host import fields, load, rows
from mooactor.host.fields import Refused
from mooactor.process import place

MAX_NAME = place.MOST_OF_A_HOST_NAME  # also of an id, and of an address
MAX_BYTES = 1 << 16  # of a row, encoded
MAX_LABELS = 64
MAX_LABEL_BYTES = MAX_BYTES // 2  # the rest is for what sessions reserve
_BESIDE = ("op", "load")  # what of the message is not of the row
_COMPARED = ("mooactor", "python", "torch")


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


def read(message: dict[str, Any]) -> Announcement:
    """The content of a message ``announce``.

    Raises:
      Refused: a field is missing or wrong, the row is too large, or the member speaks
        another version of the wire.
    """
    row = {key: value for key, value in message.items() if key not in _BESIDE}
    _check_wire(row)
    for key in ("name", "id", "address"):
        fields.no_more_than(MAX_NAME, key, fields.required(row, key, str))
    if not place.is_host_name(row["name"]):
        raise Refused(f"name={row['name']!r:.40} is no name")
    if row.get("kind") not in ("host", "home"):
        raise Refused(f"kind={row.get('kind')!r:.40} is neither 'host' nor 'home'")
    rows.check(row)
    fields.no_more_than(MAX_LABELS, "labels", row["labels"])
    sessions = fields.required(row, "sessions", list)
    fields.number(row, "actors")
    packed = fields.no_more_than(MAX_BYTES, "the announcement", plain.pack(row))
    versions = tuple(sys.intern(f"{row['versions'].get(k)}"[:40]) for k in _COMPARED)
    kind = sys.intern(row["kind"])
    first = sessions[0] if kind == "home" and sessions else ""
    session = first[:MAX_NAME] if type(first) is str else ""
    texts = row["name"], row["id"], kind, row["address"], session
    return Announcement(*texts, versions, packed, load.told(message))


def check_labels(labels: dict[str, str]) -> None:
    """Whether a host with these can be announced, however much is reserved there.

    Raises:
      Refused: there are too many, or they are too long.
    """
    fields.no_more_than(MAX_LABELS, "labels", labels)
    size = len(plain.pack(labels))
    if size > MAX_LABEL_BYTES:
        raise Refused(f"the labels have {size} bytes; {MAX_LABEL_BYTES} are possible")


def _check_wire(row: dict[str, Any]) -> None:
    versions = fields.required(row, "versions", dict)
    if versions.get("wire") != WIRE:
        raise Refused(
            f"{row.get('name')!r:.80} has mooactor {versions.get('mooactor')!r:.40}, "
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
