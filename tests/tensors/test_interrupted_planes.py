# SPDX-License-Identifier: MIT
"""Memory that is sent and received while signal handlers raise: see `interruptions`."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from mooactor.tensors import DataPlane
from tests.conftest import eventually
from tests.interruptions import points

SENT = os.urandom(5000)


def test_an_import_goes_on_where_it_was_interrupted(
    new_plane: Callable[..., DataPlane],
) -> None:
    sender, receiver = new_plane(), new_plane()
    for point in points():
        memory = receiver.importing(sender.export(SENT, receiver.process_id))
        point.interrupt(memory.result)
        assert bytes(memory.result()) == SENT, point.where
        assert memory.result() is memory.result()
        del memory
    assert eventually(lambda: sender.statistics()["used"] == 0)


def test_a_handler_may_import_the_same_at_any_point(
    new_plane: Callable[..., DataPlane],
) -> None:
    """One that waits handles the same message again, and so imports what it brought."""
    sender, receiver = new_plane(), new_plane()
    for point in points():
        memory = receiver.importing(sender.export(SENT, receiver.process_id))
        taken: list[Any] = []
        take = partial(lambda memory, taken: taken.append(memory.result()), memory)
        point.interrupt(partial(take, taken), partial(take, taken))
        first = taken[0]
        assert all(one is first for one in taken), point.where
        del memory, take
        gc.collect()
        assert bytes(first) == SENT, point.where
        del first
        taken.clear()
    assert eventually(lambda: sender.statistics()["used"] == 0)
    assert eventually(lambda: receiver.statistics()["imports"] == 0)


def test_an_import_that_is_given_up_after_an_interruption_leaves_nothing(
    new_plane: Callable[..., DataPlane],
) -> None:
    sender, receiver = new_plane(), new_plane()
    for point in points():
        descriptor = sender.export(SENT, receiver.process_id)
        memory = receiver.importing(descriptor)
        point.interrupt(memory.result)
        del memory
        try:
            receiver.discard(descriptor)
        except ValueError:
            pass  # it was imported
        assert eventually(lambda: sender.statistics()["used"] == 0), point.where


def test_an_export_that_is_interrupted_leaves_nothing(
    new_plane: Callable[..., DataPlane],
) -> None:
    sender, receiver = new_plane(), new_plane()
    for point in points():
        sent: list[bytes] = []
        point.interrupt(lambda: sent.append(sender.export(SENT, receiver.process_id)))
        for descriptor in sent:
            assert bytes(receiver.import_(descriptor)) == SENT
        assert eventually(lambda: sender.statistics()["used"] == 0), point.where
