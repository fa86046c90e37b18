# SPDX-License-Identifier: MIT
"""Epochs: the connections that other hosts' processes have had to this one.

A process numbers its connections to each other one, and every message has the number;
`ways` has the sending side. Once a message of a later connection has come, what still
comes of an earlier one is dropped: it would be out of order, and both sides have given
it up. So is what comes of a process that this one was told is dead: its host was cut
off for so long that it counts as lost, and it must not act any more.
"""

from __future__ import annotations

from collections.abc import Callable

from mooactor.control.envelope import is_later


class Epochs:
    """Of one process, as receiver. In the poller's thread; `forget` in any."""

    def __init__(self, is_gone: Callable[[int], bool]) -> None:
        """`is_gone`: whether a process is known to be dead."""
        self._is_gone = is_gone
        self._present: dict[int, int] = {}
        self.late = 0  # messages that were dropped

    def admit(self, sender: int, epoch: int) -> bool:
        """Whether a message counts: it is of the present connection, or a new one, and
        of a process that lives."""
        present = self._present.get(sender, epoch)
        if is_later(present, epoch) or self._is_gone(sender):
            self.late += 1
            return False
        self._present[sender] = epoch
        return True

    def forget(self, process_id: int) -> None:
        """That process is gone, and its id is not used twice."""
        self._present.pop(process_id, None)
