# SPDX-License-Identifier: MIT
"""The limit of shared memory: what fits is sent, and what does not is an error that
names who holds how much."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.process import programs


def test_the_error_names_each_holder_once_and_all_else_goes_on(tmp_path: Path) -> None:
    # The driver holds memory in two ways: as its own, and lent to itself.
    script = """
        import numpy as np
        import mooactor as moo

        class Keeps:
            def __init__(self): self.kept = []
            def keep(self, x): self.kept.append(x)
            def forget(self): self.kept.clear()

        for limit in (8e9, 1e30):
            with moo.init(memory=limit):
                print(moo.stats()["memory"]["limit_bytes"])
        with moo.init(memory=64 << 20):
            keeps = moo.spawn(Keeps)
            keeps.keep(np.ones(8 << 20, np.uint8))
            first = moo.put(np.ones(16 << 20, np.uint8))
            view = first.get()
            second = moo.put(np.ones(12 << 20, np.uint8))
            try:
                third = moo.put(np.ones(40 << 20, np.uint8))
            except moo.OutOfMemory as error:
                print(error)
            del first, second, view
            try:
                for _ in range(10):
                    keeps.keep(np.ones(16 << 20, np.uint8))
            except moo.OutOfMemory as error:
                print(error)
            keeps.forget()
            keeps.keep(np.ones(16 << 20, np.uint8))
            print("went on")
        """
    done = programs.run(programs.write(tmp_path / "holders.py", script))
    assert done.returncode == 0, done.stderr
    low, high, first, second, went_on = done.stdout.splitlines()
    assert float(low) == 8e9 and int(high) > 1 << 62
    (holders,) = re.findall(r"are in use \((.*)\)", first)
    names = re.findall(r"process [0-9a-f]{16}|this process itself", holders)
    assert len(names) == len(set(names)) == 2, holders
    assert "this process itself uses 29.4 MB" in holders
    assert "16.8 MB" in second and "holds" in second
    assert went_on == "went on"


@pytest.mark.slow
def test_what_fits_can_be_sent_whatever_was_sent_before(tmp_path: Path) -> None:
    """An argument that was not kept is let go of before the reply."""
    script = """
        import time, weakref
        import numpy as np
        import mooactor as moo

        class Measures:
            def size(self, x):
                weakref.finalize(x, time.sleep, 0.3)  # its memory is freed after that
                return x.nbytes

        with moo.init(memory=96 << 20):
            measures = moo.spawn(Measures)
            for megabytes in (10, 70, 40, 90, 10):
                x = np.ones(megabytes << 20, np.uint8)
                print(moo.get(measures.size.remote(x)) >> 20)
    """
    done = programs.run(programs.write(tmp_path / "growing.py", script))
    assert done.stdout.split() == ["10", "70", "40", "90", "10"], done.stderr
