# SPDX-License-Identifier: MIT
"""Memory that is lent or allocated while a signal handler raises, at any point."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mooactor.tensors import DataPlane
from tests.interruptions import points

MB = 1 << 20


def test_an_interrupted_export_has_lent_nothing(
    plane: DataPlane, new_id: Callable[[], int]
) -> None:
    buffers = [np.ones(MB, np.uint8), plane.empty_buffer(MB), np.ones(7, np.uint8)]
    peer, before = new_id(), plane.statistics()

    lent: list[list[bytes]] = []

    def lend() -> None:
        lent.append(plane.export_all(buffers, peer))

    done = 0
    for point in points():
        if point.interrupt(lend):
            done += 1
        for descriptor in lent.pop() if lent else []:
            plane.revoke(descriptor)
        found = plane.statistics()
        assert (found["leases"], found["used"]) == (0, before["used"]), point.where
    assert done > 20


@pytest.mark.parametrize("how", ["empty", "share"])
def test_an_interrupted_allocation_is_freed(plane: DataPlane, how: str) -> None:
    array = np.ones(MB, np.uint8)

    def allocate() -> None:
        if how == "empty":
            plane.empty_buffer(MB)
        else:
            plane.share(array)

    done = 0
    for point in points():
        done += bool(point.interrupt(allocate))
        assert plane.statistics()["used"] == 0, point.where
    assert done > 5
