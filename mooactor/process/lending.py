# SPDX-License-Identifier: MIT
"""For whom this thread is pickling: Refs inside other objects need to know."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from mooactor.tensors import receiver

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime


class _Lender(threading.local):
    to: tuple[Runtime, int, bool] | None = None


_lender = _Lender()


class lending:
    """Within it, what this thread pickles is for one process: Refs know whom they are
    lent to. Not `alone`: what is pickled may be sent to others as well."""

    __slots__ = ("_to", "_before")

    def __init__(self, runtime: Runtime, borrower: int, *, alone: bool = True) -> None:
        self._to = (runtime, borrower, alone)

    def __enter__(self) -> None:
        self._before, _lender.to = _lender.to, self._to

    def __exit__(self, *exc: object) -> None:
        _lender.to = self._before


def lent_to() -> int | None:
    """The process for which this thread pickles just now, if for any."""
    return None if _lender.to is None else _lender.to[1]


def _sole_receiver() -> int | None:
    return None if _lender.to is None or not _lender.to[2] else _lender.to[1]


receiver.learn(_sole_receiver)
