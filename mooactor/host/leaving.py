# SPDX-License-Identifier: MIT
"""How hosts leave a cluster: in good order, by their own word, or lost.

A member that ends in good order says `farewell` when it closes its channels, to brokers
and to the homes of sessions. Every other reason for which a channel to it ends is how
it was lost.

A session's program ends, too; `called` and `named` are what others are told of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from mooactor.process.exits import ExitRecord

_LEFT = "it has left"
_ENDED = "mooactor host was ended"  # of one that does not say by what
_MOST = 256  # hosts that are remembered
_MOST_OF_A_TEXT = 300


def farewell(how: str = "") -> str:
    """The reason with which it closes its channels."""
    return f"{_LEFT}: {how}" if how else _LEFT


def how_left(why: str) -> str | None:
    """How a member that has said `farewell` was ended, "" if it does not say. None: it
    was lost, for the reason `why`."""
    word, _, how = why.partition(": ")
    return how if word == _LEFT else None


def in_words(why: str) -> str:
    """A host's fate, behind its name."""
    how = how_left(why)
    if how is None:
        return f"was lost ({why[:_MOST_OF_A_TEXT]})"
    return f"has left ({how[:_MOST_OF_A_TEXT] or _ENDED})"


def record_of_loss(host: str, why: str) -> ExitRecord:
    """Of an actor whose host is gone."""
    how = how_left(why)
    if how is None:
        return ExitRecord("host", note=f"{host}: {why}")
    return ExitRecord("host", note=host, ended=how or _ENDED)


class Absent:
    """The hosts that a session had and has no more, by name."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}  # the latest last

    def add(self, host: str, why: str) -> None:
        """It has left, or was lost."""
        self.discard(host)
        self._reasons[host] = in_words(why)
        while len(self._reasons) > _MOST:
            del self._reasons[next(iter(self._reasons))]

    def discard(self, host: str) -> None:
        """It is there, or there again."""
        self._reasons.pop(host, None)

    def of(self, host: str) -> str:
        """Its fate; empty if it is there, or never was."""
        return self._reasons.get(host, "")


HAS_ENDED = "has ended"  # what it did, if nothing more is known
_MOST_OF_A_NAME = 200  # characters: the end of a path says more than its beginning


def called(argv: Sequence[bytes]) -> str:
    """By its command line."""
    return b" ".join(argv[:1]).decode(errors="replace") or "an interactive program"


def named(argv: Sequence[bytes], pid: int | None, host: str) -> str:
    """The same, with its process, for those who may know several."""
    what = "python -c" if argv[:1] == [b"-c"] else called(argv)[-_MOST_OF_A_NAME:]
    return f"{what} ({f'pid {pid} ' if pid else ''}on host {host})"
