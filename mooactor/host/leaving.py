# SPDX-License-Identifier: MIT
"""How hosts leave a cluster: in good order, by their own word, or lost.

A member that ends in good order says `FAREWELL` when it closes its channels, to brokers
and to the homes of sessions. Every other reason for which a channel to it ends is how
it was lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from mooactor.process.exits import ExitRecord

FAREWELL = "it has left"
_MOST_OF_A_NAME = 200  # characters: the end of a path says more than its beginning


def record_of_loss(host: str, why: str) -> ExitRecord:
    """Of an actor whose host is gone."""
    if why == FAREWELL:
        return ExitRecord("host", note=host, ended=True)
    return ExitRecord("host", note=f"{host}: {why}")


def called(argv: Sequence[bytes]) -> str:
    """What a session's program is called: by its command line."""
    return b" ".join(argv[:1]).decode(errors="replace") or "an interactive program"


def named(argv: Sequence[bytes], pid: int | None, host: str) -> str:
    """The same, with its process, for those who may know several."""
    what = "python -c" if argv[:1] == [b"-c"] else called(argv)[-_MOST_OF_A_NAME:]
    return f"{what} ({f'pid {pid} ' if pid else ''}on host {host})"
