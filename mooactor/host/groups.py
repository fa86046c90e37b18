# SPDX-License-Identifier: MIT
"""The learner groups of one host: their memory, and the agent's part in them.

The members of a group share memory, which their agent makes. C acts in it for the
agent (`GroupAgent`): it gives members their places, notices when they end, and makes
the next epoch. This module only calls it when its descriptor is readable.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from mooactor.host.eventloop import EventLoop

if TYPE_CHECKING:
    from mooactor.tensors.collective import GroupAgent


class _Group(NamedTuple):
    segment: int
    agent: GroupAgent


class Groups:
    """Of all learner groups with members on this host, by the name of their memory."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._groups: dict[str, _Group] = {}

    def get(self, name: str, size: int) -> list[int]:
        """The descriptors of the group's memory and of its bell. The first request
        decides the `size` of the memory, which is sparse: address space, and pages as
        they are touched.

        Raises:
          ValueError: that is too small for a group.
          OSError: the system has no such memory, or no descriptors.
        """
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = self._new(size)
        return [group.segment, group.agent.bell]

    def _new(self, size: int) -> _Group:
        from mooactor.tensors.collective import GroupAgent  # C, for who needs it

        segment = os.memfd_create("mooactor-group", os.MFD_CLOEXEC)
        try:
            os.ftruncate(segment, size)
            agent = GroupAgent(segment)
        except BaseException:
            os.close(segment)
            raise
        self._loop.watch(agent.fileno(), agent.look)
        return _Group(segment, agent)

    def close(self) -> None:
        """Give all of them back; nobody of the session lives any more."""
        for group in self._groups.values():
            self._loop.unwatch(group.agent.fileno())
            group.agent.close()
            os.close(group.segment)
        self._groups.clear()
