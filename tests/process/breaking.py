# SPDX-License-Identifier: MIT
"""Connections between two hosts, through a `Proxy`, and what gets lost with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mooactor as moo
from mooactor.process.current import current_runtime
from tests.conftest import eventually
from tests.process.guest import Guest
from tests.process.hosts import Hosts, Proxy

MARK = 30_000  # bytes: it travels beside no data, and through the buffers of a socket


def to_guest(two: Hosts) -> tuple[Any, Proxy]:
    """An actor whose calls go through a proxy; its replies come straight."""
    guest = two.start("b", Guest)
    actor_id = guest._actor_id
    assert eventually(lambda: two.agent.members[actor_id].place)
    return guest, two.agent.proxy(actor_id)


def from_guest(two: Hosts) -> tuple[Any, Proxy]:
    """One whose replies come through a proxy; calls go straight."""
    driver = current_runtime().process_id
    assert eventually(lambda: two.agent.members[driver].place)
    proxy = two.agent.proxy(driver)
    return two.start("b", Guest), proxy


def lose(guest: Any, proxy: Proxy, send: Callable[[], Any]) -> Any:
    """Lose what `send` sends to the guest on its way, and return what `send` does."""
    before = proxy.within()
    proxy.hold()
    sent = send()
    mark = guest.length.remote("x" * MARK)  # it comes after that
    assert eventually(lambda: proxy.within() - before > MARK)
    assert proxy.cut() == 1
    assert isinstance(failure_of(mark), moo.ActorUnavailable)
    return sent


def failure_of(ref: Any) -> moo.ActorUnavailable | None:
    try:
        ref.get(timeout=20)
    except moo.ActorUnavailable as error:
        return error
    return None


def objects() -> int:
    """The number of values that this process has for others, or for itself."""
    runtime = current_runtime()
    return int(runtime.statistics()["objects"])
