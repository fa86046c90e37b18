# SPDX-License-Identifier: MIT
"""`moo.stats`: names with units, and a summary that fits a screen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.actors.counter import Counter

COUNTS = {"slabs", "blocks", "leases", "peers", "owners", "imports", "exports"}
COUNTS |= {"exports_copied", "revoked", "links", "fetches"}


def test_every_size_names_its_unit(spawn: Any) -> None:
    spawn(Counter).echo(np.zeros(100_000))
    memory = moo.stats()["memory"]
    sizes = {key for key in memory if "bytes" in key}
    assert set(memory) - sizes - COUNTS == set()
    assert memory["limit_bytes"] > memory["resident_bytes"] >= memory["used_bytes"]
    (row,) = [row for row in moo.stats()["peers"] if row["bytes_sent"]]
    assert row["bytes_sent"] == 800_000


def test_it_counts_deaths_restarts_and_supervisors_that_gave_up(spawn: Any) -> None:
    before = moo.stats()["session"]
    child = moo.child(Counter)
    supervisor = spawn(moo.Supervisor, [child], max=1)
    counter = supervisor.child(child)
    with pytest.raises(moo.ActorRestarted):
        counter.kill_self()
    with pytest.raises(moo.ActorDied):
        counter.kill_self()
    *_, _ = moo.monitor(supervisor)  # until it has ended
    spawn(Counter).echo()
    after = moo.stats()["session"]
    more = {key: after[key] - before[key] for key in after}
    # the child died twice, and its supervisor once
    assert more == {"actors": 1, "deaths": 3, "restarts": 1, "gave_up": 1}
