# SPDX-License-Identifier: MIT
"""The program of a session, as other programs and commands are told of it."""

from __future__ import annotations

from collections.abc import Sequence

HAS_ENDED = "has ended"  # what it did, if nothing more is known
_MOST = 200  # characters: the end of a path says more than its beginning


def called(argv: Sequence[bytes]) -> str:
    """By its command line."""
    return b" ".join(argv[:1]).decode(errors="replace") or "an interactive program"


def named(argv: Sequence[bytes], pid: int | None, host: str) -> str:
    """The same, with its process, for those who may know several."""
    what = "python -c" if argv[:1] == [b"-c"] else called(argv)[-_MOST:]
    return f"{what} ({f'pid {pid} ' if pid else ''}on host {host})"
