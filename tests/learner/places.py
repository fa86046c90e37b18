# SPDX-License-Identifier: MIT
"""`LoneAgent`: an agent's part in learner groups, for members that a test starts."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from mooactor.host.eventloop import EventLoop
from mooactor.host.groups import Groups, Masters


class LoneAgent:
    """In the place of a `Home`: all places of all groups are on this host, and its loop
    runs when it is told to."""

    def __init__(self, host: str = "here") -> None:
        self.loop = EventLoop()
        self.as_site: Any = self
        self.masters = Masters(self.as_site)
        carry = partial(self.masters.take, self.as_site)
        self.groups = Groups(self.loop, host, carry)

    def memory(self, share: Any = "", group: str = "alone") -> list[int]:
        """The segment and the bell of the place of those with this `share`."""
        return self.groups.get(self.masters.number_of(group, self.as_site, share))

    def serve(self, seconds: float = 0.0) -> None:
        """Act on what members want, for so long."""
        until = time.monotonic() + seconds
        self.loop.serve(until)
        while time.monotonic() < until:
            self.loop.serve(until)

    def close(self) -> None:
        self.groups.close()
        self.loop._selector.close()
