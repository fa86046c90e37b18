# SPDX-License-Identifier: MIT
"""Results that stay where they were made, and the end of their session."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

import mooactor as moo
from mooactor.process.current import current_runtime
from tests.clusters import Cluster
from tests.conftest import eventually

SIZE = 4 << 20

SCRIPT = """
    import dataclasses

    import numpy as np
    import mooactor as moo

    @dataclasses.dataclass
    class Batch:
        x: np.ndarray

    class Maker:
        def make(self, value):
            return Batch(np.full(4 << 20, value, np.uint8))

        def first(self, batch):
            return int(batch.x[0])

    if __name__ == "__main__":
        moo.init(local=False)
        a, b = (moo.on(Maker, host=host).spawn() for host in "ab")
        refs = [a.make.remote(value) for value in range(4)]
        print([b.first(ref) for ref in refs])
        moo.wait(refs, num_returns=4)
        later = moo.on(Maker, host="b").spawn()
        print([later.first(ref) for ref in refs])
"""


class Maker:
    def make(self, value: int) -> Any:
        return np.full(SIZE, value, np.uint8)


def on(host: str) -> Any:
    return moo.on(Maker, host=host).spawn()


def stored(maker: Any, value: int) -> Any:
    ref = maker.make.remote(value)
    moo.wait([ref])
    return ref


def test_an_end_in_order_has_the_program_fetch_what_it_holds(here: Cluster) -> None:
    with moo.init(local=False):
        kept, dropped = (stored(on(host), 1) for host in "ab")
        del dropped
        before = here.network.received("d")
    assert here.network.received("d") - before < 1.02 * SIZE
    assert kept.get()[-1] == 1


def test_no_room_for_results_names_who_holds_them(here: Cluster) -> None:
    with moo.init(local=False, memory=4 * SIZE):
        maker = on("a")
        refs = [stored(maker, 1) for _ in range(10)]
        error = refs[-1].exception()
        assert isinstance(error, moo.OutOfMemory)
        assert error.delivered is True
        assert f"process {current_runtime().process_id:016x} holds" in str(error)
        assert [int(ref.get()[0]) for ref in refs[:2]] == [1, 1]
        refs.clear()
        assert eventually(lambda: stored(maker, 5).exception() is None)


def test_a_program_ends_without_what_only_others_have_used(
    whole_cluster: Cluster, tmp_path: Path
) -> None:
    """Its classes travel with results that it never sees."""
    net, path = whole_cluster.network, tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    before = net.received("d")
    ended = subprocess.run(
        [*net.on("d"), sys.executable, str(path)],
        env=whole_cluster.environment("d")
        | {"MOOACTOR_ADDRESS": whole_cluster.address},
        cwd=os.getcwd(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.stdout.splitlines() == ["[0, 1, 2, 3]"] * 2, ended.stderr
    assert ended.stderr == ""
    assert net.received("d") - before < SIZE / 10
