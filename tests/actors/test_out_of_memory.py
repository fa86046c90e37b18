# SPDX-License-Identifier: MIT
from __future__ import annotations

import re
from pathlib import Path

from tests.process import programs


def test_each_holder_is_named_once(tmp_path: Path) -> None:
    # The driver holds memory in two ways: as its own, and lent to itself.
    script = """
        import numpy as np
        import mooactor as moo

        class Keeps:
            def __init__(self): self.kept = []
            def keep(self, x): self.kept.append(x)

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
            del view
        """
    done = programs.run(programs.write(tmp_path / "holders.py", script))
    assert done.returncode == 0, done.stderr
    (holders,) = re.findall(r"are in use \((.*)\)", done.stdout)
    names = re.findall(r"process [0-9a-f]{16}|this process itself", holders)
    assert len(names) == len(set(names)) == 2, holders
    assert "this process itself uses 29.4 MB" in holders


def test_a_limit_may_be_a_float_and_more_than_any_machine_has(tmp_path: Path) -> None:
    script = """
        import mooactor as moo

        for limit in (8e9, 1e30):
            with moo.init(memory=limit):
                print(moo.stats()["memory"]["limit_bytes"])
        """
    done = programs.run(programs.write(tmp_path / "limits.py", script))
    first, last = map(int, done.stdout.split())
    assert first == 8e9 and last > 1 << 62, done.stderr
